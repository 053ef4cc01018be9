"""
Rows of re-keys, forged by who may write some rows: one bad row ends no move of others, and nobody follows it.

The forger writes the partition `evil` of both tables, and reads all. Who moves, verifies, finalizes and goes back has
all rights.
"""

import datetime as dt
import json
from collections.abc import Sequence
from itertools import product
from typing import Any

import attrs
import pytest

from tableorm import (
    AccessDenied,
    Database,
    Entity,
    EntityExists,
    EntityNotFound,
    Mapped,
    MovedFrom,
    RunReport,
    TableOrmError,
    field,
)
from tableorm.connection import rows
from tableorm.connection.connection import connection_of
from tableorm.connection.rows import OtherDenied, read_other
from tableorm.models.marker_rows import MoveState, mark_of
from tableorm.stores import Row, RowAddress, Verb
from tableorm.testing import MemoryStore
from tableorm_migrations import (
    finalize_move,
    rekey_phase,
    roll_back_move,
    run_move,
    run_rekey,
    seal_move,
    verify_move,
    verify_rekey,
)
from tableorm_migrations.rekey import phases
from tests import rekeys
from tests.databases import memory_database
from tests.faults import FaultyStore
from tests.migrations.conftest import known_at_once
from tests.rows import merge_row, put_row, replace_row
from tests.security.world import write_row
from tests.torture import every
from tests.unfinished_moves import FORWARD, TENTATIVE, database_on, move_half

__all__ = ["known_at_once"]

pytestmark = pytest.mark.usefixtures("known_at_once")

SHOPS = ("a", "b", "evil")


class Traded(Entity, abstract=True):
    shop: Mapped[str]
    number: Mapped[int]
    customer: Mapped[str]


class Sale(Traded, table="ForgedSales", tracked=True, partition_key="{shop}", row_key="sale_{number:03d}"):
    note: Mapped[str | None] = field(default=None)


def sale_keys(customer: str, number: int) -> list[dict[str, Any]]:
    return [{"shop": shop, "number": number} for shop in SHOPS]


class Buy(
    Traded,
    table="ForgedBuys",
    tracked=True,
    moved_from=MovedFrom(Sale, old_keys=sale_keys),
    partition_key="{customer}",
    row_key="buy_{number:03d}",
):
    note: Mapped[str | None] = field(default=None)


VICTIMS = [Sale(shop="ab"[number % 2], number=number, customer=f"c{number % 3}") for number in range(6)]
EVIL_OLD, EVIL_NEW = RowAddress("ForgedSales", "evil", "sale_900"), RowAddress("ForgedBuys", "evil", "buy_900")
OTHERS = [
    ["Nowhere", "a", "b"],
    ["no table!", "", ""],
    ["ForgedSales", "a/b", ""],
    ["ForgedBuys", "x" * 20_000, ""],
    ["ForgedSales", "a", "sale_000"],
    ["ForgedBuys", "c0", "buy_000"],
    [EVIL_OLD.table, EVIL_OLD.partition_key, EVIL_OLD.row_key],
    [EVIL_NEW.table, EVIL_NEW.partition_key, EVIL_NEW.row_key],
]


@pytest.fixture
async def db(db: Database) -> Database:
    await db.create_tables(Sale, Buy)
    for each in VICTIMS:
        await db.insert(each.evolve())
    return db


async def plant(db: Database, place: RowAddress, kind: str, mark: object, **more: Any) -> None:
    """Write a row, as the forger does."""
    text = mark if isinstance(mark, str) else json.dumps(mark)
    await write_row(
        db, place.table, place.partition_key, place.row_key, Verb.INSERT_OR_REPLACE, EntityType=kind, _mv=text, **more
    )


async def remove(db: Database, place: RowAddress) -> None:
    await write_row(db, place.table, place.partition_key, place.row_key, Verb.DELETE)


def other_of(failures: Sequence[str]) -> list[str]:
    """Return those of some failures that are not about the forger's rows."""
    return [each for each in failures if "evil" not in each.partition(":")[0] and "evil" not in each]


async def move_all(db: Database) -> RunReport:
    """Move every entity to its newer key."""
    return await run_move(db, Buy, no_blind_writers=True)


async def check_and_seal(db: Database) -> None:
    """Verify what was moved, and seal the move."""
    await verify_move(db, Buy)
    await seal_move(db, Buy, no_old_programs=True)


async def rows_of(db: Database, table: str) -> list[Row]:
    """Return the rows that are not the forger's."""
    return [bag.row for bag in await db.select_raw(table).allow_scan().all() if bag.partition_key != "evil"]


