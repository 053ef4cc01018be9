"""
Rows that are copied as bags: with the rows that are derived from them, under the same keys, nothing has to be repaired.
"""

from collections.abc import Awaitable, Callable, Iterable

import pytest

from tableorm import Database, EncodeError, NotSupported, PropertyBag, connect
from tableorm.stores import Row
from tests.derived.index.oracle import read_table
from tests.derived.patterns.club import CLUB, Player, Squad, check

Copy = Callable[[Database, Iterable[PropertyBag]], Awaitable[None]]


def again(bag: PropertyBag) -> PropertyBag:
    return PropertyBag(bag.table, bag.partition_key, bag.row_key, bag)


async def in_transactions(db: Database, bags: Iterable[PropertyBag]) -> None:
    """Each is changed twice, so that the transaction writes it anew."""
    for bag in bags:
        made = again(bag)
        async with db.transaction() as tx:
            made["more"] = 1
            tx.insert(made)
            del made["more"]
            tx.save(made)


async def in_bulk(db: Database, bags: Iterable[PropertyBag]) -> None:
    async with db.bulk() as bulk:
        for bag in bags:
            await bulk.insert(bag)


def one_by_one(write: Callable[[Database, PropertyBag], Awaitable[object]]) -> Copy:
    async def copy(db: Database, bags: Iterable[PropertyBag]) -> None:
        for bag in bags:
            await write(db, bag)

    return copy


COPIES: dict[str, Copy] = {
    "insert": one_by_one(lambda db, bag: db.insert(bag)),
    "insert of a copy": one_by_one(lambda db, bag: db.insert(again(bag))),
    "insert of bag.copy()": one_by_one(lambda db, bag: db.insert(bag.copy())),
    "upsert": one_by_one(lambda db, bag: db.upsert(again(bag))),
    "upsert, replacing": one_by_one(lambda db, bag: db.upsert(again(bag), mode="replace")),
    "transaction": in_transactions,
    "bulk": in_bulk,
}


async def fill(db: Database) -> None:
    await db.create_tables(Player, Squad)
    await db.insert(Squad(name="red"))
    for number in range(12):
        nick = f"n{number}" if number % 3 else None
        await db.insert(Player(id=number, nick=nick, name="ab"[number % 2], points=number, squad="red"))
    red = await db.get(Squad, club=CLUB, name="red")
    red.captain = 7
    await db.save(red)


def stored(bag: PropertyBag) -> Row:
    return {name: value for name, value in bag.row.items() if name not in ("odata.etag", "Timestamp", "_w")}


@pytest.mark.one_of(3)
@pytest.mark.parametrize("copy", COPIES.values(), ids=COPIES)
async def test_a_copied_partition_is_whole(copy: Copy) -> None:
    """Indexes, lists, counts, sums and copies are right after it, and stay right when entities are written."""
    async with connect("local::memory:") as source, connect("local::memory:") as target:
        await fill(source)
        await target.create_tables(Player, Squad)
        bags = await source.select_raw("Club").where("PartitionKey eq {}", CLUB).all()
        await copy(target, bags)

        found = await target.select_raw("Club").where("PartitionKey eq {}", CLUB).all()
        assert [stored(bag) for bag in found] == [stored(bag) for bag in bags]
        assert check(await read_table(target, "Club")) == []
        high = await target.select(Player.by_rank).where(Player.club == CLUB, Player.points > 8).all()
        assert [each.id for each in high] == [9, 10, 11]
        high[0].points = 1
        await target.save(high[0])
        await target.delete(high[1])
        await target.insert(Player(id=99, nick="n10", points=50, squad="red", name="c"))
        assert check(await read_table(target, "Club")) == []
        assert not (await target.audit(Player, Squad)).found


async def test_what_is_deleted_as_a_bag_takes_its_manifest_along() -> None:
    """A delete undoes what was derived; if the same bag is inserted again, nothing is derived from its row."""
    async with connect("local::memory:") as db:
        await fill(db)
        bag = await db.get(PropertyBag.key("Club", CLUB, Player.key(club=CLUB, id=10).row_key))
        await db.delete(bag)
        assert "_ix" not in bag
        await db.insert(bag)

        assert "_ix" not in await db.get(PropertyBag.key("Club", CLUB, bag.row_key))


async def test_what_tableorm_keeps_in_a_row_that_was_read_is_not_set() -> None:
    """A save would drop it without a word, so it says that; an unchanged one is rejected as before."""
    async with connect("local::memory:") as db:
        await fill(db)
        await db.insert(PropertyBag("Club", CLUB, "other", {"a": 1}))
        bag = await db.get(PropertyBag.key("Club", CLUB, "other"))
        bag["_ix"] = "{}"
        with pytest.raises(EncodeError, match=r"PropertyBag\._ix.*use the model"):
            await db.save(bag)
        player = await db.get(PropertyBag.key("Club", CLUB, Player.key(club=CLUB, id=10).row_key))
        player["name"] = "x"
        with pytest.raises(NotSupported, match="write it through its model"):
            await db.save(player)
