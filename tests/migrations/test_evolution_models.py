"""
Changes of models, their keys and what is derived, each judged by its rule and shown by two programs.
"""

import datetime as dt
import enum

import pytest

from tableorm import (
    Count,
    Database,
    DecodeError,
    Embedded,
    Entity,
    EntityNotFound,
    Feed,
    Index,
    IndexList,
    Mapped,
    NotSupported,
    PropertyBag,
    Sum,
    WrongKind,
    field,
    upgrade,
)
from tableorm.models.entity import schema_of
from tests.faults import FaultyBackend

from .turns import Base, Case, Item, Program, both_work, new_reads_no_old, old_reads_no_new


class Renamed(Base, kind="Item"):
    pass


def item_of_another_kind() -> type[Entity]:
    class Item(Base, kind="Thing"):
        pass

    return Item


class OtherTable(Base, kind="Item", table="EvolvedElsewhere"):
    pass


class Listing(Base, kind="Item"):
    more: Mapped[str] = field(default="")


class Wide(Base, kind="Item", wide=1):
    more: Mapped[str] = field(default="")


class ToldByKeyTwo(Base, kind="Item", discriminator="row_key", version=2):
    pass


class Two(Base, kind="Item", version=2):
    pass


class TwoBare(Base, kind="Item", version=2):
    pass


@upgrade(Two, from_version=1)
def _keep(bag: PropertyBag) -> PropertyBag:
    bag["upgraded"] = True
    return bag


class Named(Base, kind="Item", row_key="named_{note}_{id:03d}"):
    pass


class NamedAsIs(Base, kind="Item", row_key="named_{note}_{id:03d}", keys="verbatim"):
    pass


class OtherPartition(Base, kind="Item", partition_key="group_{group}"):
    pass


class OtherRow(Base, kind="Item", row_key="item_{id:05d}"):
    pass


class RenamedKey(Entity, table="EvolvedItems", kind="Item", partition_key="{team}", row_key="item_{number:03d}"):
    team: Mapped[str]
    number: Mapped[int]
    note: Mapped[str] = field(default="")


class Size(enum.Enum):
    SMALL = "small"


class Sized(Entity, table="EvolvedItems", kind="Item", partition_key="{group}", row_key="item_{id:03d}"):
    group: Mapped[Size]
    id: Mapped[int]
    note: Mapped[str] = field(default="")


class Other(Base, row_key="other_{id:03d}"):
    pass


class Indexed(Base, kind="Item"):
    by_note = Index(row_key="note_{note}_{id:03d}")


class Building(Base, kind="Item"):
    by_note = Index(row_key="note_{note}_{id:03d}", building=True)


class AlwaysIndexed(Base, kind="Item"):
    by_note = Index(row_key="note_{note}_{id:03d}", building=False)


class IndexedOtherwise(Base, kind="Item"):
    by_note = Index(row_key="by_{note}_{id:03d}")


class Listed(Base, kind="Item"):
    by_note = IndexList(row_key="list_{note}")


class AlwaysListed(Entity, table="EvolvedItems", kind="Item", partition_key="{group}", row_key="item_{id:03d}"):
    group: Mapped[str]
    id: Mapped[int]
    note: Mapped[str] = field(default="")

    by_note = IndexList(row_key="list_{note}", building=False)


class Total(Entity, table="EvolvedItems", partition_key="{group}", row_key="total"):
    group: Mapped[str]
    items: Mapped[int] = field(default=0, maintained=True)
    ids: Mapped[int] = field(default=0, maintained=True)


class Counted(Base, kind="Item"):
    counted = Count(lambda: Total.items, group="{group}")


class CountedAs(Base, kind="Item"):
    number = Count(lambda: Total.items, group="{group}")


class OfSize(Base, abstract=True):
    size: Mapped[int] = field(default=1)


class Summed(OfSize, kind="Item"):
    counted = Sum("size", lambda: Total.ids, group="{group}")


class SummedOtherwise(OfSize, kind="Item"):
    counted = Sum("size", lambda: Total.items, group="{group}")


class WithText(Base, abstract=True):
    other: Mapped[int | None] = field(default=None)
    text: Mapped[str | None] = field(default=None, maintained=True)


class Tracked(WithText, kind="Item", tracked=True):
    pass


class Holding(WithText, kind="Item", tracked=True):
    copied = Embedded(lambda: Note, {"text": "text"}, group="{group}", id="{other}")


