"""
Rows of moves, forged by who may write some rows: others end moves that they meet, and write no further row for it.

The forger writes the partition `evil` of a table, and reads all. The victim has all rights: a program that reads and
writes, a worker, an audit.
"""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from itertools import product
from typing import Any

import pytest

from tableorm import Count, Database, Entity, EntityExists, Index, Mapped, PropertyBag, TableOrmError, field
from tableorm.models.marker_rows import MoveState, mark_of
from tableorm.outbox.doorbell import MoveCommand
from tableorm.stores import CLOCK, Row, RowAddress, Verb
from tests import unfinished_moves
from tests.faults import FaultyStore
from tests.rows import insert_row
from tests.security.world import write_row
from tests.torture import every
from tests.unfinished_moves import CONFIRMED, FORWARD, HOUR, MARK, TENTATIVE, database_on, handler_of, work

REAL = [["Secrets", "ann", "secret"], ["Marked", "a", "marked_001"]]  # rows of others
PLACES = [*REAL, ["Nowhere", "a", "b"], ["no table!", "", "/"]]
NESTED = '{"x":' + "[" * 20_000


class Team(Entity, table="Marked", partition_key="{dep}", row_key="team"):
    dep: Mapped[str]
    size: Mapped[int] = field(default=0, maintained=True)


class Marked(Entity, table="Marked", partition_key="{dep}", row_key="marked_{id:03d}"):
    dep: Mapped[str]
    id: Mapped[int] = field(default=1)
    name: Mapped[str] = field(default="")

    by_name = Index(row_key="name_{name}", unique=True)
    counted = Count(lambda: Team.size, dep="{dep}")


FORGED = Marked.key(dep="evil", id=1)


class Secret(Entity, table="Secrets", partition_key="{owner}", row_key="secret"):
    owner: Mapped[str]
    text: Mapped[str]


pytestmark = pytest.mark.usefixtures("stopped_clock")


@pytest.fixture
async def db(network: FaultyStore) -> AsyncIterator[Database]:
    """Ann is in a, and so is a secret of hers."""
    async with database_on(network, Marked, Secret) as db:
        for dep in ("a", "b", "evil"):
            await db.insert(Team(dep=dep))
        await db.insert(Marked(dep="a", name="ann"))
        await db.insert(Secret(owner="ann", text="..."))
        yield db


async def plant(db: Database, kind: str, mark: str | dict[str, Any], **more: Any) -> None:
    """Write (evil, marked_001), as the forger does."""
    text = mark if isinstance(mark, str) else json.dumps(mark)
    await write_row(db, "Marked", "evil", "marked_001", Verb.INSERT_OR_REPLACE, EntityType=kind, _mv=text, **more)


async def move_half(db: Database, network: FaultyStore, writes: int) -> str:
    """Move ann to b; only so many writes arrive. Return the id of the move."""
    await unfinished_moves.move_half(db, network, await db.get(Marked, dep="a", id=1), writes, dep="b")
    marks = [mark_of(row) for row in await others(db)]
    return next(mark.move for mark in marks if mark is not None)


async def act_on_forged(db: Database, way: str) -> None:
    """Do what meets the forged row."""
    with suppress(TableOrmError):
        match way:
            case "get":
                await db.get(FORGED)
            case "insert":
                await db.insert(Marked(dep="evil", id=1))
            case "upsert":
                await db.upsert(Marked(dep="evil", id=1, name="x"))
            case "save":
                found = await db.get(FORGED)
                found.name = "changed"
                await db.save(found)
            case "delete":
                await db.delete(FORGED)
            case _:
                CLOCK.advance(2 * HOUR)
                await db.audit(Marked, repair=True)


KINDS = {
    MoveState.LEAVING: "Marked",
    MoveState.TENTATIVE: "Marked#_tentative",
    MoveState.CONFIRMED: "Marked",
    MoveState.FORWARD: "Marked#_forward",
    MoveState.SETTLED: "Marked#_forward",
    MoveState.OLD: "Marked",
}
WAYS = ["get", "insert", "upsert", "save", "delete", "audit"]


async def others(db: Database) -> list[Row]:
    """All rows outside of the forger's partition, with their ETags."""
    rows = [row.row for name in ("Marked", "Secrets") for row in await db.select_raw(name).allow_scan().all()]
    return [row for row in rows if row["PartitionKey"] != "evil"]


