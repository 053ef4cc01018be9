"""
Encrypted fields: what is stored of them cannot be read or exchanged, and every verb and query works as without them.
"""

import hashlib
import pickle
import subprocess
import sys
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from tableorm import (
    Blob,
    BlobArchive,
    Database,
    DatabaseArchive,
    Embedded,
    EncodeError,
    Encryption,
    EncryptionError,
    Entity,
    Feed,
    Index,
    IndexList,
    KeyRing,
    LimitExceeded,
    Mapped,
    ModelError,
    MovedFrom,
    NotSupported,
    PropertyBag,
    Series,
    Sum,
    TransactionFailed,
    UniqueViolation,
    encrypted,
    field,
    series,
    upgrade,
)
from tableorm.cli import progress
from tableorm.cli.command_line import main
from tableorm.connection.connection import connection_of
from tableorm.models.manifest import UploadEntry
from tableorm.models.reserved import BLOB_FIELDS, METADATA
from tableorm.shapes.blob import content_of
from tableorm.shapes.encrypted import ContentKeys
from tableorm.stores import BlobStore, Row
from tableorm.writes.stages.change import insert_change
from tableorm.writes.stages.encode import encode_surely
from tableorm.writes.stages.execute import plan_writes
from tableorm.writes.stages.seal import sealed
from tableorm_migrations import plan_rekey, rewrite, run_rekey, verify_rekey
from tests.commandline import insert_all
from tests.databases import database_fixture, memory_database
from tests.rows import put_row

KEYS = {"old": bytes(range(32)), "new": bytes(range(32, 64))}
RING = KeyRing(KEYS, wrap_with="new")
ENCRYPTION = Encryption(RING)
OLDER = Encryption(KeyRing(KEYS, wrap_with="old"))
SECRET = 987654321
FORGED = {"salary": "5", "salary@odata.type": "Edm.Int64"}


class Counting:
    """A service that wraps keys, and counts how often it is asked."""

    def __init__(self) -> None:
        self.wrapped = self.unwrapped = 0

    async def wrap(self, key: bytes) -> tuple[str, bytes]:
        self.wrapped += 1
        return await RING.wrap(key)

    async def unwrap(self, key_id: str, wrapped: bytes) -> bytes:
        self.unwrapped += 1
        return await RING.unwrap(key_id, wrapped)


# Models


class Plain(Entity, partition_key="Oslo", row_key="{id:04d}", abstract=True):
    id: Mapped[int]


class Local(Entity, partition_key="{city}", row_key="{id:04d}", abstract=True):
    city: Mapped[str] = field(default="Oslo")
    id: Mapped[int]


class Person(Plain, table="SealedPeople", write_token=True):
    name: Mapped[str] = field(default="Ann")
    salary: Mapped[int] = encrypted(default=0)
    note: Mapped[str | None] = encrypted(default=None, name="Note")
    scan: Mapped[bytes] = encrypted(default=b"")


PERSON = Person.key(id=1)


class Worker(Plain, table="SealedWorkers"):
    level: Mapped[int] = field(default=1)
    salary: Mapped[int] = encrypted(default=0)

    by_level = Index(row_key="level_{level}_{id:04d}", include=["salary"])
    of_level = IndexList(row_key="list_{level}")
    all_of = Index(row_key="all_{level}_{id:04d}")
    keys_of = Index(row_key="keys_{level}_{id:04d}", include="keys")
    changes = Feed(keep=timedelta(days=1))


class Paid(Local, abstract=True):
    level: Mapped[int] = field(default=1)
    salary: Mapped[int] = encrypted(default=0)


class Staff(Paid, table="SealedStaff"):
    by_level = Index(row_key="level_{level}_{id:04d}", include=["salary"])


class Animal(Entity, table="SealedAnimals", partition_key="z", abstract=True):
    chip: Mapped[str] = encrypted()


class Cat(Animal, row_key="cat_{id}", version=2):
    id: Mapped[int]
    lives: Mapped[int] = encrypted(default=9)


class Dog(Animal, row_key="dog_{id}"):
    id: Mapped[int]
    plain: Mapped[str] = field(default="p")


@upgrade(Cat, from_version=1)
def _cat(bag: PropertyBag) -> PropertyBag:
    bag["chip"] = f"{bag.pop('tag')}!"
    return bag


class OldCat(Entity, table="SealedAnimals", partition_key="z", row_key="cat_{id}", kind="Cat"):
    id: Mapped[int]
    tag: Mapped[str] = encrypted()


class Year(Plain, table="SealedYears", wide=3):
    name: Mapped[str] = field(default="n")
    months: Series[int] = series(length=6, default=0)
    secret: Mapped[str | None] = encrypted(default=None)


db = database_fixture(Person, Worker, Staff, Cat, Dog, Year, encryption=ENCRYPTION)


async def rows_of(db: Database, table: str = "SealedPeople") -> dict[str, Row]:
    """Return all rows as they are stored, by RowKey."""
    return {bag.row_key: dict(bag.row) for bag in await db.select_raw(table).allow_scan().all()}


def without(row: Row, *names: str) -> Row:
    """Return a row without these properties and their types."""
    return {name: value for name, value in row.items() if name.partition("@")[0] not in names}


async def copy_rows(source: Database, target: Database, table: str = "SealedPeople") -> None:
    """Write all rows of a table into that of another database."""
    for row in (await rows_of(source, table)).values():
        await put_row(target, table, row)


