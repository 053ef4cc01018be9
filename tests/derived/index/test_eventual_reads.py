"""
Reading by an eventual index: an entry counts only if its entity says so, whatever the entry itself holds.

Entities and entries are written here row by row, so that entries can be old, left over or missing.
"""

import datetime as dt
import pickle
from collections.abc import AsyncIterator, Awaitable
from typing import Any

import pytest

from tableorm import (
    AccessDenied,
    Database,
    DecodeError,
    Entity,
    EntityNotFound,
    Expression,
    Index,
    Mapped,
    ModelError,
    NotLoaded,
    PreconditionFailed,
    PropertyBag,
    RowKey,
    ScanRefused,
    Select,
    Timestamp,
    WrongKind,
    field,
    upgrade,
)
from tableorm.derived.index.eventual import EventualIndexSchema
from tableorm.models.derivation import row_schemas
from tableorm.models.entity import schema_of
from tableorm.stores import Row
from tableorm.testing import assert_requests
from tests.databases import memory_database
from tests.rows import delete_row, put_row


class Person(Entity, table="ReadPersons", partition_key="{team}", row_key="id_{id:03d}", version=2):
    team: Mapped[str]
    id: Mapped[int]
    city: Mapped[str | None] = field(default=None)
    age: Mapped[int] = field(default=0)
    name: Mapped[str] = field(default="", name="FullName")

    by_city = Index(partition_key="city_{city}", row_key="in_{team}_{id:03d}", consistency="eventual")
    by_age = Index(
        table="ReadAges",
        partition_key="ages",
        row_key="{age:03d}_{team}_{id:03d}",
        consistency="eventual",
        include=["name"],
        where=lambda person: person.age >= 18,
    )
    by_name = Index(table="ReadNames", row_key="{name}_{id:03d}", consistency="eventual", include="keys")


@upgrade(Person, from_version=1)
def town_to_city(bag: PropertyBag) -> PropertyBag:
    bag["city"] = bag.pop("town", None)
    return bag


INDEXES: dict[str, Any] = {"by_city": Person.by_city, "by_age": Person.by_age, "by_name": Person.by_name}


def entries_of(name: str) -> EventualIndexSchema:
    (found,) = row_schemas(INDEXES[name])
    assert isinstance(found, EventualIndexSchema)
    return found


async def store_row(db: Database, table: str, row: Row) -> None:
    await put_row(db, table, row)


def row_of(person: Person) -> Row:
    schema, own = schema_of(Person), person.__dict__
    return schema.encode(own, *schema.make_keys(own))[0] | {"_w": "TOKEN0000000"}


async def store_person(db: Database, person: Person) -> None:
    """Write the row of a person, and nothing else."""
    await store_row(db, "ReadPersons", row_of(person))


async def store_entry(db: Database, name: str, person: Person, **changed: Any) -> None:
    """Write the entry that a person has, or had, in an index; with some properties changed."""
    rows = entries_of(name)
    place = rows.place(person.__dict__)
    assert place is not None
    await store_row(db, place.table, rows.entry_row(person.__dict__, row_of(person), place, "TOKEN0000000") | changed)


async def store_all(db: Database, person: Person) -> None:
    """Write the row of a person, and all entries that it has."""
    await store_person(db, person)
    for name in INDEXES:
        if entries_of(name).place(person.__dict__) is not None:
            await store_entry(db, name, person)


ANN = Person(team="a", id=1, city="Bern", age=40, name="Ann")
BEN = Person(team="b", id=1, city="Bern", age=30, name="Ben")
CID = Person(team="a", id=2, city="Bern", age=50, name="Cid")
DAN = Person(team="a", id=3, city="Ulm", age=17, name="Dan")
EVE = Person(team="b", id=2, age=60, name="Eve")


@pytest.fixture
async def db() -> AsyncIterator[Database]:
    """Five persons; one is in no city, and one is too young to be in the index of ages."""
    async with memory_database(Person) as opened:
        for person in (ANN, BEN, CID, DAN, EVE):
            await store_all(opened, person)
        yield opened


def in_bern(db: Database) -> Select[Person]:
    return db.select(Person.by_city).where(Person.city == "Bern")