async def check_victims(db: Database, model: type[Sale] | type[Buy]) -> None:
    """Check that everybody has the keys by a model, and what was there before."""
    for each in VICTIMS:
        keys = {name: getattr(each, name) for name in model.__schema__.key_names}
        found = await db.get(model, **keys)
        assert (found.shop, found.customer, found.note) == (each.shop, each.customer, None)


MARKS = [*(state.value for state in MoveState), "bogus"]
KINDS = ["", "#_tentative", "#_forward"]
CASES = every(127, product(["move", "finalize", "back"], ["old", "new"], KINDS, MARKS, [True, False], OTHERS))


@pytest.mark.one_of(3)
@pytest.mark.parametrize(("step", "side", "kind", "state", "stays", "other"), CASES)
async def test_a_forged_row_ends_no_step(
    db: Database, step: str, side: str, kind: str, state: str, stays: bool, other: list[str]
) -> None:
    """Whatever one row says, all others are moved, finalized, or moved back, and no failure is about them."""
    mark = {"state": state, "move": "m" * 22, "other": other, "stays": stays, "etag": "x"}
    place, whole = (EVIL_OLD, {"customer": "evil"}) if side == "old" else (EVIL_NEW, {"shop": "evil"})
    report: RunReport
    if step == "move":
        await plant(db, place, f"{'Sale' if side == 'old' else 'Buy'}{kind}", mark, **whole)
        report = await move_all(db)
        verified = await verify_move(db, Buy)
        assert other_of(verified.failures) == []
        assert {row["EntityType"] for row in await rows_of(db, "ForgedSales")} == {"Sale#_forward"}
        await check_victims(db, Buy)
    else:
        await move_all(db)
        if step == "finalize":
            await check_and_seal(db)
        await plant(db, place, f"{'Sale' if side == 'old' else 'Buy'}{kind}", mark, **whole)
        if step == "finalize":
            report = await finalize_move(db, Buy)
            assert await rows_of(db, "ForgedSales") == []
            await check_victims(db, Buy)
        else:
            report = await roll_back_move(db, Buy)
            assert await rows_of(db, "ForgedBuys") == []
            await check_victims(db, Sale)
            assert report.complete == (await rekey_phase(db, Buy) == "expand")
    assert report.complete or report.failures
    assert other_of(report.failures) == []


@pytest.mark.parametrize("state", [MoveState.FORWARD, MoveState.SETTLED])
async def test_an_entity_with_the_mark_of_a_forward_is_moved(db: Database, state: MoveState) -> None:
    """A mark makes no forward of an entity, which would be left behind by every mover, and written by nobody."""
    mark = {"state": state.value, "move": "m" * 22, "other": ["ForgedBuys", "c0", "buy_000"], "stays": True}
    await plant(db, EVIL_OLD, "Sale", mark, customer="evil")
    await plant(db, RowAddress("ForgedSales", "evil", "sale_901"), "Sale", mark, customer="evil")
    report = await move_all(db)
    assert (report.complete, report.written) == (True, 8)

    found = await db.get(Buy, customer="evil", number=900)
    found.note = "written"
    await db.save(found)
    assert (await verify_move(db, Buy)).complete


@pytest.mark.parametrize("step", ["verify", "finalize"])
async def test_a_mark_of_nonsense_is_a_failure_that_names_the_row(db: Database, step: str) -> None:
    """Rows are compared one by one, and forwards are deleted, although the mark of one row cannot be read."""
    await move_all(db)
    if step == "verify":
        await plant(db, EVIL_OLD, "Sale#_forward", "[" * 20_000)
        await write_row(db, "ForgedBuys", "c0", "buy_000", Verb.MERGE, note="wrong")
        report = await verify_move(db, Buy)
        assert any("('c0', 'buy_000')" in each and "other content" in each for each in report.failures)
    else:
        await check_and_seal(db)
        await plant(db, EVIL_OLD, "Sale#_forward", "[" * 20_000)
        await plant(db, EVIL_NEW, "Buy#_tentative", "[" * 20_000)
        report = await finalize_move(db, Buy)
        assert await rows_of(db, "ForgedSales") == []
    assert not report.complete
    assert any("is not the mark of a move" in each and "'evil'" in each for each in report.failures)


