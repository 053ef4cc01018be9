"""
Audits of eventual indexes: entries in other partitions and tables, and decision rows that were left.
"""

import datetime as dt
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tableorm import AuditReport, Damage, Database, Entity, Mapped
from tableorm.audit import decisions
from tableorm.connection.connection import connection_of
from tableorm.connection.rows import time_of
from tableorm.outbox.decision import settle_decision
from tableorm.stores import CLOCK, Row, Verb
from tableorm.testing.contract.base import everything
from tests.audit.foreign import send
from tests.databases import memory_database
from tests.outbox.network import connected
from tests.outbox.staff import MODELS, Person, committed_decisions, extra_entries, members_of, wrong_entries

HOUR, SECOND = dt.timedelta(hours=1), dt.timedelta(seconds=1)


@pytest.fixture
async def db(stopped_clock: None) -> AsyncIterator[Database]:
    async with memory_database(*MODELS) as db:
        await db.insert(Person(team="red", id=1, name="Ann", city="Oslo"))
        await db.insert(Person(team="red", id=2, name="", city=None))
        await db.insert(Person(team="blue", id=1, name="Bo", city="Oslo"))
        yield db


ENTRY = {"PartitionKey": "city_Oslo", "RowKey": "at_red_001"}
ANN = {"PartitionKey": "red", "RowKey": "person_001"}
ORPHAN = {**ENTRY, "RowKey": "at_red_009", "EntityType": "Person#by_city"}


async def repair(db: Database) -> AuditReport:
    return await db.audit(Person, repair=True)


async def test_what_is_right(db: Database) -> None:
    """Entities, entries of both tables and a list are checked, and nothing is found."""
    report = await db.audit(Person)

    assert (report.entities, report.derived_rows, report.found) == (3, 5, 0) and report.clean


DAMAGES: dict[str, tuple[str, Verb, Row, Damage]] = {
    "an entry has no entity": (
        "Cities",
        Verb.INSERT,
        {**ORPHAN, "_of": '["Crew","red","person_009"]', "_v": "x"},
        Damage.ORPHAN,
    ),
    "an entry is in a wrong place": (
        "Cities",
        Verb.INSERT,
        {**ORPHAN, "_of": '["Crew","red","person_001"]', "_v": "x"},
        Damage.ORPHAN,
    ),
    "an entity was changed by others": ("Crew", Verb.MERGE, {**ANN, "city": "Rome"}, Damage.MISSING),
    "an entity lost its manifest": ("Crew", Verb.MERGE, {**ANN, "_ix": "{}"}, Damage.MANIFEST),
    "an entity was deleted by others": ("Crew", Verb.DELETE, ANN, Damage.ORPHAN),
    "an entry is that of another table": (
        "Cities",
        Verb.INSERT,
        {**ORPHAN, "_of": '["Archive","red","person_009"]', "_v": "x"},
        Damage.FOREIGN,
    ),
    "an entry names nobody": ("Cities", Verb.INSERT, {**ORPHAN, "_of": "person_009"}, Damage.FOREIGN),
}


@pytest.mark.one_of(3)
@pytest.mark.parametrize("what", DAMAGES)
async def test_damage(db: Database, what: str) -> None:
    """It is found, repaired and then gone; only what names no entity is left."""
    table, verb, row, damage = DAMAGES[what]
    await send(db, table, verb, row)
    found = await db.audit(Person)
    assert damage in {each.damage for each in found.findings} and not found.clean
    assert {each.model for each in found.findings} == {"Person"}

    repaired = await repair(db)
    assert repaired.counts == found.counts
    assert repaired.clean == (damage is not Damage.FOREIGN)
    again = await db.audit(Person)
    assert again.found == (damage is Damage.FOREIGN)
    assert await wrong_entries(db.store) == []
    assert await committed_decisions(db.store) == []
    assert damage is Damage.FOREIGN or await extra_entries(db.store) == set()


@pytest.mark.parametrize("team", ["red", ""])
async def test_an_entry_of_an_entity_that_is_gone_is_reported_under_the_key_of_that(db: Database, team: str) -> None:
    """The finding has the keys that the entry names, also an empty PartitionKey."""
    await send(db, "Cities", Verb.INSERT, {**ORPHAN, "_of": f'["Crew","{team}","person_009"]', "_v": "x"})

    (finding,) = (await db.audit(Person)).findings

    assert (finding.damage, finding.partition_key, finding.row_key) == (Damage.ORPHAN, team, "person_009")


async def test_a_row_in_the_place_of_an_entry(db: Database) -> None:
    """A row of another kind is reported, and never touched."""
    await send(db, "Cities", Verb.REPLACE, {**ENTRY, "EntityType": "Place"})
    report = await repair(db)

    (finding,) = report.findings
    assert (finding.damage, finding.repaired) == (Damage.BLOCKED, False)
    assert "a row of kind 'Place' is at ('city_Oslo', 'at_red_001') of table Cities" in finding.problem