async def test_every_reader_decrypts(db: Database) -> None:
    """Get, get_many, query, pages, stream, union, refresh, a bag beside, `only`; a bag alone has what is stored."""
    people = [Person(id=number, salary=number, note="n") for number in range(5)]
    async with db.bulk() as bulk:
        for person in people:
            await bulk.insert(person)
    query = db.select(Person)
    assert await query.all() == people
    assert (await query.page(2)).items == people[:2]
    assert [each async for each in query] == people
    assert await db.union(query, query).all() == [*people, *people]
    assert await db.get_many([each.key for each in people]) == people
    assert [each.salary for each in await query.only(Person.salary).all()] == [0, 1, 2, 3, 4]
    assert await db.select(Person, PropertyBag).allow_scan().all() == people
    other = await db.get(PERSON)
    other.salary = 9
    await db.save(other)
    await db.refresh(people[1])
    assert people[1] == other == pickle.loads(pickle.dumps(other))
    again: Person = pickle.loads(pickle.dumps(other))
    again.salary = 10
    await db.save(again)
    (part,) = await query.where(Person.id == 2).only(Person.name, Person.note).all()
    part.note = "other"
    await db.save(part)
    assert (await db.get(Person, id=2)) == Person(id=2, salary=2, note="other")
    bag = await db.get(PropertyBag.key("SealedPeople", "Oslo", "0001"))
    assert isinstance(bag["salary"], bytes)
    shown = "Person(id=1, name='Ann', salary=<encrypted>, note=<encrypted>, scan=<encrypted>)"
    assert repr(other) == shown
    assert (await query.where(Person.id > 2).delete()).written == 2


async def test_without_keys_the_plain_fields_are_read_and_written(db: Database) -> None:
    """By `only`; anything else says what to give to connect. Other keys say which one is needed."""
    await db.insert(Person(id=1, salary=SECRET))
    async with memory_database(Person) as bare:
        await copy_rows(db, bare)
        query = bare.select(Person)
        (found,) = await query.only(Person.name).all()
        assert found.name == "Ann"
        found.name = "Bea"
        await bare.save(found)
        for calling in (
            bare.get(PERSON),
            query.all(),
            query.only(Person.salary).all(),
            bare.insert(Person(id=2)),
            bare.upsert(Person(id=1)),
            bare.modify(PERSON, lambda each: each),
        ):
            with pytest.raises(EncryptionError, match=r"connect\(url, encryption=Encryption\(keys\)\)"):
                await calling
        with pytest.raises(TransactionFailed, match="Encryption"):
            async with bare.transaction() as tx:
                tx.insert(Person(id=3))
        await copy_rows(bare, db)
    assert await db.get(PERSON) == Person(id=1, salary=SECRET, name="Bea")
    old = KeyRing({"old": KEYS["old"]}, wrap_with="old")
    async with memory_database(Person, encryption=Encryption(old)) as other:
        await copy_rows(db, other)
        with pytest.raises(EncryptionError, match="needs the key 'new', and the KeyRing has old"):
            await other.get(PERSON)


async def test_whatever_is_changed_or_exchanged_shows(db: Database) -> None:
    """To every reader: a row under another key, values and metadata of others or of before, none, or plain values."""
    for number in (1, 2):
        await db.insert(Person(id=number, salary=number, note="n", scan=b"x"))
    first, second = (await rows_of(db)).values()
    person = await db.get(PERSON)
    person.salary = 5
    await db.save(person)
    newer = (await rows_of(db))["0001"]
    query = db.select(Person).where(Person.id == 1)

    async def refuses(row: Row) -> None:
        await put_row(db, "SealedPeople", {**row, "RowKey": "0001"})
        for calling in (
            db.get(PERSON),
            query.all(),
            query.only(Person.salary).all(),
            db.modify(PERSON, lambda each: each.evolve(name="x")),
        ):
            with pytest.raises(EncryptionError) as caught:
                await calling
            assert "'0001'" in str(caught.value)

    await refuses(second)
    await refuses({**first, METADATA: second[METADATA]})
    await refuses({**newer, "salary": first["salary"]})
    await refuses(without(first, METADATA))
    await refuses(without(first, "salary"))
    await refuses({**first, **FORGED})
    plain = without(first, METADATA, "Note", "scan")
    await refuses({**plain, **FORGED})
    await refuses(without(plain, "salary"))
    await put_row(db, "SealedPeople", newer)
    assert (await db.get(PERSON)).salary == 5