async def check_ann(db: Database, home: str) -> None:
    """Check that ann is in a or b, and is counted there."""
    for dep in ("a", "b"):
        found = await db.get_or_none(Marked, dep=dep, id=1)
        assert (None if found is None else found.name) == ("ann" if dep == home else None)
        assert (await db.get(Team, dep=dep)).size == int(dep == home)


@pytest.mark.parametrize("repair", [False, True])
@pytest.mark.parametrize("kind", ["Marked#_tentative", "Marked#_forward"])
async def test_a_nested_mark_ends_no_audit(db: Database, kind: str, repair: bool) -> None:
    """An audit reports a row whose mark cannot be read, however deeply that nests, and says that it stays."""
    await plant(db, kind, NESTED)
    CLOCK.advance(HOUR)
    assert (await db.audit(Marked, repair=repair)).clean
    CLOCK.advance(HOUR / 3600)

    report = await db.audit(Marked, repair=repair)

    (finding,) = report.findings
    what = {"Marked#_tentative": "a tentative row", "Marked#_forward": "a forward"}[kind]
    assert (finding.partition_key, finding.row_key, finding.address) == ("evil", "marked_001", "marked_001")
    assert finding.problem == f"{what} of a move was left, and should be gone"
    assert finding.refused is not None and finding.refused.startswith(f"{kind}: row ('evil', 'marked_001') has '{{")
    assert (report.counts, report.repaired, report.undecided) == ({"unfinished": 1}, 0, 0)


@pytest.mark.parametrize("verb", ["get", "upsert"])
async def test_a_nested_mark_is_told_of(db: Database, verb: str) -> None:
    """A read and a write of such a row raise an error of this package."""
    await plant(db, "Marked#_tentative", NESTED)
    with pytest.raises(TableOrmError):
        await (db.get(FORGED) if verb == "get" else db.upsert(Marked(dep="evil", id=1)))


@pytest.mark.parametrize(("other", "state", "way"), every(17, product(PLACES, MoveState, WAYS)))
async def test_a_mark_touches_no_row_of_others(db: Database, other: list[str], state: MoveState, way: str) -> None:
    """
    Whatever a forged row says, and whatever ETag it names: who ends its move writes no row that says nothing of it.
    """
    etag = (await db.store.get(other[0], other[1], other[2]))["odata.etag"] if other in REAL else "x"
    before = await others(db)
    await plant(db, KINDS[state], {"state": state, "move": "m", "other": other, "etag": etag})
    await act_on_forged(db, way)
    assert await others(db) == before


@pytest.mark.parametrize(
    ("writes", "state", "way"), every(13, product((MARK, TENTATIVE, FORWARD, CONFIRMED), MoveState, WAYS))
)
async def test_a_mark_takes_part_in_no_move_of_others(
    db: Database, network: FaultyStore, writes: int, state: MoveState, way: str
) -> None:
    """
    A forged row that names the id and a row of the move of somebody else changes nothing of it: not the forward, by
    which alone the tentative row is an entity, nor the tentative row, nor an entity that is about to be moved.
    """
    move = await move_half(db, network, writes)
    etag = (await db.store.get("Marked", "a", "marked_001"))["odata.etag"]
    before = await others(db)
    for place in ("a", "b"):
        mark = {"state": state, "move": move, "other": ["Marked", place, "marked_001"], "etag": etag}
        await plant(db, KINDS[state], mark, name="forged")
        await act_on_forged(db, way)
        if way != "audit":  # which ends the move of the victim, too
            assert await others(db) == before
    await work(db, Marked)
    await check_ann(db, "a" if (writes, way) == (TENTATIVE, "audit") else "b")  # the audit has ended that move


@pytest.mark.parametrize("source", ["a", "evil"])
async def test_a_forged_command_does_not_delete_a_tentative_row(
    db: Database, network: FaultyStore, source: str
) -> None:
    """
    A worker that gets a forged command with the id of a move leaves its tentative row alone as long as the move can be
    committed: or the entity would be gone with it.
    """
    handler = handler_of(db, Marked)

    async def forge() -> None:
        mark = mark_of(await db.store.get("Marked", "a", "marked_001"))
        assert mark is not None
        command = MoveCommand(
            move=mark.move,
            kind="Marked",
            source=RowAddress("Marked", source, "marked_001"),
            etag="x",
            to_kind="Marked",
            target=RowAddress("Marked", "b", "marked_001"),
            fields={},
        )
        assert mark_of(await db.store.get("Marked", "b", "marked_001")) is not None
        with suppress(TableOrmError):
            await handler.work(command.to_message())
        forged.append(command)

    async def forge_after_the_next_write() -> None:
        network.meanwhile = forge

    forged = list[MoveCommand]()
    ann = await db.get(Marked, dep="a", id=1)
    network.meanwhile = forge_after_the_next_write
    with suppress(TableOrmError):
        await db.move(ann, dep="b")
    assert forged
    await work(db, Marked)
    await check_ann(db, "a" if source == "a" else "b")


