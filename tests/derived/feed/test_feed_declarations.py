"""
Which change feeds are rejected when a class is made.
"""

import datetime as dt
from collections.abc import Callable
from typing import Any, cast

import pytest

from tableorm import Database, EncodeError, Entity, Feed, Mapped, ModelError, PropertyBag, field
from tests.derived.feed.staff import KEEP, Employee


@pytest.mark.parametrize("keep", [None, 7, dt.timedelta(minutes=59), -dt.timedelta(days=1)])
def test_a_time_that_is_none_is_refused(keep: object) -> None:
    """Changes are kept for an hour at least: a request that is late may need them as a proof."""
    with pytest.raises(ModelError, match=r"Feed\(keep=.* is rejected: give a timedelta of an hour or longer"):
        Feed(keep=cast("Any", keep))


def declare(space: dict[str, Any], annotations: dict[str, Any], **keywords: Any) -> None:
    """Declare a model with a feed, that has an `id` besides what is given."""
    body = {"__module__": __name__, "__annotations__": {"id": Mapped[int], **annotations}, "changes": Feed(keep=KEEP)}
    type("Odd", (Entity,), body | space, **{"table": "FeedOdd", "partition_key": "p", "row_key": "k_{id}", **keywords})


REFUSED: dict[str, tuple[Callable[[], None], str]] = {
    "a second feed": (
        lambda: declare({"more": Feed(keep=KEEP)}, {}),
        r"Odd\.more: Odd has the change feed 'changes' already",
    ),
    "fields that others maintain, whose changes it would not note": (
        lambda: declare({"number": field(default=0, maintained=True)}, {"number": Mapped[int]}),
        r"Odd\.changes: other entities keep Odd\.number",
    ),
    "another time than that of the other feeds of the table": (
        lambda: declare({"changes": Feed(keep=dt.timedelta(days=1))}, {}, table="FedStaff"),
        r"Odd\.changes is kept for 1 day.*, and \w+\.changes of the same table for 7",
    ),
    "keys that could be those of the feed": (
        lambda: declare({}, {"name": Mapped[str]}, row_key="{name}"),
        r"Odd\.row_key: a RowKey of '\{name\}' can begin with '~f_', .* has the rows",
    ),
    "no kind, by which entities are told from its rows": (
        lambda: declare({}, {}, kind=None),
        r"Odd is rejected in table FeedOdd, where Odd\.changes has the",
    ),
    "a key field that is called as an option of `db.changes`": (
        lambda: declare({}, {"after": Mapped[int]}, partition_key="{after}"),
        r"Odd\.changes: Odd\.after is part of the key",
    ),
    "a table for each period, so that a feed would be in many": (
        lambda: declare({}, {"at": Mapped[dt.datetime]}, table="FeedOdd{at:%Y%m}", row_key="{at:ticks}_{id}"),
        r"Odd is rejected with a table .*: Odd\.changes does not work across tab",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_is_refused(case: str) -> None:
    """The message names the model, and what is wrong with it."""
    declared, problem = REFUSED[case]
    with pytest.raises(ModelError, match=problem):
        declared()


class Free(Entity, table="FeedFree", partition_key="p", row_key="{name}"):
    name: Mapped[str]


async def test_no_model_writes_what_could_be_a_row_of_a_feed(db: Database) -> None:
    """Another program may have a feed in the table."""
    await db.create_tables(Free)
    with pytest.raises(EncodeError, match="begins with '~f_', as the rows of change feeds do"):
        await db.insert(Free(name="~f_counter"))


def test_it_is_no_field() -> None:
    """The error of who reads it from an entity says what does."""
    with pytest.raises(AttributeError, match=r"Employee\.changes; db\.changes\(\.\.\.\) reads it"):
        _ = cast("Any", Employee(id=1)).changes


async def test_a_feed_cannot_be_built(db: Database) -> None:
    """What was written before nobody knows."""
    with pytest.raises(ModelError, match="changes"):
        await db.build_index(Employee.changes)


async def test_a_scope_takes_no_bag_for_it(db: Database) -> None:
    """A bag of a row of the feed could say what never happened."""
    scope = db.scope(Employee, department="Sales")
    with pytest.raises(ModelError, match="it is a marker row"):
        await scope.insert(PropertyBag("FedStaff", "Sales", "~f_000000000000001", {"EntityType": "x"}))