async def test_a_covering_index_is_encrypted_too(db: Database) -> None:
    """Under a key of its own, bound to the entry; what is exchanged between entries shows, also to the audit."""
    for number in range(3):
        await db.insert(Worker(id=number, salary=SECRET + number, level=2))
    worker = await db.get(Worker, id=1)
    worker.salary = SECRET + 10
    await db.save(worker)
    stored = await rows_of(db, "SealedWorkers")
    assert str(SECRET)[:-1] not in str(stored)
    for index in (Worker.by_level, Worker.all_of, Worker.keys_of):
        found = await db.select(index).where(Worker.level == 2).all()
        assert [each.salary - SECRET for each in found] == [0, 10, 2]
    found = await db.select(Worker.by_level).only(Worker.salary).all()
    assert [each.salary - SECRET for each in found] == [0, 10, 2]
    assert len(await db.lookup(Worker.of_level, level=2)) == 3
    assert [change async for change in db.changes(Worker)]
    entry = await db.get(Worker.by_level, level=2, id=2)
    entry.salary = SECRET + 20
    await db.save(entry)
    assert (await db.audit(Worker)).found == 0
    stored = await rows_of(db, "SealedWorkers")
    one, two = stored["level_2_0001"], stored["level_2_0002"]
    for spoilt in (
        {**one, "salary": two["salary"], METADATA: two[METADATA]},
        {**one, "salary": stored["all_2_0001"]["salary"], METADATA: stored["all_2_0001"][METADATA]},
        without(one, "salary", METADATA),
        {**one, **FORGED},
    ):
        await put_row(db, "SealedWorkers", spoilt)
        with pytest.raises(EncryptionError):
            await db.select(Worker.by_level).where(Worker.level == 2).all()
        assert (await db.audit(Worker)).found == 1
        assert (await db.audit(Worker, repair=True)).found == 1
        assert (await db.audit(Worker)).found == 0
    assert (await db.get(Worker.by_level, level=2, id=1)).salary == SECRET + 10
    await db.delete(entry)
    assert min(await rows_of(db, "SealedWorkers")) == "0000"
    assert (await db.audit(Worker)).found == 0
    await put_row(db, "SealedWorkers", {**stored["0000"], "salary": stored["0001"]["salary"]})
    (problem,) = (await db.audit(Worker)).findings
    assert "EncryptionError" in str(problem)


async def test_models_of_a_base_and_of_versions(db: Database) -> None:
    """Each has its own encrypted fields; an upgrade gets what an older version encrypted, under whatever name."""
    await db.insert(OldCat(id=1, tag="t"))
    await db.insert(Cat(id=2, chip="c2", lives=7))
    await db.insert(Dog(id=1, chip="d"))
    animals = await db.select(Animal).all()
    assert [each.chip for each in animals] == ["t!", "c2", "d"]
    old = await db.get(Cat, id=1)
    assert (old.chip, old.lives) == ("t!", 9)
    old.lives = 8
    await db.save(old)
    rows = await rows_of(db, "SealedAnimals")
    assert "t!" not in str(rows["cat_1"])
    assert {"tag", "plain"}.isdisjoint(rows["cat_1"])
    assert (await db.get(Cat, id=1)) == Cat(id=1, chip="t!", lives=8)


async def test_what_a_model_does_not_know_stays_encrypted(db: Database) -> None:
    """A property that a newer program encrypts is kept so by one that does not declare it, by a merge and a replace."""

    class Short(Plain, table="SealedPeople", kind="Person"):
        name: Mapped[str] = field(default="Ann")
        salary: Mapped[int | None] = encrypted(default=None)

    await db.insert(Person(id=1, salary=1, note=str(SECRET)))
    async with memory_database(Short, encryption=ENCRYPTION) as other:
        await copy_rows(db, other)
        short = await other.get(Short, id=1)
        assert short.extra["Note"] == str(SECRET)
        short.salary = 2
        await other.save(short)
        short.salary = None
        await other.save(short)
        await other.replace(short)
        await other.modify(Short, lambda each: each.evolve(salary=3), id=1)
        assert str(SECRET) not in str(await rows_of(other))
        await copy_rows(other, db)
    assert await db.get(PERSON) == Person(id=1, salary=3, note=str(SECRET))


class Hours(Plain, table="SealedHours"):
    name: Mapped[str] = field(default="n")
    worked: Series[int] = series(4, name="H{i:02d}", default=0, encrypted=True)

    by_name = Index(row_key="i_{name}_{id:04d}", include=["worked"])


async def test_each_slot_of_a_series_is_encrypted_by_itself(db: Database) -> None:
    """A save sends the slots that were changed, a projection reads one; no condition is about a slot."""
    await db.create_tables(Hours)
    hours = Hours(id=1, worked=[SECRET, 0, SECRET, 0])
    await db.insert(hours)
    before = (await rows_of(db, "SealedHours"))["0001"]
    assert str(SECRET) not in f"{hours} {await rows_of(db, 'SealedHours')}"
    assert before["H00"] != before["H02"]
    hours.worked[3] = 5
    await db.save(hours)
    await db.modify(Hours, lambda each: each.worked.__setitem__(1, 7), id=1)
    after = (await rows_of(db, "SealedHours"))["0001"]
    assert [after[name] == before[name] for name in ("H00", "H01", "H02", "H03")] == [True, False, True, False]
    query = db.select(Hours)
    assert (await query.one()).worked == [SECRET, 7, SECRET, 5]
    assert (await query.only(Hours.worked[3]).one()).worked[3] == 5
    entries = db.select(Hours.by_name).where(Hours.name == "n")
    assert (await entries.one()).worked == [SECRET, 7, SECRET, 5]
    assert (await entries.only(Hours.worked[3]).one()).worked[3] == 5
    with pytest.raises(EncryptionError, match=r"a condition on Hours.worked\[3\] is rejected"):
        await query.where(Hours.worked[3] == 5).all()
    for row in ({**after, "H00": after["H02"]}, {**after, "H03": before["H03"]}):
        await put_row(db, "SealedHours", row)
        with pytest.raises(EncryptionError):
            await query.all()
    with pytest.raises(ModelError, match="add encrypted=True"):
        series(4, default=0, accept_plain=True)