class Fed(Base, kind="Item"):
    changes = Feed(keep=dt.timedelta(days=7))


class Note(Base, tracked=True, row_key="noted_{id:03d}"):
    text: Mapped[str] = field(default="t")


async def passes_over(old: Program, new: Program) -> None:
    """The old program reads its own rows in the table, and not those of the new model."""
    await new.db.insert(Other(group="g", id=1))
    await both_work(old, new)
    assert [each.id for each in await old.db.select(old.model).where(old.model.group == "g").all()] == [1, 2]


async def leaves_rows(old: Program, new: Program) -> None:
    """The rows of a model that is gone stay as they are."""
    await old.db.insert(Other(group="g", id=1))
    await both_work(old, new)
    assert (await old.db.get(Other, group="g", id=1)).id == 1


async def is_not_there(old: Program, new: Program) -> None:
    """The new program does not get what the old one wrote."""
    await old.insert(1)
    with pytest.raises(EntityNotFound):
        await new.get(1)


async def is_of_another_kind(old: Program, new: Program) -> None:
    """The new program takes what the old one wrote for something else."""
    await old.insert(1)
    with pytest.raises(WrongKind):
        await new.get(1)


async def is_upgraded(old: Program, new: Program) -> None:
    """Old rows are upgraded whenever they are read, and stay old until they are written."""
    await old.insert(1)
    assert (await new.get(1)).extra["upgraded"] is True
    assert "upgraded" not in (await old.get(1)).extra


async def is_not_upgraded(old: Program, new: Program) -> None:
    """Old rows cannot be read."""
    await old.db.insert(Item(group="g", id=1))
    with pytest.raises(DecodeError, match="nothing upgrades"):
        await new.get(1)


async def is_read_as_older(old: Program, new: Program) -> None:
    """The new program does not see the version that the old one has written."""
    await old.insert(1)
    with pytest.raises(DecodeError, match="has version 1"):
        await new.get(1)


async def is_taken_for_older(old: Program, new: Program) -> None:
    """The new program reads rows of the higher version as they are, and never upgrades them again."""
    await old.insert(1)
    row = await old.db.get(PropertyBag.key("EvolvedItems", "g", "item_001"))
    assert row["EntityType"] == "Item:2"
    assert (await new.get(1)).id == 1
    await new.insert(2)
    assert (await old.get(2)).extra["upgraded"] is True


async def keys_are_equal(old: Program, new: Program) -> None:
    """Each finds the row of the other one by its own names."""
    await old.insert(1)
    entity = await new.db.get(RenamedKey, team="g", number=1)
    entity.note = "new"
    await new.db.save(entity)
    assert (await old.get(1)).note == "new"


async def keys_do_not_fit(old: Program, new: Program) -> None:
    """A key of the old program has no value of the new type."""
    await old.insert(1)
    with pytest.raises(DecodeError):
        await new.db.select(Sized).allow_scan().all()


async def query(program: Program, note: str) -> list[int]:
    """Return which items have a note, by the index or the list."""
    model, by_note = program.model, program.model.by_note
    if issubclass(model, Listed | AlwaysListed):
        found = await program.db.lookup(by_note, group="g", note=note)
    else:
        found = await program.db.select(by_note).where(model.group == "g", model.note == note).all()
    return [each.id for each in found]


async def misses_what_is_older(old: Program, new: Program) -> None:
    """The index, or the list, lacks what the old program has written, until it is built."""
    await old.insert(1, note="a")
    await new.insert(2, note="a")
    assert await query(new, "a") == [2]
    assert (await new.db.build_index(new.model.by_note)).complete
    assert await query(new, "a") == [1, 2]


async def build_to_the_end(new: Program) -> None:
    """Assert that the index, or the list, is not read yet, and build it to the end."""
    with pytest.raises(NotSupported, match="is not read"):
        await query(new, "a")
    assert (await new.db.build_index(new.model.by_note, no_older_writers=True)).readable


async def waits_for_its_build(old: Program, new: Program) -> None:
    """Nobody reads the index, or the list, before it was built when the old program had ended."""
    await old.insert(1, note="a")
    await new.insert(2, note="a")
    await new.db.build_index(new.model.by_note)
    await build_to_the_end(new)
    assert await query(new, "a") == [1, 2]