def unverified(db: Database) -> Select[Person]:
    return in_bern(db).verify(False)


@pytest.mark.parametrize("verified", [True, False])
async def test_each_way_of_reading(db: Database, *, verified: bool) -> None:
    """All find the same entities in the order of the index, with or without a look at the entities themselves."""
    query = in_bern(db).verify(verified)

    assert await query.all() == [ANN, CID, BEN]
    assert await query.first() == ANN
    assert await query.limit(2).all() == (await query.page(2)).items == [ANN, CID]
    unordered = await query.unordered().all()
    assert len(unordered) == await query.count() == 3 and all(each in unordered for each in (ANN, BEN, CID))
    assert await query.exists()


async def test_entities_of_different_partitions_come_in_the_order_of_the_index(db: Database) -> None:
    """Several partitions of entities are one range of the index, and what the index does not hold is read."""
    ages = db.select(Person.by_age).where(Person.age >= 30)
    assert [person.age for person in await ages.all()] == [30, 40, 50, 60]
    assert [person.city for person in await ages.all()] == ["Bern", "Bern", "Bern", None]
    assert await db.select(Person.by_name).where(Person.team == "a", Person.name == "Dan").one() == DAN


async def test_a_point_by_the_fields_of_the_index(db: Database) -> None:
    """`get` reads the entry and the entity, which has its ETag; without an entry there is nothing."""
    with assert_requests(db, 2):
        ben = await db.get(Person.by_city, city="Bern", team="b", id=1)
    assert ben == BEN
    assert ben.etag is not None
    with assert_requests(db, 1), pytest.raises(EntityNotFound, match=r"no Person.by_city of .*city='Ulm'"):
        await db.get(Person.by_city, city="Ulm", team="b", id=1)
    with assert_requests(db, 2):
        assert await db.exists(Person.by_name, team="a", name="Ann", id=1)


async def test_the_requests_of_a_query(db: Database) -> None:
    """The entries are asked for their addresses alone, and each leads to one read; unverified there is one request."""
    with assert_requests(db, 4) as seen:
        await in_bern(db).all()
    assert [request.operation for request in seen.requests] == ["query", "get", "get", "get"]
    assert in_bern(db).explain().requests[0].select == ("PartitionKey", "RowKey", "EntityType", "_of")
    with assert_requests(db, 2):
        await in_bern(db).first()  # no more entities than can be results
    with assert_requests(db, 1):
        await unverified(db).all()
    with assert_requests(db, 1):
        assert await unverified(db).count() == 3


STALE: dict[str, Row | None] = {
    "an entity that is gone": None,
    "an entity in another city": {"city": "Ulm"},
    "an entity in no city": {"city": None},
    "a row of another kind": {"EntityType": "Robot"},
    "a tentative row": {"EntityType": "Person#_tentative:2"},
    "a forward": {"EntityType": "Person#_forward"},
    "an index entry": {"EntityType": "Person#by_city:2"},
}


@pytest.mark.parametrize("case", STALE)
async def test_an_entry_without_its_entity_is_no_hit(db: Database, case: str) -> None:
    """Whatever is left of the entity, no verified read returns it; an unverified one tells what the entry holds."""
    changed, keys = STALE[case], {"PartitionKey": "a", "RowKey": "id_001"}
    if changed is None:
        await delete_row(db, "ReadPersons", keys)
    else:
        row = {name: value for name, value in (row_of(ANN) | changed).items() if value is not None}
        await store_row(db, "ReadPersons", row)

    assert await in_bern(db).all() == [CID, BEN]
    assert await in_bern(db).count() == 2
    assert await in_bern(db).first() == CID
    assert not await db.exists(Person.by_city, city="Bern", team="a", id=1)
    assert await db.get_or_none(Person.by_city, city="Bern", team="a", id=1) is None
    assert await in_bern(db).only(Person.age).count() == 2
    assert await unverified(db).all() == [ANN, CID, BEN]