async def test_entities_are_moved_and_archived(db: Database) -> None:
    """To another key, another partition and another database, where they are encrypted anew."""
    staff = Staff(id=1, salary=SECRET)
    await db.insert(staff)
    before = (await rows_of(db, "SealedStaff"))["0001"]
    await db.move(staff, id=2)
    await db.move(await db.get(Staff, city="Oslo", id=2), city="Bergen")
    moved = await db.get(Staff, city="Bergen", id=2)
    assert moved == Staff(city="Bergen", id=2, salary=SECRET)
    after = (await rows_of(db, "SealedStaff"))["0002"]
    assert after["salary"] != before["salary"]
    assert await db.select(Staff.by_level).where(Staff.city == "Bergen").all() == [moved]
    assert (await db.audit(Staff)).found == 0
    async with memory_database(Staff, encryption=ENCRYPTION) as other:
        cold = DatabaseArchive("cold", Staff, lambda: nullcontext(other))
        await db.archive(moved, to=cold)
        async with db.worker(Staff, cold) as worker:
            await worker.drain()
        assert await db.get_or_none(Staff, city="Bergen", id=2) is None
        assert await other.get(Staff, city="Bergen", id=2) == moved


class Record(Local, table="SealedRecords"):
    name: Mapped[str] = field(default="n")
    scan: Mapped[Blob] = encrypted()

    by_name = Index(row_key="i_{name}_{id:04d}", include=["scan"])


async def test_blobs_are_encrypted(db: Database) -> None:
    """Neither their bytes nor a hash of these are stored; they stay where they are when the entity moves, or is
    replaced, or its content key is wrapped anew; and no row reads the blob of another one.
    """
    data = b"secret" * 20_000

    async def stored() -> dict[str, bytes]:
        names = [each.name for each in (await db.blobs.list_blobs(BLOB_FIELDS)).blobs]
        return {name: await db.blobs.read(BLOB_FIELDS, name) for name in names}

    await db.create_tables(Record)
    one, two = Record(id=1, scan=Blob(data, "image/png")), Record(id=2, scan=Blob(data))
    await db.insert(one)
    await db.insert(two)
    before = await stored()
    rows = await rows_of(db, "SealedRecords")
    for shown in (repr(one), *map(str, before.values()), str(rows)):
        for text in ("secret", "image/png", hashlib.sha256(data).hexdigest()):
            assert text not in shown
    assert one.scan.sha256 in {hashlib.sha256(each).hexdigest() for each in before.values()}
    assert len({*before.values()}) == 2

    await db.replace(one.evolve(name="new"))
    await db.move(await db.get(Record, city="Oslo", id=1), id=3)
    await db.move(await db.get(Record, city="Oslo", id=3), city="Bergen")
    connection_of(db).encryption = ContentKeys(OLDER)
    assert (await db.rewrap(Record)).written == 4
    assert await stored() == before
    moved = await db.get(Record, city="Bergen", id=3)
    (entry,) = await db.select(Record.by_name).where(Record.city == "Bergen", Record.name == "new").all()
    for each in (one, moved, entry):
        assert (await each.scan.read(), await each.scan.read(70_000, 6)) == (data, data[70_000:70_006])
    assert (await db.audit(Record)).clean

    own = UploadEntry.of(content_of(moved.scan).members.address).name
    await db.blobs.put(BLOB_FIELDS, own, before[own][:100])
    for start in (0, 119_000):
        with pytest.raises(EncryptionError, match=r"the blob of Record\.scan (is|has)"):
            await moved.scan.read(start)
    await db.blobs.put(BLOB_FIELDS, own, before[own])
    name, other = before
    connection_of(db).wrap_blobs(lambda store: cast("BlobStore", Exchanged(store, {name: other, other: name})))
    for each in (moved, two):
        for reading in (each.scan.read(), each.scan.read(5, 5), each.scan.read(70_000)):
            with pytest.raises(EncryptionError, match=r"the blob of Record\.scan has a chunk"):
                await reading
    row = (await rows_of(db, "SealedRecords"))["0002"]
    await put_row(db, "SealedRecords", {**row, "scan": rows["0001"]["scan"]})
    with pytest.raises(EncryptionError):
        await db.get(Record, city="Oslo", id=2)


async def test_a_blob_is_not_sent_without_keys(db: Database) -> None:
    """Nothing of it is stored."""
    async with memory_database(Record) as bare:
        with bare.observe() as seen, pytest.raises(EncryptionError, match="was opened without keys"):
            await bare.insert(Record(id=1, scan=Blob(b"secret")))
        assert seen.requests == []


class Exchanged:
    """Blobs that somebody has put under each other's names."""

    def __init__(self, store: object, names: dict[str, str]) -> None:
        self._store, self._names = store, names

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def get(self, container: str, name: str, *given: Any) -> Any:
        return self.__getattr__("get")(container, self._names[name], *given)