async def lacks_what_came_between(old: Program, new: Program) -> None:
    """The store says that the index, or the list, is readable, as it was once, and a program without it has written."""
    await old.insert(1, note="a")
    await old.db.insert(Item(group="g", id=2, note="a"))
    assert await query(new, "a") == [1]


async def counts_miss_what_is_older(old: Program, new: Program) -> None:
    """The count lacks what the old program has written, until it is built."""
    await new.db.insert(Total(group="g"))
    await old.insert(1)
    assert (await new.db.get(Total, group="g")).items == 0
    assert (await new.db.build_index(new.model.counted)).complete
    assert (await new.db.get(Total, group="g")).items == 1


async def count_what_both_write(old: Program, new: Program) -> None:
    """The count is right at any time, whichever program writes."""
    await new.db.insert(Total(group="g"))
    await both_work(old, new)
    assert (await new.db.get(Total, group="g")).items == 2
    assert (await new.db.build_index(new.model.number)).complete
    assert (await new.db.get(Total, group="g")).items == 2


async def is_not_read(old: Program, new: Program) -> None:
    """Nobody reads the index before it is declared to be complete."""
    await both_work(old, new)
    with pytest.raises(NotSupported, match="is being built"):
        await query(new, "a")


async def is_read_too_early(old: Program, new: Program) -> None:
    """Built to the end it has all, and not before."""
    await old.db.insert(Item(group="g", id=1, note="a"))
    assert await query(new, "a") == []
    assert (await old.db.build_index(old.model.by_note)).complete
    assert await query(new, "a") == [1]


async def is_read_without_the_store(old: Program, new: Program) -> None:
    """The new program reads by an index that the old one knows to be incomplete."""
    await old.db.drop_table("TableormUpkeep")
    await old.db.insert(Item(group="g", id=1, note="a"))
    assert await query(new, "a") == []


async def asks_the_store(old: Program, new: Program) -> None:
    """Built to the end it is read, and not before."""
    await old.db.insert(Item(group="g", id=1, note="a"))
    await build_to_the_end(new)
    assert await query(new, "a") == [1]


async def is_still_written(old: Program, new: Program) -> None:
    """The old program reads in the index what the new one writes."""
    await both_work(old, new)
    await new.change(1, note="z")
    assert await query(old, "z") == [1]


async def is_not_where_it_was(old: Program, new: Program) -> None:
    """The old program does not find by the index any more what the new one has written."""
    await old.insert(1, note="a")
    assert await query(old, "a") == [1]
    await new.change(1, note="b")
    assert await query(old, "b") == []


async def is_another_value(old: Program, new: Program) -> None:
    """The new program takes an escape for a part of the value."""
    await old.insert(1, note="a/b")
    entity = await new.db.get(NamedAsIs, group="g", note="a^2Fb", id=1)
    assert entity.note == "a^2Fb"


async def counts_elsewhere(old: Program, new: Program) -> None:
    """Each program adds to its own field, and neither is right."""
    await old.db.insert(Total(group="g"))
    await old.insert(1)
    await new.insert(2)
    total = await old.db.get(Total, group="g")
    assert (total.ids, total.items) == (1, 1)


async def is_taken_away(old: Program, new: Program) -> None:
    """What the new program writes, the old one does not find by the index."""
    await old.insert(1, note="a")
    await new.insert(2, note="a")
    assert await query(old, "a") == [1]


async def has_no_copies(old: Program, new: Program) -> None:
    """What the old program has written has no copies, until an audit has made them."""
    await new.db.insert(Note(group="g", id=7, text="copied"))
    await old.insert(1, other=7)
    assert (await new.get(1)).text is None
    await new.db.audit(Holding, Note, repair=True)
    assert (await new.get(1)).text == "copied"


async def noted(program: Program) -> list[tuple[str, str]]:
    """What the feed has, each as its verb and its row key."""
    changes = [change.entities async for change in program.db.changes(Fed, group="g")]
    return [(each.verb, each.key.row_key) for (each,) in changes]


async def is_not_noted(old: Program, new: Program) -> None:
    """What the old program has written is not in the feed, and nor is what it writes later."""
    await old.insert(1)
    await new.insert(2)
    await old.change(2, note="old")
    await new.change(1, note="new")
    assert await noted(new) == [("insert", "item_002"), ("update", "item_001")]


async def is_noted_no_more(old: Program, new: Program) -> None:
    """What the new program writes, the old one does not find in the feed."""
    await old.insert(1)
    await new.change(1, note="new")
    await old.insert(2)
    assert await noted(old) == [("insert", "item_001"), ("insert", "item_002")]