async def test_a_condition_of_the_index_counts_at_the_time_of_the_read(db: Database) -> None:
    """An entity that `where=` of the index does not take any more is no hit, although its key is the same."""
    rows = entries_of("by_age")
    child = Person(team="c", id=9, age=12, name="Kid")
    grown = child.evolve(age=18)
    await store_entry(db, "by_age", grown)
    await store_person(db, child)
    ages = db.select(Person.by_age).where(Person.age == 18)
    assert rows.place(child.__dict__) is None
    assert await ages.all() == []
    assert await ages.only(Person.name).all() == []
    assert await ages.verify(False).count() == 1
    await store_person(db, grown)
    assert await ages.only(Person.name).all() == [grown]


async def test_conditions_are_asked_of_the_entities(db: Database) -> None:
    """An entry of an earlier version may satisfy a condition that its entity does not."""
    await store_person(db, ANN.evolve(age=41))
    query = in_bern(db).where(Person.age == 40)
    assert await query.all() == []
    assert await query.verify(False).all() == [ANN]
    await store_entry(db, "by_age", ANN)
    either = db.select(Person.by_age).where((RowKey == "x") | (Person.name == "Ann")).verify(False)
    assert [each.id for each in await either.all()] == [1]


@pytest.mark.parametrize(
    ("name", "condition", "field_name"),
    [
        ("by_city", (RowKey == "x") | (Person.age == 40), "Person.age"),
        (
            "by_city",
            (RowKey == "x") | ~((Person.age != 40) | (Timestamp > dt.datetime(2024, 1, 1, tzinfo=dt.UTC))),
            "Person.age",
        ),
        ("by_age", (RowKey == "x") | (Person.name == "Ann"), "Person.name"),
        ("by_name", (RowKey == "x") | (Person.age == 40), "Person.age"),
    ],
)
async def test_a_condition_on_an_entry_and_its_entity_at_once_is_refused(
    db: Database, name: str, condition: Expression, field_name: str
) -> None:
    """The field may be older in the entry, and the RowKey of the entity is another one."""
    await store_person(db, ANN.evolve(age=41, name="Anna"))
    query = db.select(INDEXES[name]).where(condition).allow_scan()
    for call in (query.all, query.count, query.explain):
        with pytest.raises(
            ModelError,
            match=rf"combines what the entries of Person\.{name} store with {field_name}, .* hold; use",
        ):
            answer = call()
            if isinstance(answer, Awaitable):
                await answer


async def test_a_condition_on_keys_and_what_they_tell(db: Database) -> None:
    """The keys of an entry say the same of its entity, so they may be mixed; without a verification all fields may."""
    await store_person(db, ANN.evolve(age=41))
    assert await in_bern(db).where((RowKey == "in_b_001") | (Person.id == 2)).all() == [CID, BEN]
    assert await in_bern(db).where(RowKey < "in_b", Person.age == 40).all() == []
    assert await unverified(db).where((RowKey == "in_b_001") | (Person.age == 40)).all() == [ANN, BEN]


async def test_an_entity_that_was_not_verified(db: Database) -> None:
    """It has the keys of the entity and no ETag, and its first write reads the row."""
    ann = await unverified(db).where(Person.team == "a", Person.id == 1).one()
    assert ann.etag is None
    assert ann.timestamp is None
    assert ann.key == Person.key_of("a", "id_001")
    ann.name = "Anna"
    await db.save(ann)
    assert (await db.get(Person, team="a", id=1)).name == "Anna"
    assert ann.etag is not None


async def test_what_an_entry_does_not_hold_is_not_loaded(db: Database) -> None:
    """Unverified reads have the fields of `include=` and of both keys; conditions on others are rejected."""
    query = db.select(Person.by_age).where(Person.age == 40).verify(False)
    ann = await query.one()
    assert (ann.name, ann.age, ann.team, ann.id) == ("Ann", 40, "a", 1)
    with pytest.raises(NotLoaded, match="city"):
        _ = ann.city
    with pytest.raises(ModelError, match=r"Person.city == 'Bern' is rejected: the entries of Person.by_age do not"):
        await query.where(Person.city == "Bern").all()