async def begin(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Change an entity, and die after the commit."""

    async def die(*_: Any) -> None:
        raise RuntimeError("dead")

    ann = await db.get(Person, team="red", id=1)
    ann.city = "Rome"
    with monkeypatch.context() as patch:
        patch.setattr(type(Person.__schema__.derived["by_city"]), "reconcile", die)
        await db.save(ann)


async def test_what_is_under_way_is_not_damage(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a decision row names is being made right, until that takes too long."""
    await begin(db, monkeypatch)
    (row,) = [each for each in await everything(db.store, "Crew") if each.get("State") == "committed"]
    for age in (SECOND, HOUR):
        CLOCK.freeze(time_of(row, "a decision row") + age)
        assert (await repair(db)).found == 0
    assert len(await committed_decisions(db.store)) == 1
    CLOCK.advance(SECOND)
    assert (await db.audit(Person)).counts == {"unfinished": 1}

    CLOCK.advance(HOUR)
    report = await db.audit(Person)
    assert [each.damage for each in report.findings] == [Damage.UNFINISHED]
    said = "a change of Person was committed 2 hours ago, and its pending work has not been done since"
    assert report.findings[0].problem == said
    assert (report.findings[0].repaired, report.clean) == (False, False)
    assert len(await committed_decisions(db.store)) == 1

    assert (await repair(db)).clean
    assert await committed_decisions(db.store) == []
    assert await wrong_entries(db.store) == []
    assert (await db.audit(Person)).found == 0


async def test_what_workers_have_given_up(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their last error is said."""
    await begin(db, monkeypatch)
    (left,) = [row for row in await everything(db.store, "Crew") if row.get("State") == "committed"]
    keys = {name: left[name] for name in ("PartitionKey", "RowKey")}
    await send(db, "Crew", Verb.MERGE, {**keys, "Error": "Conflict: the disk is full", "Tries": 9})
    CLOCK.advance(2 * HOUR)
    (finding,) = (await db.audit(Person)).findings

    assert finding.problem.endswith("since; workers have given up (Conflict: the disk is full)")


async def test_decision_rows_without_end(
    db: Database, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Only so many are looked through for each entity with damage; beyond that it is undecided until they are gone."""
    await db.insert(Person(team="red", id=5, city="Oslo"))
    await send(db, "Cities", Verb.DELETE, {**ENTRY, "RowKey": "at_red_005"})
    await begin(db, monkeypatch)
    with monkeypatch.context() as patch:
        patch.setattr(decisions, "_MOST_DECISIONS", 1)
        report = await repair(db)
    assert (report.found, report.clean) == (0, False)
    said = [each for each in caplog.records if each.name == "tableorm.audit"]
    assert report.undecided == len(said) >= 1
    assert said[0].getMessage() == (
        "a row of table Crew is left undecided: partition 'red' of table Crew has at least 1 decision rows, "
        "too many to diagnose; let a worker carry them out, and audit again"
    )
    assert said[0].exc_info is not None

    report = await repair(db)
    assert [each.damage for each in report.findings] == [Damage.MISSING]
    assert report.clean


async def test_unfinished_work_that_fails(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Why a repair fails is said, and the decision row stays."""
    await begin(db, monkeypatch)
    await send(db, "Cities", Verb.INSERT, {**ENTRY, "PartitionKey": "city_Rome", "EntityType": "Place"})
    CLOCK.advance(2 * HOUR)
    report = await repair(db)

    refused = [each.refused for each in report.findings if each.damage is Damage.UNFINISHED]
    assert "EntityExists: Person.by_city: the entry of" in str(refused)
    assert len(await committed_decisions(db.store)) == 1


@pytest.mark.parametrize("repair", [False, True])
@pytest.mark.parametrize(
    ("work", "says"),
    [("nonsense", "Work or Progress cannot be read"), ('{"format":99,"works":[]}', "leave it to a newer program")],
    ids=["damaged", "newer"],
)
async def test_a_decision_row_that_cannot_be_read(db: Database, work: str, says: str, repair: bool) -> None:
    """It is reported, whether it was damaged or written by a newer program, and stays."""
    row = {
        "PartitionKey": "red",
        "RowKey": "~o_------------",
        "EntityType": "#_decision",
        "State": "committed",
        "Work": work,
    }
    await send(db, "Crew", Verb.INSERT, row)
    CLOCK.advance(2 * HOUR)

    report = await db.audit(Person, repair=repair)

    (finding,) = report.findings
    assert (finding.damage, finding.address, finding.repaired) == (Damage.UNFINISHED, "~o_------------", False)
    assert finding.problem.startswith("the decision row cannot be worked on: ")
    assert finding.refused is not None and finding.refused in finding.problem and says in finding.refused
    assert len(await committed_decisions(db.store)) == 1


async def test_void_decision_rows_go_after_a_day(db: Database) -> None:
    """Then no late request of their change can arrive any more."""
    await settle_decision(connection_of(db), "Crew", "red", "token_of_nobody")

    async def voids() -> list[Row]:
        return [row for row in await everything(db.store, "Crew") if row.get("State") == "void"]

    (row,) = await voids()
    CLOCK.freeze(time_of(row, "a decision row") + 24 * HOUR)
    assert (await repair(db)).found == 0
    assert await voids() == [row]
    CLOCK.advance(SECOND)
    assert (await db.audit(Person)).found == 0
    assert await voids() == [row]
    assert (await repair(db)).found == 0
    assert await voids() == []


async def test_an_index_that_is_built(db: Database) -> None:
    """Entities that were there before the index get their entries, more than fit into a transaction too."""
    for number in range(130):
        row = {
            "PartitionKey": "old",
            "RowKey": f"person_{number:03d}",
            "EntityType": "Person",
            "name": "",
            "city": "Bonn",
        }
        await send(db, "Crew", Verb.INSERT, row)
    report = await db.build_index(Person.by_city)

    assert report.complete and report.written == 130
    assert await wrong_entries(db.store) == []
    assert await extra_entries(db.store) == set()
    assert await committed_decisions(db.store) == []


class Older(Entity, table="Crew", partition_key="{team}", row_key="person_{id:03d}", kind="Person", tracked=True):
    team: Mapped[str]
    id: Mapped[int]


async def test_an_index_that_is_not_declared_any_more(db: Database) -> None:
    """Its entries are found by the manifests, and deleted, in whichever table they are."""
    async with connected(db.store) as older:
        report = await older.audit(Older)
        assert {each.damage for each in report.findings} == {Damage.UNDECLARED, Damage.ORPHAN}
        assert (await older.audit(Older, repair=True)).clean
        assert (await older.audit(Older)).found == 0
    (people,) = await everything(db.store, "Cities")
    assert members_of([people]) == {}


async def test_an_index_of_a_newer_program(db: Database) -> None:
    """What newer entities have in other partitions is theirs: an older program reports none of it, and deletes none."""
    for team, number in (("red", 1), ("red", 2), ("blue", 1)):
        keys = {"PartitionKey": team, "RowKey": f"person_{number:03d}"}
        await send(db, "Crew", Verb.MERGE, {**keys, "EntityType": "Person:2"})
    before = [await everything(db.store, table) for table in ("Crew", "Cities")]
    async with connected(db.store) as older:
        report = await older.audit(Older, repair=True)

    assert (report.entities, [str(each) for each in report.findings]) == (3, [])
    assert [await everything(db.store, table) for table in ("Crew", "Cities")] == before


NEW = {"PartitionKey": "new", "RowKey": "entry", "EntityType": "Person#by_new"}
ANN_KEY = '["Crew","red","person_001"]'
HERE = '{"by_new":{"at":["new","entry","Crew"]}}'


@pytest.mark.parametrize(
    ("owner", "members", "found"),
    [
        (ANN_KEY, {"EntityType": "Person:2", "_ix": HERE}, set[str]()),
        (ANN_KEY, {"EntityType": "Person", "_ix": HERE}, {"orphan", "undeclared"}),
        (ANN_KEY, {"EntityType": "Person:2", "_ix": HERE.replace("new", "other")}, {"orphan"}),
        (ANN_KEY, {"EntityType": "Person:2", "_ix": '{"by_new":{"at":["new","other","Crew"]}}'}, {"orphan"}),
        (ANN_KEY, {"EntityType": "Person:2", "_ix": '{"by_new":"entry"}'}, {"missing", "orphan"}),
        (ANN_KEY.replace("Crew", "Cities"), {"EntityType": "Person:2", "_ix": HERE}, {"orphan"}),
        (ANN_KEY.replace("red", "gone"), {"EntityType": "Person:2", "_ix": HERE}, {"orphan"}),
        ("person_009", {"EntityType": "Person:2", "_ix": HERE}, {"orphan"}),
    ],
)
async def test_an_entry_that_a_newer_entity_names(
    db: Database, owner: str, members: dict[str, Any], found: set[str]
) -> None:
    """Of an index that is not known, an entry is left alone only if the manifest of a newer entity names its place."""
    await send(db, "Crew", Verb.INSERT, {**NEW, "_of": owner})
    await send(db, "Crew", Verb.MERGE, {**ANN, **members})
    for team, row_key in (("red", "person_002"), ("blue", "person_001")):
        await send(db, "Crew", Verb.DELETE, {"PartitionKey": team, "RowKey": row_key})
    for row in await everything(db.store, "Crew"):
        if row.get("EntityType") == "Person#by_name":
            await send(db, "Crew", Verb.DELETE, {name: row[name] for name in ("PartitionKey", "RowKey")})
    async with connected(db.store) as older:
        report = await older.audit(Older)

    assert ({str(each.damage) for each in report.findings}, report.undecided) == (found, 0)
    assert {each.address for each in report.findings} == ({"entry"} if found else set())