def test_what_must_see_an_encrypted_field_is_refused() -> None:
    """Keys, sums, copies, lists, plain entries and maintained fields, when the class is made."""
    keys: dict[str, Any] = {"table": "SealedPeople2"}

    with pytest.raises(ModelError, match=r"Keyed\.name can't be used by the key"):

        class Keyed(Entity, partition_key="p", row_key="{name:lower}", **keys):  # pyright: ignore[reportUnusedClass]
            name: Mapped[str] = encrypted()

    for declared in (
        Index(row_key="i_{name}_{id}"),
        IndexList(row_key="i_{name}"),
        Index(partition_key="all", row_key="i_{city}_{id}", include=["name"], consistency="eventual"),
        Sum("size", lambda: Total.total, city="{city}"),
        Embedded(lambda: Total, {"copied": "total"}, city="{name}"),
    ):
        with pytest.raises(ModelError, match=r"Held\.(name|size) can't be used by Held\.derived"):

            class Held(Local, **keys):  # pyright: ignore[reportUnusedClass]
                name: Mapped[str] = encrypted()
                size: Mapped[int] = encrypted()
                copied: Mapped[int | None] = field(default=None, maintained=True)
                derived = declared

    with pytest.raises(ModelError, match=r"Counted\.count = field\(maintained=True\) is rejected"):

        class Counted(Plain, **keys):  # pyright: ignore[reportUnusedClass]
            secret: Mapped[str] = encrypted()
            count: Mapped[int] = field(default=0, maintained=True)

    with pytest.raises(ModelError, match="which doesn't show which rows to decrypt"):

        class Told(Plain, row_key="t_{id}", discriminator="row_key", **keys):  # pyright: ignore[reportUnusedClass]
            secret: Mapped[str] = encrypted()

    with pytest.raises(ModelError, match=r"encrypted\(stored=...\) is rejected"):
        cast("Any", encrypted)(stored=True)
    with pytest.raises(ModelError, match="has encrypted fields, and its blobs are read without keys"):
        BlobArchive("people", Person)


class Total(Entity, table="SealedTotals", partition_key="{city}", row_key="t", tracked=True):
    city: Mapped[str]
    total: Mapped[int] = field(default=0, maintained=True)


async def test_no_condition_is_about_an_encrypted_field(db: Database) -> None:
    """Comparisons, ranges, texts, absence, and their negations, of a model, its base, its index and a count."""
    query, by_level = db.select(Person), db.select(Worker.by_level)
    for where in (
        Person.salary == SECRET,
        Person.salary > SECRET,
        ~(Person.salary == SECRET),
        Person.salary.in_([SECRET]),
        Person.note.is_none(),
        (Person.name == "Ann") | Person.note.startswith(str(SECRET)),
    ):
        for calling in (query.where(where).all, query.where(where).count, query.where(where).delete):
            with pytest.raises(EncryptionError, match=r"a condition on Person\.(salary|note) is rejected"):
                await calling()
    with pytest.raises(EncryptionError, match=r"a condition on Worker\.salary is rejected"):
        await by_level.where(Worker.salary == 5).all()
    with pytest.raises(EncryptionError, match=r"a condition on Animal\.chip is rejected"):
        await db.select(Animal).where(Animal.chip == "c").all()


@pytest.mark.parametrize("verb", ["insert", "save", "replace", "upsert"])
async def test_a_bulk_of_wide_entities_encrypts_what_it_sends(db: Database, verb: str) -> None:
    """What is measured before the keys are there stands for the rows that are sent, and is never sent itself."""
    years = [Year(id=number, secret="plain") for number in range(3)]
    if verb in ("save", "replace"):
        for year in years:
            await db.insert(year)
    async with db.bulk() as bulk:
        for year in years:
            year.secret = str(SECRET)
            await getattr(bulk, verb)(year)

    found = await db.select(Year).all()
    assert [each.secret for each in found] == [str(SECRET)] * 3
    assert str(SECRET) not in str(await rows_of(db, "SealedYears"))


async def test_a_bulk_leaves_encrypted_entities_that_are_there(db: Database) -> None:
    """Also where it looks for them one at a time, since others are between them, and by their kinds alone."""
    there = [Person(id=number, note="old") for number in (1, *range(10, 60), 90)]
    async with db.bulk() as bulk:
        for person in there:
            await bulk.insert(person)
    async with db.bulk() as bulk:
        for number in (1, 70, 90):
            await bulk.insert(Person(id=number, note="new"), exist_ok=True)

    assert (bulk.report.written, bulk.report.existing) == (1, 2)
    found = await db.select(Person).where(Person.id.in_([1, 70, 90])).all()
    assert [each.note for each in found] == ["old", "new", "old"]


async def test_a_rewrite_encrypts_wide_entities(db: Database) -> None:
    """It reads plain rows, and sends them by a bulk."""

    class Months(Plain, table="SealedYears", abstract=True):
        months: Series[int] = series(length=6, default=0)

    class Before(Months, kind="Year", wide=3):
        secret: Mapped[str | None] = field(default=None)

    class After(Months, kind="Year", wide=3):
        secret: Mapped[str | None] = encrypted(default=None, accept_plain=True)

    for number in range(3):
        await db.insert(Before(id=number, months=[number] * 6, secret=str(SECRET)))
    assert (await rewrite(db, After)).written == 3

    found = await db.select(After).all()
    assert [(each.secret, each.months[5]) for each in found] == [(str(SECRET), number) for number in range(3)]
    assert str(SECRET) not in str(await rows_of(db, "SealedYears"))


async def test_a_wide_row_that_no_key_has_encrypted_is_not_sent(db: Database) -> None:
    """Even if its rows were made before, to measure them."""
    change = insert_change(Year(id=1, secret="s"))
    (measured,) = plan_writes([encode_surely(change)]).writes
    assert len(sealed(measured)) > 1

    with pytest.raises(EncryptionError, match="was not encrypted, and is not sent"):
        sealed(measured, sending=True)


