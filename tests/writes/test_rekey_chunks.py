"""
What a re-key does with many rows: each by itself, or those of a partition together.
"""

from collections.abc import Sequence

import pytest

from tableorm import AccessDenied, Conflict, EntityExists, TableNotFound, TableOrmError, Unavailable
from tableorm.connection.rows import OtherDenied
from tableorm.stores import Row, RowAddress
from tableorm.writes.rekey.chunks import each_row, in_chunks
from tableorm.writes.rekey.report import WindowReport


class Store:
    """
    Notes what is sent.

    Args:
        refused: Rows of which nothing can be sent.
        error: Why.
    """

    def __init__(self, refused: str = "", error: type[TableOrmError] = Conflict) -> None:
        self.sent: list[str] = []
        self._refused, self._error = set(refused), error

    async def send(self, rows: Sequence[str]) -> None:
        self.sent.append("".join(rows))
        if self._refused.intersection(rows):
            raise self._error("refused")


def place_of(row: str) -> RowAddress:
    """Return the place of a row: those in upper case are in another partition."""
    return RowAddress("RekeyedChunks", "upper" if row.isupper() else "lower", row)


async def test_rows_of_a_partition_go_together() -> None:
    """At most so many of them, and only transactions of several are counted."""
    store, report = Store(), WindowReport()
    assert await in_chunks(report, list("aBbcdD"), place_of, store.send, 3) == list("aBbcdD")

    assert sorted(store.sent) == ["BD", "abc", "d"]
    assert (report.transactions, report.operations) == (2, 5)


async def test_rows_go_one_by_one_where_they_are_refused_together() -> None:
    """What is refused alone too is left out of what has succeeded; no transaction has."""
    store, report = Store("b"), WindowReport()
    assert await in_chunks(report, list("abc"), place_of, store.send, 3) == ["a", "c"]

    assert store.sent == ["abc", "a", "b", "c"]
    assert (report.transactions, report.operations) == (0, 0)


@pytest.mark.parametrize("error", [TableNotFound, AccessDenied])
async def test_what_is_refused_of_all_rows_is_raised(error: type[TableOrmError]) -> None:
    """Nobody asks for each row again."""
    store = Store("b", error)
    with pytest.raises(error):
        await in_chunks(WindowReport(), list("abc"), place_of, store.send, 3)

    assert store.sent == ["abc"]


async def steps(*errors: Exception) -> WindowReport:
    """Do something with as many rows, which raises these errors, and with two more, of which the first is changed."""
    report = WindowReport()

    async def step(place: RowAddress, row: Row | None) -> bool:
        del row
        number = int(place.row_key)
        if number < len(errors):
            raise errors[number]
        return number == len(errors)

    await each_row(
        report, [(RowAddress("RekeyedChunks", "p", str(each)), None) for each in range(len(errors) + 2)], step
    )
    return report


async def test_what_became_of_each_row_is_told() -> None:
    """A key that another entity has is told apart from other failures; what functions raise counts as a failure."""
    report = await steps(EntityExists("taken"), Conflict("needed"), OtherDenied("token"), ValueError("odd"))

    assert report.moved == 1
    assert [str(each.error) for each in report.collisions] == ["taken"]
    assert [str(each.error) for each in report.failures] == ["needed", "token", "ValueError('odd')"]


@pytest.mark.parametrize("error", [TableNotFound, AccessDenied, Unavailable])
async def test_what_concerns_all_rows_is_no_failure_of_one(error: type[TableOrmError]) -> None:
    """It is raised."""
    with pytest.raises(error, match="refused"):
        await steps(error("refused"))
