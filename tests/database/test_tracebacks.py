"""
Tracebacks: they are short, and show the functions of the program.
"""

import re
import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tableorm import (
    Blob,
    BulkFailed,
    CursorError,
    Database,
    DecodeError,
    Entity,
    EntityExists,
    EntityNotFound,
    Index,
    Mapped,
    ModelError,
    NotSupported,
    PreconditionFailed,
    ScanRefused,
    TableNotFound,
    TableOrmError,
    TemplateError,
    Throttled,
    TransactionFailed,
    Unavailable,
    UniqueViolation,
    connect,
    field,
)
from tableorm.protocol.codes import Code, Fault
from tableorm.stores import StoreRequest
from tableorm.testing import Faults
from tests.faults import before_requests


class Unmade(Entity, table="Unmade", partition_key="{group}", row_key="x"):
    group: Mapped[str] = field(default="g")


class Texts(Entity, table="Values", partition_key="{group}", row_key="x", kind="Value"):
    group: Mapped[str]
    value: Mapped[str]


class Numbers(Entity, table="Values", partition_key="{group}", row_key="x", kind="Value"):
    group: Mapped[str]
    value: Mapped[int]


class Named(Entity, table="NamedThings", partition_key="{group}", row_key="id_{id}"):
    group: Mapped[str] = field(default="g")
    id: Mapped[str] = field(default="a")
    name: Mapped[str] = field(default="n")

    by_name = Index(row_key="name_{name}", unique=True)


class Pictured(Entity, table="Pictures", partition_key="{group}", row_key="id_{id}"):
    group: Mapped[str] = field(default="g")
    id: Mapped[str] = field(default="a")
    photo: Mapped[Blob | None] = field(default=None)


async def compare(db: Database) -> None:
    async with connect("local::memory:") as other:
        await db.compare_rows(other, "Unmade")


async def copy(db: Database) -> None:
    async with connect("local::memory:") as other:
        await db.copy_rows(other, "Unmade")


async def get_closed(_: Database) -> None:
    async with connect("local::memory:") as closed:
        await closed.close()
        await closed.get(Texts, group="g")


async def drop_of_absent_server(_: Database) -> None:
    async with connect("http://127.0.0.1:1/devstoreaccount1") as absent:
        await absent.drop_table("Values")


async def open_another_file(_: Database) -> None:
    async with connect(f"local:{__file__}"):
        raise AssertionError


async def save_stale(db: Database) -> None:
    """Save a picture that another program has changed since it was read."""
    found = await db.get(Pictured, group="g", id="a")
    await db.upsert(Pictured())
    found.photo = Blob(b"late")
    await db.save(found)


async def upload_refused(db: Database) -> None:
    """Insert an entity whose blob the store does not take."""
    with Faults(db).fail_next("put-blob", with_=503):
        await db.insert(Pictured(id="b", photo=Blob(b"x")))


REFUSED: list[tuple[type[TableOrmError], Callable[[Database], Awaitable[object]], str]] = [
    (TableNotFound, lambda db: db.export_rows("Unmade", Path("never.jsonl")), "export_rows: there is no table"),
    (TableNotFound, lambda db: db.audit(Unmade), "audit: there is no table"),
    (TableNotFound, compare, "compare_rows: there is no table"),
    (TableNotFound, copy, "copy_rows: there is no table"),
    (DecodeError, lambda db: db.get(Numbers, group="g"), "Numbers.value"),
    (DecodeError, lambda db: db.select(Numbers).where(Numbers.group == "g").all(), "Numbers.value"),
    (NotSupported, get_closed, "the database is closed"),
    (Unavailable, drop_of_absent_server, "Nothing answers at"),
    (NotSupported, open_another_file, "is not a database"),
    (EntityExists, lambda db: db.insert(Named()), "has a row with this key already"),
    (UniqueViolation, lambda db: db.insert(Named(id="b")), "Named.by_name"),
    (UniqueViolation, lambda db: db.upsert(Named(id="b")), "Named.by_name"),
    (TemplateError, lambda db: db.insert(Named(name="x" * 600)), "by_name"),
    (ScanRefused, lambda db: db.select(Named).where(Named.name > "a").all(), "allow_scan"),
    (EntityExists, lambda db: db.insert(Pictured(photo=Blob(b"x"))), "has a row with this key already"),
    (TableNotFound, lambda db: db.select(Unmade).where(Unmade.group == "g").all(), "there is no table"),
    (TableNotFound, lambda db: db.select(Unmade).where(Unmade.group == "g").count(), "there is no table"),
    (TableNotFound, lambda db: db.select(Unmade).where(Unmade.group == "g").one(), "there is no table"),
    (TableNotFound, lambda db: db.get(Unmade, group="g"), "there is no table"),
    (TableNotFound, lambda db: db.modify(Unmade, lambda _: None, group="g"), "there is no table"),
    (TableNotFound, lambda db: db.insert(Unmade()), "no table 'Unmade'; create it with db.create_tables()"),
    (TableNotFound, lambda db: db.drop_table("Unmade"), "there is no table 'Unmade' to delete"),
    (CursorError, lambda db: db.select(Named).where(Named.group == "g").page(1, "x"), "'x' is not a cursor"),
    (EntityNotFound, lambda db: db.modify(Named, lambda _: None, group="g", id="x"), "there is no Named"),
    (PreconditionFailed, save_stale, "has changed since it was read"),
    (Throttled, upload_refused, "upload of Pictured.photo"),
]