@pytest.mark.parametrize("other", [["ForgedBuys", "c0", "buy_000"], ["ForgedSales", "a", "sale_000"]])
async def test_a_forward_to_the_row_of_another_entity_is_named_when_all_go_back(db: Database, other: list[str]) -> None:
    """It would never be freed, and the way back never end; once it is deleted, all is as before."""
    await move_all(db)
    mark = {"state": "forward", "move": "m" * 22, "other": other, "stays": True}
    await plant(db, EVIL_OLD, "Sale#_forward", mark)
    report = await roll_back_move(db, Buy)
    if not report.complete:
        assert any("another program has written one of the two" in each for each in report.failures)
        await remove(db, EVIL_OLD)
        report = await roll_back_move(db, Buy)

    assert (report.complete, await rekey_phase(db, Buy)) == (True, "expand")
    await check_victims(db, Sale)


async def test_a_forward_that_copies_the_move_of_another_entity(db: Database) -> None:
    """Its row is left alone by who goes back, and so is the entity that it names."""
    await move_all(db)
    [victim] = [mark_of(row) for row in await rows_of(db, "ForgedSales") if row["RowKey"] == "sale_000"]
    assert victim is not None
    mark = {"state": "forward", "move": victim.move, "other": ["ForgedBuys", "c0", "buy_000"], "stays": True}
    await plant(db, EVIL_OLD, "Sale#_forward", mark, customer="c0", shop="evil")
    assert other_of((await verify_move(db, Buy)).failures) == []
    await check_victims(db, Buy)
    await roll_back_move(db, Buy)
    await check_victims(db, Sale)


class Loan(
    Traded,
    table="ForgedLoans",
    tracked=True,
    discriminator="row_key",
    partition_key="{shop}",
    row_key="sale_{number:03d}",
):
    pass


class AnyBorrowed(
    Traded,
    abstract=True,
    tracked=True,
    discriminator="row_key",
    partition_key="{customer}",
    row_key="borrowed_{number:03d}",
):
    pass


class Borrowed(AnyBorrowed, table="ForgedBorrowed", moved_from=MovedFrom(Loan, old_keys=sale_keys)):
    pass


class Lent(AnyBorrowed, table="ForgedLent", moved_from=MovedFrom(Loan, old_keys=sale_keys)):
    pass


async def test_a_forward_to_a_tentative_row_of_another_re_key() -> None:
    """Who deletes a forged forward neither deletes nor confirms what it names in a table of other models."""
    async with memory_database(Loan, Borrowed, Lent) as db:
        mark = {"state": "tentative", "move": "m" * 22, "other": ["ForgedLoans", "a", "sale_001"], "stays": True}
        await plant(db, RowAddress("ForgedLent", "ann", "borrowed_001"), "Lent#_tentative", mark, shop="b")
        forged = {"state": "forward", "move": "x" * 22, "other": ["ForgedLent", "ann", "borrowed_001"], "stays": True}
        await plant(db, RowAddress("ForgedLoans", "evil", "sale_900"), "Loan#_forward", forged)
        await rekeys.finalize(db, Borrowed)
        assert [bag.row_key for bag in await db.select_raw("ForgedLent").allow_scan().all()] == ["borrowed_001"]


# Programs without tableorm at the newer keys


async def overwrite(db: Database, how: str) -> None:
    """Write the newer row of the first sale as a program does that knows no marks."""
    keys = {"PartitionKey": "c0", "RowKey": "buy_000"}
    if how == "delete":
        await remove(db, RowAddress("ForgedBuys", "c0", "buy_000"))
    elif how == "merge":
        await merge_row(db, "ForgedBuys", {**keys, "note": "foreign"})
    else:
        row = {**keys, "EntityType": "Buy", "shop": "a", "note": "foreign"}
        await replace_row(db, "ForgedBuys", row)


@pytest.mark.parametrize("how", ["merge", "replace", "delete"])
async def test_what_a_foreign_program_has_written_is_made_right_by_writing_it(db: Database, how: str) -> None:
    """A row that was written without its mark is found; when it was written again by its model, all can be sealed."""
    await move_all(db)
    await overwrite(db, how)
    assert not (await verify_move(db, Buy)).complete
    if how == "delete":
        await db.insert(Buy(customer="c0", number=0, shop="a", note="right"))
    else:
        buy = await db.get(Buy, customer="c0", number=0)
        buy.note = "right"
        await db.save(buy)

    assert (await verify_move(db, Buy)).complete
    assert (await seal_move(db, Buy, no_old_programs=True)).complete
    assert (await finalize_move(db, Buy)).complete
    assert (await db.get(Buy, customer="c0", number=0)).note == "right"