class Letter(Plain, table="SealedLetters"):
    text: Mapped[str | None] = encrypted(default=None)
    pages: Series[str | None] = series(2, encrypted=True)
    plain: Series[str | None] = series(2)
    long: Mapped[str | None] = encrypted(default=None, chunked=True)
    open: Mapped[str | None] = field(default=None, chunked=True)


@pytest.mark.parametrize(
    ("name", "value", "size", "remedy"),
    [
        ("text", "x" * 120_000, 120_033, "declare encrypted(chunked=True), or encrypted() with Mapped[Blob]"),
        ("pages", ["x" * 80_000, None], 80_033, "declare another field for it, with encrypted(chunked=True)"),
        ("plain", ["x" * 40_000, None], 80_000, "declare another field for it, with field(chunked=True)"),
    ],
)
async def test_an_error_of_a_large_value_counts_what_is_stored(
    db: Database, name: str, value: Any, size: int, remedy: str
) -> None:
    """Once, and its remedy keeps the value encrypted."""
    with pytest.raises(LimitExceeded) as caught:
        await db.insert(Letter(id=1, **{name: value}))

    assert f"It has {size} bytes, of 65536; {remedy}" in str(caught.value)
    assert (caught.value.size, caught.value.limit) == (size, 65_536)


async def test_an_error_of_a_large_value_that_a_resolver_encrypts() -> None:
    """Its remedy is what encrypts long values whatever a resolver says. Chunks of a plain field are small enough."""
    encryption = Encryption(RING, lambda partition_key, row_key, name: row_key == "0001")
    sealed = "declare another field for it, with encrypted(chunked=True), or encrypted() with Mapped[Blob]"
    plain = "declare another field for it, with field(chunked=True) or Mapped[Blob]"
    async with memory_database(Letter, encryption=encryption) as db:
        for number, remedy in ((1, sealed), (2, plain)):
            with pytest.raises(LimitExceeded) as caught:
                await db.insert(Letter(id=number, plain=["x" * 70_000, None]))
            assert remedy in str(caught.value)
        for letter in (Letter(id=1, open="é" * 327_000), Letter(id=2, open="é" * 400_000)):
            await db.insert(letter)
            assert await db.get(Letter, id=letter.id) == letter


def test_an_error_of_a_long_encrypted_value_says_its_size() -> None:
    """But shows nothing of the value."""
    with pytest.raises(
        EncodeError, match=r"<encrypted> has 500,000 UTF-16 .* hold 327,195; add compress=True"
    ) as caught:
        encode_surely(insert_change(Letter(id=1, long="z" * 500_000)))
    assert "zz" not in f"{caught.value} {caught.value.value}"


async def test_plain_rows_are_read_until_they_are_rewritten(db: Database) -> None:
    """Where the model accepts them; a rewrite encrypts them, also those that were encrypted in part."""

    class Before(Plain, table="SealedPeople", kind="Person"):
        salary: Mapped[int] = field(default=0)
        note: Mapped[str | None] = field(default=None, name="Note")
        by_id = Index(row_key="i_{id:04d}", include=["salary"])

    class Between(Plain, table="SealedPeople", kind="Person"):
        name: Mapped[str] = field(default="Ann")
        salary: Mapped[int] = encrypted(default=0, accept_plain=True)
        note: Mapped[str | None] = encrypted(default=None, name="Note", accept_plain=True)
        scan: Mapped[bytes] = encrypted(default=b"", accept_plain=True)
        by_id = Index(row_key="i_{id:04d}", include=["salary"])

    async with memory_database(Before, encryption=ENCRYPTION) as old:
        async with old.bulk() as bulk:
            for number in range(6):
                await bulk.insert(Before(id=number, salary=SECRET, note="n"))
        await copy_rows(old, db)
    with pytest.raises(EncryptionError, match="accept_plain"):
        await db.get(PERSON)
    async with memory_database(Between, encryption=ENCRYPTION) as db2:
        await copy_rows(db, db2)
        query = db2.select(Between)
        entries = db2.select(Between.by_id)
        for asked in (query, query.only(Between.salary), entries):
            assert [each.salary for each in await asked.all()] == [SECRET] * 6
        one, two = await db2.get(Between, id=1), await db2.get(Between, id=2)
        one.name = "Bea"
        await db2.save(one)
        two.note = "m"
        await db2.merge(two, only=[Between.note])
        assert await db2.get(Between, id=2) == two
        report = await rewrite(db2, Between)
        assert (report.written, len(report.failures)) == (4, 0)  # the others were encrypted when they were saved
        rows = await rows_of(db2)
        assert str(SECRET) not in str(rows)
        assert len(rows) == 12
        assert [each.salary for each in await entries.all()] == [SECRET] * 6
        assert (await rewrite(db2, Between)).written == 0
        await copy_rows(db2, db)
    people = await db.select(Person).all()
    assert [(each.salary, each.note) for each in people] == [(SECRET, "n")] * 2 + [(SECRET, "m")] + [(SECRET, "n")] * 3


class Photo(Plain, table="SealedPhotos"):
    secret: Mapped[str] = encrypted(default="s")
    plain: Mapped[Blob | None] = field(default=None)