@pytest.mark.parametrize(("error", "call", "said"), REFUSED)
async def test_the_traceback_of_a_refusal_is_short(
    db: Database, error: type[TableOrmError], call: Callable[[Database], Awaitable[object]], said: str
) -> None:
    """It shows one error, and at most five frames of tableorm and of backends: who reads it looks for their own."""
    await db.create_tables(Named, Pictured, Texts)
    for entity in (Named(), Pictured(), Texts(group="g", value="a")):
        await db.insert(entity)
    with pytest.raises(error) as caught:
        await call(db)

    frames = [frame for frame, _ in traceback.walk_tb(caught.value.__traceback__)]
    # Before Python 3.12 a comprehension has a frame of its own.
    modules = [frame.f_globals["__name__"] for frame in frames if frame.f_code.co_name != "<listcomp>"]
    assert 1 <= sum(name.startswith("tableorm") for name in modules) <= 5
    text = "".join(traceback.format_exception(caught.value))
    assert len(re.findall("^[a-z_.]+[A-Za-z]+: ", text, re.MULTILINE)) == 1
    assert said in text


async def test_the_fault_of_a_refusal(db: Database) -> None:
    """An error has what the store said; that of a transaction or bulk has that of its first operation that failed."""
    await db.create_tables(Named)
    await db.insert(Named())
    with pytest.raises(EntityExists) as single:
        await db.insert(Named())
    with pytest.raises(TransactionFailed) as together:
        async with db.transaction() as tx:
            tx.insert(Named(id="b", name="b"))
            tx.insert(Named())
    with pytest.raises(BulkFailed) as many:
        async with db.bulk() as bulk:
            await bulk.insert(Named())
    with pytest.raises(EntityNotFound) as missing:
        await db.get(Named, group="g", id="x")

    causes = [together.value.__cause__, many.value.__cause__]
    for error in (single.value, together.value, many.value, *causes):
        assert isinstance(error, TableOrmError)
        assert error.fault is not None and error.fault.code == Code.ENTITY_EXISTS
        text = "".join(traceback.format_exception(error))
        assert "Fault" not in text and text.count("direct cause") == (error in (together.value, many.value))
    assert all(isinstance(cause, EntityExists) for cause in causes)
    assert missing.value.fault is None


async def test_the_traceback_of_a_refused_transaction_shows_two_errors(db: Database) -> None:
    """The second is that of the operation, also where reading another row has told what is wrong."""
    await db.create_tables(Named)
    await db.insert(Named())
    with pytest.raises(TransactionFailed) as together:
        async with db.transaction() as tx:
            tx.insert(Named(id="b"))
    with pytest.raises(BulkFailed) as many:
        async with db.bulk() as bulk:
            await bulk.insert(Named(id="b"))

    for error in (together.value, many.value):
        text = "".join(traceback.format_exception(error))
        assert isinstance(error.__cause__, UniqueViolation) and error.fault is not None
        assert len(re.findall("^[a-z_.]+[A-Za-z]+: ", text, re.MULTILINE)) == 2
        assert text.count("Traceback (most recent call last)") == 1


async def test_the_traceback_of_the_program_stays(db: Database) -> None:
    """An error that the program handles while a request is rejected keeps its frames."""

    async def refuse(request: StoreRequest) -> None:
        if request.method == "get":
            raise Fault(Code.INTERNAL_ERROR, "not now")

    before_requests(db, refuse)
    with pytest.raises(TableOrmError) as caught:
        try:
            int("x")
        except ValueError:
            await db.get(Texts, group="g")
    fault = caught.value.fault
    assert fault is not None and isinstance(fault.__context__, ValueError)
    assert fault.__context__.__traceback__ is not None


async def test_functions_of_the_program_stay_in_a_traceback() -> None:
    """An error that a function of the program raises shows that function, and where it has called tableorm."""

    def report(_: object) -> None:
        refuse()

    def refuse() -> None:
        raise ModelError("enough")

    async with connect("local::memory:") as db:
        await db.create_tables(Texts)
        await db.insert(Texts(group="g", value="a"))
        with pytest.raises(ModelError, match="enough") as caught:
            await db.audit(Texts, on_progress=report)

    names = [frame.f_code.co_name for frame, _ in traceback.walk_tb(caught.value.__traceback__)]
    assert names[-2:] == ["report", "refuse"]
    assert len(names) <= 6