@pytest.mark.parametrize(("state", "way"), every(13, product(MoveState, WAYS)))
async def test_the_manifest_of_a_marker_row_is_not_believed(db: Database, state: MoveState, way: str) -> None:
    """
    Who may write but one row of a partition cannot have index entries and counts of others there deleted or changed by
    the manifest of a marker row.
    """
    await db.insert(Marked(dep="evil", id=2, name="bo"))
    manifest = json.dumps({"by_name": "name_bo", "counted": {"add": ["team", {"size": 1}]}})
    mark = {"state": state, "move": "m", "other": ["Marked", "evil", "marked_009"], "etag": "x"}
    if state is MoveState.FORWARD:  # and the row that makes others delete it
        confirmed = {"state": "confirmed", "move": "m", "other": ["Marked", "evil", "marked_001"]}
        await write_row(db, "Marked", "evil", "marked_009", EntityType="Marked", _mv=json.dumps(confirmed))
    await plant(db, KINDS[state], mark, _ix=manifest)
    entry = await db.store.get("Marked", "evil", "name_bo")
    if state is MoveState.FORWARD and way == "save":
        found = await db.get(Marked, dep="evil", id=9)
        found.name = "changed"
        with suppress(TableOrmError):
            await db.save(found)
    else:
        await act_on_forged(db, way)
    assert await db.store.get("Marked", "evil", "name_bo") == entry
    assert (await db.get(Team, dep="evil")).size >= 1


def mark_of_nobody(**more: Any) -> dict[str, Any]:
    return {"state": "tentative", "move": "m", "other": ["Nowhere", "a", "b"], **more}


INSERTS: dict[str, Callable[[Database, Marked | Secret], Awaitable[object]]] = {
    "upsert": lambda db, entity: db.upsert(entity),
    "upsert by replacing": lambda db, entity: db.upsert(entity, mode="replace"),
    "get_or_insert": lambda db, entity: db.get_or_insert(entity),
    "modify": lambda db, entity: db.modify(entity.key, lambda each: None, create=entity),
}


@pytest.mark.parametrize("way", INSERTS)
async def test_a_row_of_a_re_key_that_nobody_ends_is_told_of_at_once(db: Database, pauses: list[int], way: str) -> None:
    """
    A tentative row that only a re-key could remove is in the way of an entity: the write does not wait for anybody, and
    says what to do. Once the row is deleted, it succeeds.
    """
    await plant(db, "Marked#_tentative", mark_of_nobody(stays=True))

    with pytest.raises(EntityExists, match=r"being moved.*if no re-key of the table.*delete the row"):
        await INSERTS[way](db, Marked(dep="evil", name="x"))

    assert pauses == []
    await db.delete(PropertyBag.key("Marked", "evil", "marked_001"), if_match="*")
    await INSERTS[way](db, Marked(dep="evil", name="x"))
    assert await db.exists(FORGED)


@pytest.mark.parametrize("way", ["get_or_insert", "modify"])
@pytest.mark.parametrize("stays", [False, True])
async def test_a_tentative_row_of_a_model_that_is_never_moved_is_told_of_at_once(
    db: Database, pauses: list[int], way: str, stays: bool
) -> None:
    """Entities of a model that is not tracked are not moved, and nobody removes such a row: no write waits for it."""
    row = {"PartitionKey": "evil", "RowKey": "secret", "EntityType": "Secret#_tentative"}
    row["_mv"] = json.dumps(mark_of_nobody(stays=stays))
    await insert_row(db, "Secrets", row)

    with pytest.raises(EntityExists, match="an entity is being moved to or from that key"):
        await INSERTS[way](db, Secret(owner="evil", text="x"))

    assert pauses == []