async def test_some_fields_of_each_entity(db: Database) -> None:
    """`only` asks the entities for these fields, and for those by which their entries are checked."""
    ann = await in_bern(db).only(Person.age).first()
    assert ann is not None
    assert (ann.age, ann.city, ann.id) == (40, "Bern", 1)
    with pytest.raises(NotLoaded, match="name"):
        _ = ann.name
    plan = in_bern(db).only(Person.age).explain()
    assert plan.fetches_primaries
    assert plan.primary_select is not None
    assert {"age", "city"} <= set(plan.primary_select)
    assert "FullName" not in plan.primary_select


async def test_pages_go_on_behind_an_entry(db: Database) -> None:
    """Cursors hold keys of the index, also behind entries that are no hits."""
    await store_person(db, CID.evolve(city="Ulm"))
    pages = [page async for page in in_bern(db).pages(1)]
    assert [person for page in pages for person in page.items] == [ANN, BEN]
    async with in_bern(db).stream() as stream:
        async for _ in stream:
            break
        cursor = stream.cursor
    async with in_bern(db).stream(cursor) as stream:
        assert [person async for person in stream] == [BEN]


async def test_queries_are_divided_united_and_pickled(db: Database) -> None:
    """An index of other partitions is a range of keys as any other, and `verify(False)` stays with the query."""
    parts = in_bern(db).split(3)
    assert [person for part in parts for person in await part.all()] == [ANN, CID, BEN]
    ulm = db.select(Person.by_city).where(Person.city == "Ulm")
    assert await db.union(in_bern(db), ulm).all() == [ANN, CID, BEN, DAN]
    await store_person(db, ANN.evolve(city="Ulm"))
    again: Select[Person] = pickle.loads(pickle.dumps(unverified(db))).bind(db)
    assert str(again).endswith(".verify(False)>")
    assert await again.count() == 3
    assert await again.verify(True).count() == 2


async def test_what_a_query_finds_is_deleted(db: Database) -> None:
    """Entities are deleted, and an entry that is no hit deletes nothing."""
    await store_person(db, CID.evolve(city="Ulm"))
    report = await in_bern(db).delete()
    assert report.written == 2
    assert await db.get_or_none(Person, team="a", id=1) is None
    assert await db.get_or_none(Person, team="a", id=2) is not None


async def test_an_entity_of_an_older_version(db: Database) -> None:
    """It is upgraded before its entry is checked, and read in full for that; an old entry leads to it."""
    old = {name: value for name, value in row_of(ANN).items() if name != "city"}
    await store_row(db, "ReadPersons", old | {"EntityType": "Person", "town": "Bern"})
    await store_entry(db, "by_city", ANN, EntityType="Person#by_city")
    for query in (in_bern(db), in_bern(db).only(Person.age), unverified(db)):
        assert [person.id for person in await query.where(Person.team == "a").all()] == [1, 2]


async def test_no_query_of_the_model_chooses_it(db: Database) -> None:
    """A query of the entities never reads an eventual index by itself; the refusal of a scan names it."""
    with pytest.raises(ScanRefused, match=r"query the index instead, db.select\(Person.by_city\), or .allow_scan\(\)"):
        await db.select(Person).where(Person.city == "Bern").all()
    plan = db.select(Person).where(Person.team == "a", Person.name == "Ann").explain()
    assert plan.path == "primary key"


@pytest.mark.parametrize("owner", ["id_001", '["a"]', '["a","id_001"]', "[1,2]", None, 7])
async def test_an_entry_that_names_no_entity(db: Database, owner: object) -> None:
    """The error names the index, its row, and what to do."""
    await store_entry(db, "by_city", ANN, _of=owner)
    for query in (in_bern(db), unverified(db)):
        with pytest.raises(DecodeError, match=r"Person.by_city.*_of.* audit --repair"):
            await query.all()
    with pytest.raises(DecodeError, match=r"Person.by_city.*_of"):
        await db.get(Person.by_city, city="Bern", team="a", id=1)


async def test_a_row_of_another_kind_at_the_key_of_an_entry(db: Database) -> None:
    """A point read says what is there; a query leaves it out."""
    await store_entry(db, "by_city", ANN, EntityType="Robot")
    with pytest.raises(WrongKind, match=r"is not an entry of Person.by_city: it has kind 'Robot'"):
        await db.get(Person.by_city, city="Bern", team="a", id=1)
    assert await in_bern(db).all() == [CID, BEN]