async def test_what_a_foreign_program_has_deleted_is_gone_when_it_is_deleted_once_more(db: Database) -> None:
    """Who deletes an entity whose row is missing says so to the forward too."""
    await move_all(db)
    await overwrite(db, "delete")
    assert not (await verify_move(db, Buy)).complete
    with pytest.raises(EntityNotFound):
        await db.delete(Buy, if_match="*", customer="c0", number=0)

    assert (await verify_move(db, Buy)).complete


@pytest.mark.parametrize("how", ["merge", "replace", "delete"])
async def test_the_way_back_of_what_a_foreign_program_has_written(db: Database, how: str) -> None:
    """An entity goes back as it is, also if its row has lost its mark."""
    await move_all(db)
    await overwrite(db, how)
    report = await roll_back_move(db, Buy)

    assert (report.complete, await rekey_phase(db, Buy)) == (True, "expand")
    found = await db.get_or_none(Sale, shop="a", number=0)
    assert (None if found is None else found.note) == (None if how == "delete" else "foreign")


# Programs that know the older model alone


@pytest.mark.parametrize("writes", [TENTATIVE, FORWARD])
async def test_an_unfinished_move_by_the_older_model_is_ended(writes: int) -> None:
    """A program of the older model that was killed while it moved an entity leaves nothing that a mover cannot end."""
    network = FaultyStore(MemoryStore())
    async with database_on(network, Sale, Buy) as db:
        sale = Sale(shop="a", number=1, customer="ann", note="kept")
        await db.insert(sale)
        await move_half(db, network, sale, writes, shop="b")
        report = await move_all(db)
        assert (report.complete, report.written) == (True, 1)
        assert (await verify_move(db, Buy)).complete
        found = await db.get(Buy, customer="ann", number=1)
        assert (found.shop, found.note) == ("a" if writes == TENTATIVE else "b", "kept")


# What live programs are told


@pytest.mark.parametrize("verb", ["insert", "upsert", "get_or_insert"])
async def test_an_older_key_that_another_entity_has(db: Database, verb: str) -> None:
    """Every verb that would insert says at once whose key it is, instead of trying again and again."""
    await move_all(db)
    with pytest.raises(EntityExists, match="another entity with its key by Sale") as caught:
        await getattr(db, verb)(Buy(customer="other", number=0, shop="a"))
    assert caught.value.index == "Sale"