async def test_a_resolver_says_what_else_is_encrypted(db: Database) -> None:
    """Of each row, unknown properties too, but no keys nor blobs; conditions on what it may encrypt are rejected."""
    asked = set[str]()

    def resolve(partition_key: str, row_key: str, name: str) -> bool:
        asked.add(name)
        return (partition_key, row_key) == ("Oslo", "0001") and name in ("name", "more")

    async with memory_database(Person, Worker, Photo, encryption=Encryption(RING, resolve)) as other:
        await other.insert(Photo(id=1, plain=Blob(b"plain")))
        assert asked == {"secret"}
        asked.clear()
        for number in (1, 2):
            person = Person(id=number, name=f"secret {number}")
            person.extra["more"] = f"extra {number}"
            await other.insert(person)
        assert asked == {"salary", "name", "scan", "more"}
        rows = await rows_of(other)
        for text in ("secret", "extra"):
            assert [text in str(row) for row in rows.values()] == [False, True]
        query = other.select(Person)
        for asked_for in (query, query.only(Person.name)):
            assert [each.name for each in await asked_for.all()] == ["secret 1", "secret 2"]
        first = await other.get(PERSON)
        assert first.extra["more"] == "extra 1"
        first.name, first.extra["more"] = "secret 3", "extra 3"
        await other.save(first)
        assert "secret" not in str((await rows_of(other))["0001"])
        assert (await query.where(Person.id == 1).one()).name == "secret 3"
        with pytest.raises(EncryptionError, match=r"a condition on Person\.name is rejected"):
            await query.where(Person.name == "secret 3").all()
        await other.insert(Worker(id=1))
        for model in (Worker, Worker.by_level):
            found = await other.select(model).where(Worker.level == 1, Worker.id == 1).all()
            assert found == [Worker(id=1)]
        assert "level" not in asked


async def test_what_others_hold_of_an_entity_is_never_encrypted(db: Database) -> None:
    """A resolver is not asked about the fields that counts and copies see."""

    class Source(Local, table="SealedSources", row_key="s{id}", tracked=True):
        name: Mapped[str] = field(default="n")
        other: Mapped[str] = field(default="o")
        secret: Mapped[str] = encrypted(default="s")

    class Holder(Local, table="SealedSources", row_key="h{id}"):
        name: Mapped[str | None] = field(default=None, maintained=True)
        source = Embedded(Source, {"name": "name"}, city="{city}", id="{id}")

    asked = set[str]()

    def resolve(partition_key: str, row_key: str, name: str) -> bool:
        asked.add(name)
        return True

    async with memory_database(Source, Holder, encryption=Encryption(RING, resolve)) as other:
        await other.insert(Source(id=1))
        await other.insert(Holder(id=1))
        assert (await other.get(Holder, city="Oslo", id=1)).name == "n"
        assert asked == {"other", "secret"}
        assert (await other.audit(Source, Holder)).found == 0


async def test_keys_are_unwrapped_once(db: Database) -> None:
    """Each of a page once, and not again while it is known; what needs none asks for none."""
    service = Counting()
    async with memory_database(Person, encryption=Encryption(service)) as other:
        async with other.bulk() as bulk:
            for number in range(40):
                await bulk.insert(Person(id=number, salary=1))
        assert (service.wrapped, service.unwrapped) == (40, 0)
        query = other.select(Person)
        assert len(await query.only(Person.name).all()) == 40
        assert service.unwrapped == 0
        assert len(await query.all()) == 40
        assert service.unwrapped == 40
        (first, *_) = await query.all()
        first.salary = 2
        await other.save(first)
        assert (service.wrapped, service.unwrapped) == (40, 40)


async def test_content_keys_are_wrapped_anew(db: Database) -> None:
    """Of entities and of entries of their indexes, under the ETag of each; values stay, and no older key is needed."""
    after = KeyRing({"new": KEYS["new"]}, wrap_with="new")
    async with memory_database(Staff, Person, Year, encryption=OLDER) as old:
        staff = [Staff(id=number, salary=number) for number in range(30)]
        async with old.bulk() as bulk:
            for each in staff:
                await bulk.insert(each)
        await old.insert(year := Year(id=1, secret="s"))
        for table, model in (("SealedStaff", Staff), ("SealedYears", Year)):
            await db.create_tables(model)
            await copy_rows(old, db, table)
    stored = await rows_of(db, "SealedStaff")
    report = await db.rewrap(Staff)
    assert (report.state, report.written, report.failed) == ("done", 60, 0)
    assert len(await rows_of(db, "SealedYears")) > 1
    report = await db.rewrap(Year)
    assert (report.entities, report.written) == (1, 1)
    assert (await db.rewrap(Staff, Year)).written == 0
    for row_key, row in (await rows_of(db, "SealedStaff")).items():
        assert (row["salary"], '"key":"new"' in row[METADATA]) == (stored[row_key]["salary"], True)
    connection_of(db).encryption = ContentKeys(Encryption(after))
    assert await db.select(Staff).where(Staff.city == "Oslo").all() == staff
    assert await db.select(Staff.by_level).where(Staff.city == "Oslo").all() == staff
    assert await db.get(Year, id=1) == year
    assert (await db.audit(Staff)).found == 0
    await put_row(db, "SealedStaff", stored["0003"])
    report = await db.rewrap(Staff)
    assert (report.state, report.written, report.failed) == ("failed", 0, 1)
    assert "needs the key 'old'" in report.failures[0]
    with pytest.raises(ModelError, match="it has no encrypted field"):
        await db.rewrap(Total)


