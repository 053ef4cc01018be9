"""
Which change feeds are refused when a class is made.
"""

import datetime as dt
from typing import Any, cast

import pytest

from tableorm import Database, EncodeError, Entity, Feed, Mapped, ModelError, PropertyBag, field
from tests.derived.feed.staff import KEEP, Employee


@pytest.mark.parametrize("keep", [None, 7, dt.timedelta(minutes=59), -dt.timedelta(days=1)])
def test_a_time_that_is_none_is_refused(keep: object) -> None:
    """Changes are kept for an hour at least: a request that is late may need them as a proof."""
    with pytest.raises(ModelError, match=r"Feed\(keep=.* is refused: give a timedelta of an hour or longer"):
        Feed(keep=cast("Any", keep))


def test_one_feed_is_enough() -> None:
    """All entities of a partition are in one feed."""
    with pytest.raises(ModelError, match=r"Twice\.more: Twice has the change feed 'changes' already"):

        class Twice(Entity, table="FeedTwice", partition_key="p", row_key="{id}"):  # pyright: ignore[reportUnusedClass]
            id: Mapped[int]
            changes = Feed(keep=KEEP)
            more = Feed(keep=KEEP)


def test_fields_that_others_keep_are_refused() -> None:
    """The feed would not say that they change."""
    with pytest.raises(ModelError, match=r"Counted\.changes: other entities keep Counted\.number"):

        class Counted(Entity, table="FeedCounted", partition_key="p", row_key="{id}"):  # pyright: ignore[reportUnusedClass]
            id: Mapped[int]
            number: Mapped[int] = field(default=0, maintained=True)
            changes = Feed(keep=KEEP)


def test_feeds_of_a_table_are_kept_for_one_time() -> None:
    """They may be one feed."""
    with pytest.raises(
        ModelError, match=r"Chair\.changes is kept for 1 day.*, and \w+\.changes of the same table for 7"
    ):

        class Chair(Entity, table="FedStaff", partition_key="{department}", row_key="chair_{id}"):  # pyright: ignore[reportUnusedClass]
            department: Mapped[str]
            id: Mapped[int]
            changes = Feed(keep=dt.timedelta(days=1))


def test_keys_that_could_be_those_of_the_feed_are_refused() -> None:
    """A model whose RowKey may begin with any text, in a table that has a feed."""
    with pytest.raises(
        ModelError, match=r"Loose\.row_key: a RowKey of '\{name\}' can begin with '~f_', .* has the rows"
    ):

        class Loose(Entity, table="FeedLoose", partition_key="p", row_key="{name}"):  # pyright: ignore[reportUnusedClass]
            name: Mapped[str]
            changes = Feed(keep=KEEP)


def test_a_model_without_a_kind_is_refused() -> None:
    """Its entities could not be told from the rows of the feed."""
    with pytest.raises(ModelError, match=r"Kindless is refused in table FeedKindless, where Kindless\.changes has the"):

        class Kindless(  # pyright: ignore[reportUnusedClass]
            Entity, table="FeedKindless", partition_key="p", row_key="k_{id}", kind=None
        ):
            id: Mapped[int]
            changes = Feed(keep=KEEP)


def test_a_key_field_that_is_called_as_an_option_is_refused() -> None:
    """`db.changes(after=...)` takes a cursor."""
    with pytest.raises(ModelError, match=r"Step\.changes: Step\.after is part of the key"):

        class Step(Entity, table="FeedStep", partition_key="{after}", row_key="step"):  # pyright: ignore[reportUnusedClass]
            after: Mapped[int]
            changes = Feed(keep=KEEP)


def test_a_table_for_each_period_is_refused() -> None:
    """The changes of a partition would be in many tables."""
    with pytest.raises(ModelError, match=r"Login is refused with a table .*: Login\.changes does not work across tab"):

        class Login(Entity, table="FeedLogins{at:%Y%m}", partition_key="{user}", row_key="{at:ticks}"):  # pyright: ignore[reportUnusedClass]
            user: Mapped[str]
            at: Mapped[dt.datetime]
            changes = Feed(keep=KEEP)


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