CASES = {
    "a model": Case(("model-added",), Item, Item, passes_over, others=(Other,)),
    "no model": Case(("model-removed",), Item, Item, leaves_rows, old_others=(Other,)),
    "a class": Case(("class-renamed",), Item, Renamed, both_work),
    "the kind": Case(("kind-changed",), Item, item_of_another_kind(), is_of_another_kind),
    "the table": Case(("table-changed",), Item, OtherTable, is_not_there),
    "several rows": Case(("made-wide",), Listing, Wide, old_reads_no_new, {"more": "x"}, {"more": "x"}),
    "one row": Case(("wide-removed",), Wide, Listing, new_reads_no_old, {"more": "x"}, {"more": "x"}),
    "the discriminator": Case(("discriminator-changed", "upgrade-removed"), Two, ToldByKeyTwo, is_read_as_older),
    "a version": Case(("version-raised",), Item, Two, is_upgraded),
    "no upgrade": Case(("upgrade-missing",), Item, TwoBare, is_not_upgraded),
    "an upgrade less": Case(("upgrade-removed",), Two, TwoBare, is_not_upgraded),
    "a lower version": Case(("version-lowered",), Two, Item, is_taken_for_older),
    "the PartitionKey": Case(("partition-key-changed",), Item, OtherPartition, is_not_there),
    "the RowKey": Case(("row-key-changed",), Item, OtherRow, is_not_there),
    "escapes": Case(("escapes-changed",), Named, NamedAsIs, is_another_value),
    "names in keys": Case(("key-field-renamed", "key-field-renamed"), Item, RenamedKey, keys_are_equal),
    "types in keys": Case(("key-type-changed",), Item, Sized, keys_do_not_fit),
    "an index": Case(("index-added",), Item, Indexed, waits_for_its_build),
    "an index that is read at once": Case(("index-trusted",), Item, AlwaysIndexed, misses_what_is_older),
    "a list": Case(("index-added",), Item, Listed, waits_for_its_build),
    "a list that is read at once": Case(("index-trusted",), Item, AlwaysListed, misses_what_is_older),
    "a list again": Case(("index-returned",), Listed, Listed, lacks_what_came_between, between=Item),
    "a list that is asked for": Case(("index-asked",), AlwaysListed, Listed, asks_the_store),
    "a count": Case(("count-added",), Item, Counted, counts_miss_what_is_older),
    "a renamed count": Case(("count-renamed",), Counted, CountedAs, count_what_both_write),
    "an index again": Case(("index-returned",), Indexed, Indexed, lacks_what_came_between, between=Item),
    "an index that is built": Case(("index-building",), Item, Building, is_not_read),
    "a built index": Case(("index-asked",), Building, Indexed, asks_the_store),
    "an index that is asked for": Case(("index-asked",), AlwaysIndexed, Indexed, asks_the_store),
    "an index that is read": Case(("index-readable",), Building, AlwaysIndexed, is_read_too_early),
    "an index that is read anyway": Case(("index-readable",), Indexed, AlwaysIndexed, is_read_without_the_store),
    "a hidden index": Case(("index-hidden",), Indexed, Building, is_still_written),
    "another template": Case(("derived-changed",), Indexed, IndexedOtherwise, is_not_where_it_was),
    "another sum": Case(("derived-changed",), Summed, SummedOtherwise, counts_elsewhere),
    "no index": Case(("derived-removed",), Indexed, Item, is_taken_away),
    "a change feed": Case(("feed-added",), Item, Fed, is_not_noted),
    "no change feed": Case(("feed-removed",), Fed, Item, is_noted_no_more),
    "copies": Case(("copies-added",), Tracked, Holding, has_no_copies),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
async def test_changes_of_models(case: Case) -> None:
    """The judgement, and what two programs see."""
    renames = case.codes == ("class-renamed",)
    found = [each.rule.code for each in case.judge()]
    assert [code for code in found if renames or code != "class-renamed"] == list(case.codes)
    backend = FaultyBackend()
    async with Database(backend) as old, Database(backend) as new:
        await old.create_tables(case.old)
        await old.insert(PropertyBag(schema_of(case.old).table_name(), "elsewhere", "row"))  # the table is not empty
        await new.create_tables(case.new)
        await case.check(Program(old, case.old, case.old_values), Program(new, case.new, case.new_values))