def test_the_command_wraps_keys_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    """With the keys that `--encryption` names; without them it says so."""
    url = f"local:{tmp_path}/hr.tables"
    (tmp_path / "their_keys.py").write_text(
        "from tests.shapes.test_encrypted import *\ndef encryption(): return Encryption(RING)\nnothing = 5\n"
    )
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setattr(progress, "_SECONDS", 0)

    insert_all(url, Person(id=1), encryption=OLDER)
    assert main(["rewrap", url, "their_keys:Person", "--encryption", "their_keys:encryption"]) == 0
    out = capsys.readouterr()
    assert "1 entity read, 1 written; done in" in out.out
    assert "100% " in out.err and ": 1 entity read" in out.err
    assert main(["rewrap", url, "their_keys:Person"]) == 1
    assert "rewrap needs keys" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["rewrap", url, "their_keys:Person", "--encryption", "their_keys:nothing"])
    assert "'their_keys:nothing' is not an Encryption" in capsys.readouterr().err


def test_models_are_declared_without_the_package() -> None:
    """It is imported when there are keys, and then the error names the extra."""
    program = """
import sys
from tableorm import Encryption, EncryptionError, Entity, KeyRing, Mapped, encrypted
assert not [name for name in sys.modules if name.startswith("cryptography")]
sys.modules["cryptography"] = None
class Person(Entity, table="People", partition_key="p", row_key="{id}"):
    id: Mapped[int]
    name: Mapped[str] = encrypted()
try:
    Encryption(KeyRing({"k": bytes(32)}, wrap_with="k"))
except EncryptionError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "install tableorm with its extra 'encryption'" in done.stdout


class Lease(Local, table="SealedTotals", row_key="lease_{id:03d}"):
    mail: Mapped[str] = field(default="m")
    rent: Mapped[int] = field(default=2)
    secret: Mapped[str] = encrypted(default="s")
    until: Mapped[datetime | None] = field(default=None, expiry=True)

    total = Sum("rent", lambda: Total.total, create=True, city="{city}")
    by_mail = Index(row_key="mail_{mail}", unique=True, include=["secret"])
    of_all = Index(partition_key="all", row_key="a_{city}_{id:03d}", include="keys", consistency="eventual")


class Visit(Entity, table="SealedVisits{at:%Y%m}", partition_key="{city}", row_key="at_{at:ticks}"):
    city: Mapped[str]
    at: Mapped[datetime]
    secret: Mapped[str] = encrypted()


async def test_what_else_a_model_declares(db: Database) -> None:
    """Expiry and sweeps, sums in other entities, unique and eventual indexes, scopes, and tables of periods."""
    past = datetime(2020, 1, 1, tzinfo=UTC)
    await db.create_tables(Lease, Total, Visit)
    async with db.worker(Lease) as worker:
        for number in range(4):
            await db.insert(Lease(id=number, mail=f"m{number}", secret=f"secret {number}"))
        with pytest.raises(UniqueViolation, match=r"has mail='m1' already"):
            await db.insert(Lease(id=9, mail="m1"))
        lease = await db.get(Lease.by_mail, city="Oslo", mail="m1")
        lease.mail, lease.rent, lease.secret = "other", 5, "secret 5"
        await db.save(lease)
        await worker.drain()
        found = await db.select(Lease.of_all).where(Lease.city == "Oslo").all()
        assert [each.secret for each in found] == ["secret 0", "secret 5", "secret 2", "secret 3"]
        scope = db.scope(city="Oslo")
        await scope.modify(Lease, lambda each: each.evolve(until=past, secret="late"), id=2)
        assert (await db.sweep(Lease)).deleted == 1
        await scope.modify(Lease, lambda each: each.evolve(until=past), id=3)
        await db.insert(Lease(id=3, mail="m3", secret="again"))
        assert (await scope.get(Lease, id=3)).secret == "again"
        await worker.drain()
    assert (await db.audit(Lease)).found == 0
    visit = Visit(city="Oslo", at=past, secret="v")
    await db.insert(visit)
    visit.secret = "w"
    await db.save(visit)
    assert await db.get(Visit, city="Oslo", at=past) == visit
    await db.insert(Visit(city="Oslo", at=past + timedelta(days=99), secret="x"))
    connection_of(db).encryption = ContentKeys(OLDER)
    assert (await db.rewrap(Visit)).written == 2
    assert (await db.rewrap(Visit)).written == 0
    assert await db.get(Visit, city="Oslo", at=past) == visit


class NewStaff(Paid, table="SealedStaffNow", kind="Staff", partition_key="all", row_key="{city}_{id:04d}"): ...


async def test_a_rekey_takes_no_encrypted_fields_along(db: Database) -> None:
    """It keeps sums of hashes of what entities say; nothing is written before it is rejected."""
    await db.insert(Staff(id=1, salary=SECRET))
    for calling in (
        run_rekey(db, Staff, NewStaff, writers_stopped=True),
        verify_rekey(db, Staff, NewStaff),
        plan_rekey(db, Staff, NewStaff),
    ):
        with pytest.raises(NotSupported, match=r"Staff has encrypted fields, and the sums .* by db.move\(\)"):
            await calling
    with pytest.raises(NotSupported, match="Year is wide, and its rows would be taken one by one"):
        await run_rekey(db, Year, NewStaff, writers_stopped=True)
    assert "SealedStaffNow" not in await db.tables()
    with pytest.raises(ModelError, match="Staff is wide or has encrypted fields, and a re-key takes rows as"):

        class Moved(  # pyright: ignore[reportUnusedClass]
            Paid, table="SealedStaffNow", partition_key="all", row_key="{city}_{id:04d}", moved_from=MovedFrom(Staff)
        ): ...