async def test_what_cannot_be_left_unverified(db: Database) -> None:
    """Keys alone lead nowhere without the entity, and entities themselves are never old."""
    untyped: Any = db
    for of, verified, message in (
        (Person.by_name, False, r"verify\(False\) is rejected for Person.by_name: its entries"),
        (Person, False, r"verify\(\) is rejected for Person: only entries of an eventual"),
        (Person.by_city, "no", r"verify\('no'\) is rejected: give True or False"),
    ):
        with pytest.raises(ModelError, match=message):
            untyped.select(of).verify(verified)


async def test_what_was_not_verified_is_deleted(db: Database) -> None:
    """A query that does not verify deletes entities that are as their entries say, and reports the others."""
    await store_person(db, CID.evolve(age=51))
    report = await unverified(db).delete()
    assert (report.written, report.failures) == (2, 1)
    assert isinstance(report.failed[0].error, PreconditionFailed)
    assert await db.select(Person).where(Person.team == "a").count() == 2


async def test_classes_that_declare_an_index_anew() -> None:
    """A condition is asked of the entity where the keys of a class's own index do not tell the field."""

    class Tool(Entity, table="ReadTools", abstract=True, partition_key="{shed}", row_key="{kind}_{id}"):
        shed: Mapped[str]
        id: Mapped[int]
        size: Mapped[int] = field(default=0)

        sized = Index(table="Sizes4", partition_key="all", row_key="{kind}_{size}_{shed}_{id}", consistency="eventual")

    class Saw(Tool):
        pass

    class Axe(Tool):
        sized = Index(table="Sizes4", partition_key="all", row_key="axe_{shed}_{id}", consistency="eventual")

    async with memory_database(Tool) as db:
        for tool in (Saw(shed="s", id=1, size=5), Axe(shed="s", id=2, size=5), Axe(shed="s", id=3, size=5)):
            await db.insert(tool)
        axe = schema_of(Axe)
        changed = Axe(shed="s", id=3, size=6)
        await store_row(db, "ReadTools", axe.encode(changed.__dict__, *axe.make_keys(changed.__dict__))[0])
        query = db.select(Tool.sized).where(Tool.size == 5).allow_scan()
        assert sorted(each.id for each in await query.all()) == [1, 2]


# Scopes


class Note(Entity, table="ReadNotes", partition_key="{tenant}", row_key="note_{id}"):
    tenant: Mapped[str]
    id: Mapped[str]
    day: Mapped[int] = field(default=0)

    by_day = Index(partition_key="day_{day:03d}", row_key="of_{tenant}_{id}", consistency="eventual")
    mine = Index(table="ReadNoteDays", row_key="{day:03d}_{id}", consistency="eventual")


async def test_a_scope_reads_what_the_keys_of_entries_tell() -> None:
    """A scope narrows a query of the index by the field in its keys, and no entry leads to an entity of others."""
    async with memory_database(Note) as db:
        for tenant in ("acme", "other"):
            await db.insert(Note(tenant=tenant, id="1", day=5))
        acme = db.scope(tenant="acme")
        for index in (Note.by_day, Note.mine):
            for verified in (True, False):
                found = await acme.select(index).where(Note.day == 5).verify(verified).all()
                assert [note.tenant for note in found] == ["acme"]
            assert (await acme.get(index, day=5, id="1")).tenant == "acme"
            with pytest.raises(AccessDenied):
                await acme.get(index, day=5, id="1", tenant="other")
        # A forged entry leads to a row of others, which does not yield its keys.
        await store_row(
            db,
            "ReadNoteDays",
            {
                "PartitionKey": "acme",
                "RowKey": "005_1",
                "EntityType": "Note#mine",
                "_of": '["ReadNotes","other","note_1"]',
            },
        )
        assert await acme.select(Note.mine).where(Note.day == 5).all() == []
        assert await acme.get_or_none(Note.mine, day=5, id="1") is None
        with pytest.raises(DecodeError, match="instead of the keys of what it holds"):
            await acme.select(Note.mine).where(Note.day == 5).verify(False).all()