async def test_a_row_that_must_not_be_read_is_told_of(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mark may name a row that the credentials do not open: that is an error of the row with the mark."""

    async def refuse(*_: object) -> Row:
        raise AccessDenied("no")

    monkeypatch.setattr(rows, "read_row", refuse)
    with pytest.raises(OtherDenied, match="the mark of another row names it"):
        await read_other(connection_of(db), RowAddress("Secrets", "a", "b"))


async def test_a_damaged_phase_is_told_of(db: Database) -> None:
    """What no program writes as the phase is an error that names the row, whoever asks."""
    await move_all(db)
    row = {"PartitionKey": "re-keys", "RowKey": rekeys.rekeying_of(Buy).digest}
    for stored in ("moved", 5, ""):
        await put_row(db, "TableormUpkeep", {**row, "Phase": stored})
        for ask in (rekey_phase, verify_move, run_move):
            with pytest.raises(TableOrmError, match=r"row \('re-keys', .* as Phase, which is none of expand, move"):
                await ask(db, Buy)


async def test_a_phase_that_begins_in_the_future(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits longer than for a phase that began just now, should a damaged file say that it has yet to begin."""
    monkeypatch.setattr(phases, "KNOWN_EVERYWHERE", 0.05)
    await move_all(db)
    rekey = phases.OnlineRekey.of("seal_move", db, Buy)
    read = await rekey.read_phase()
    assert read.since is not None
    await rekey.wait_until_known(attrs.evolve(read, since=read.since + dt.timedelta(days=9000)))


async def test_a_forward_without_a_mark_is_a_failure(db: Database) -> None:
    """A row with the kind of a forward and no mark is a failure of the way back, which then does not say it is done."""
    await move_all(db)
    await write_row(db, "ForgedSales", "evil", "sale_900", EntityType="Sale#_forward")
    report = await roll_back_move(db, Buy)
    assert (report.complete, report.failed, await rekey_phase(db, Buy)) == (False, 1, "back")


# Keys that lose something of their fields


class OfTenant(Entity, abstract=True):
    tenant: Mapped[str]
    number: Mapped[int]


class Member(
    OfTenant, table="ForgedMembers", tracked=True, partition_key="{tenant:lower}", row_key="member_{number:03d}"
):
    pass


class Person(
    OfTenant,
    table="ForgedPersons",
    tracked=True,
    moved_from=MovedFrom(Member),
    partition_key="{tenant}",
    row_key="p_{number:03d}",
):
    pass


class Guest(OfTenant, table="ForgedGuests", partition_key="{tenant}", row_key="guest_{number:03d}"):
    pass


@pytest.fixture
async def members(db: Database) -> Database:
    """Ann is a member; the forger says in his partition that another one is of her tenant."""
    await db.create_tables(Member, Person, Guest)
    await db.insert(Member(tenant="Ann", number=1))
    await write_row(db, "ForgedMembers", "evil", "member_002", EntityType="Member", tenant="Ann")
    return db


async def test_a_row_whose_fields_are_not_those_of_its_key_is_not_moved(members: Database) -> None:
    """An online re-key reports it, and no query finds it among the entities of the tenant that it names."""
    query = members.select(Person).allow_scan()
    assert [each.number for each in await query.all()] == [1]
    report = await run_move(members, Person, no_blind_writers=True)
    assert [each.number for each in await query.all()] == [1]
    assert (report.written, report.failed) == (1, 1)
    assert "evil" in report.failures[0]


async def test_a_row_whose_fields_are_not_those_of_its_key_is_not_copied(members: Database) -> None:
    """An offline re-key writes nothing into the partition of the tenant that it names, and deletes nothing."""
    report = await run_rekey(members, Member, Guest, writers_stopped=True)
    assert (report.written, report.failed) == (1, 1)
    assert "has fields that make another key" in report.failures[0]
    assert [each.number for each in await members.select(Guest).allow_scan().all()] == [1]
    assert not (await verify_rekey(members, Member, Guest)).complete


class Friend(
    OfTenant,
    table="ForgedFriends",
    tracked=True,
    moved_from=MovedFrom(Member),
    partition_key="{tenant:lower}",
    row_key="friend_{number:03d}",
):
    pass


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("partition", ["evil", "bob"])
async def test_a_row_whose_fields_are_not_those_of_its_key_hides_no_entity(
    members: Database, partition: str, ordered: bool
) -> None:
    """A newer row with the fields of Ann, under another key, does not stand for Ann, who has the older key as yet."""
    await members.create_tables(Friend)
    await write_row(members, "ForgedFriends", partition, "friend_001", EntityType="Friend", tenant="Ann")
    query = members.select(Friend).allow_scan()
    found = await (query if ordered else query.unordered()).all()
    assert sorted(each.key.partition_key for each in found) == sorted(["ann", partition])
    assert await query.count() == 2


class Long(Entity, table="ForgedLongs", partition_key="p", row_key="{name}_{name}"):
    name: Mapped[str]


class Short(Entity, table="ForgedShorts", partition_key="p", row_key="{name}"):
    name: Mapped[str]


async def test_an_entity_that_gets_no_key_ends_no_comparison() -> None:
    """Both sides are compared row by row although what one entity becomes cannot have a key."""
    async with memory_database(Short, Long) as db:
        for name in ("a", "b" * 400):
            await db.insert(Short(name=name))
        await run_rekey(db, Short, Long, writers_stopped=True)
        await db.delete(Long, if_match="*", name="a")
        report = await verify_rekey(db, Short, Long)
        assert any("is missing" in each for each in report.failures)


@pytest.mark.parametrize("verb", ["insert", "get_or_insert"])
@pytest.mark.parametrize("state", [MoveState.TENTATIVE, MoveState.FORWARD, MoveState.SETTLED])
async def test_a_row_that_nobody_ends_at_an_older_key_is_told_of(
    db: Database, pauses: list[int], state: MoveState, verb: str
) -> None:
    """Before entities are moved, an insert that meets a row of a move twice, unchanged, waits for nobody any more."""
    kind = "tentative" if state is MoveState.TENTATIVE else "forward"
    await plant(db, EVIL_OLD, f"Sale#_{kind}", {"state": state, "move": "m", "other": OTHERS[0], "stays": True})

    buy = Buy(shop="evil", number=900, customer="evil")
    with pytest.raises(EntityExists, match=r"Sale \('evil', 'sale_900'\): an entity is being moved .* delete the row"):
        await (db.insert(buy) if verb == "insert" else db.get_or_insert(buy))

    assert len(pauses) <= 1
