"""
No public method of a scope, or of what it makes, reads or writes rows of another scope: whatever methods there are.

The methods are found by introspection, so that a verb that is added without asking the boundary fails here.
"""

import datetime as dt
import inspect
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from tableorm import (
    AccessDenied,
    Database,
    Entity,
    Feed,
    Index,
    IndexList,
    Mapped,
    PropertyBag,
    Scope,
    TableOrmError,
    Transaction,
    connect,
    field,
    many,
    one,
)
from tableorm.access.scope import ScopeRules
from tableorm.connection.boundary import Boundary
from tableorm.connection.connection import connection_of
from tableorm.models.property_bag import bag_of_row
from tableorm.writes.bulk.bulk import Bulk, delete_found
from tableorm.writes.commit import commit
from tableorm.writes.stages.change import insert_change
from tableorm.writes.stages.encode import encode


class Note(Entity, table="BoundaryNotes", partition_key="{tenant}", row_key="note_{n:04d}"):
    tenant: Mapped[str]
    n: Mapped[int]
    text: Mapped[str | None] = field(default=None)

    by_text = Index(row_key="text_{text}", unique=True)
    listed = IndexList(row_key="listed_{text}")
    changes = Feed(keep=dt.timedelta(days=7))
    notes = many(lambda: Note, tenant="{tenant}", on_delete="keep")
    same = one(lambda: Note, tenant="{tenant}", n="{n}")


FREE = {
    "blobs": "lies below the mapper",
    "queues": "lies below the mapper",
    "store": "lies below the mapper",
    "close": "is rejected in a scope",
    "open": "is rejected in a scope",
    "observe": "notes what is sent",
    "url": "says where the tables are",
    "prefix": "says what names begin with",
    "create_tables": "makes empty tables",
    "prepare_periods": "makes empty tables",
    "ping": "reads no row",
    "tables": "reads no row",
    "existing": "says what inserts of the transaction have found",
    "cached": "makes a cache, which has a test of its own",
    "bulk": "makes a bulk, which has a test of its own",
    "transaction": "makes a transaction, which has a test of its own",
    "start": "takes an entity that the transaction writes, and so was rejected before",
    "report": "says what the operations became",
    "concurrency": "says how many transactions are under way",
    "select": "is narrowed, see below",
    "select_raw": "is narrowed, see below",
    "union": "is narrowed, see below",
}


def change(note: Any) -> Any:
    return None if isinstance(note, PropertyBag) else note.evolve(text="changed")


async def body(tx: Transaction) -> None:
    await tx.get(Note, tenant="theirs", n=1)


Arguments = tuple[tuple[Any, ...], dict[str, Any]]


def call(*arguments: Any, **keywords: Any) -> Arguments:
    """Return the arguments of a call."""
    return arguments, keywords


def arguments_of(name: str, theirs: Note, row: Any) -> list[Arguments]:
    """Every way to name the row of another tenant to a method: each is tried that the method takes."""
    bag = bag_of_row("BoundaryNotes", row)
    keys: dict[str, Any] = {"tenant": "theirs", "n": 1}
    given: dict[str, list[Arguments]] = {
        "grant": [call(Note, "r", start={"tenant": "theirs"}, end={"tenant": "theirs"}, policy="p")],
        "lookup": [call(Note.listed, **keys_of_index())],
        "get_many": [call([theirs.key]), call([bag_key()])],
        "load": [call(theirs, each) for each in (Note.notes, Note.same)],
        "explain_load": [call(theirs, Note.notes)],  # by a key that is denied nothing is asked
        "run_transaction": [call(body)],
        "explain_write": [call(verb, each) for verb in ("save", "delete", "upsert") for each in (theirs, bag)],
        "new": [call(Note, **keys)],
        "scope": [call(tenant="theirs")],
        "drop_table": [call("BoundaryNotes"), call(Note)],
        "drop_periods": [call(Note, before=1)],
        "build_index": [call(Note.by_text)],
        "policies": [call(Note), call("BoundaryNotes")],
        "audit": [call(Note)],
        "sweep": [call(Note)],
        "changes": [call(Note, tenant="theirs")],
        "copy_rows": [call(connect("local::memory:"), "BoundaryNotes")],
        "compare_rows": [call(connect("local::memory:"), "BoundaryNotes")],
        "export_rows": [call("BoundaryNotes", "rows.jsonl")],
        "import_rows": [call("rows.jsonl", "BoundaryNotes")],
        "rewrap": [call(Note)],
        "index_states": [call()],
        "runs": [call()],
        "modify": [
            call(each, change, **named, **options)
            for each, named in ((theirs, {}), (theirs.key, {}), (bag, {}), (Note, keys))
            for options in ({}, {"create": theirs}, {"if_match": theirs.etag})
        ],
        "archive": [call(theirs, to=Note, **fields) for fields in ({"n": 9}, {"tenant": "mine"}, {})],
        "move": [call(theirs, n=9), call(bag, row_key="x")],
    }
    if name in given:
        return given[name]
    targets: list[Any] = [theirs, bag, theirs.key, bag_key()]
    return [*map(call, targets), call(Note, **keys), call(Note.by_text, **keys_of_index())]


def bag_key() -> Any:
    return PropertyBag.key("BoundaryNotes", "theirs", "note_0001")


def keys_of_index() -> dict[str, Any]:
    return {"tenant": "theirs", "text": "secret"}


def methods_of(owner: type[Any]) -> list[str]:
    return [name for name in dir(owner) if not name.startswith("_") and name not in FREE]


@pytest.fixture
async def db(tmp_path: Path) -> AsyncIterator[Database]:
    async with connect(f"local:{tmp_path / 'notes.tables'}") as db:
        await db.create_tables(Note)
        await db.insert(Note(tenant="theirs", n=1, text="secret"))
        await db.insert(Note(tenant="mine", n=1, text="own"))
        yield db


async def refuses(owner: Any, name: str, given: Arguments, row: Any) -> bool:
    """Return whether a call was rejected; False if the method does not take such arguments. It is never let through."""
    args, keywords = given
    method: Callable[..., Any] = getattr(owner, name)
    try:
        inspect.signature(method).bind(*args, **keywords)
        result = method(*args, **keywords)
        if inspect.iscoroutine(result):
            result = await result
    except AccessDenied:
        return True
    except (TableOrmError, TypeError):
        return False
    raise AssertionError(f"{name}{given} is let through: {result!r}")


@pytest.mark.parametrize("name", methods_of(Scope))
async def test_a_method_of_a_scope(db: Database, name: str) -> None:
    """It refuses another tenant's row, however it is named, and sends nothing."""
    await check(db, db.scope(Note, tenant="mine"), name)


@pytest.mark.parametrize("name", methods_of(Transaction))
async def test_a_method_of_a_transaction(db: Database, name: str) -> None:
    """A transaction of a scope refuses what the scope refuses."""
    async with db.scope(Note, tenant="mine").transaction() as tx:
        await check(db, tx, name)


@pytest.mark.parametrize("name", methods_of(Bulk))
async def test_a_method_of_a_bulk(db: Database, name: str) -> None:
    """A bulk of a scope refuses what the scope refuses."""
    async with db.scope(Note, tenant="mine").bulk() as bulk:
        await check(db, bulk, name)


async def check(db: Database, owner: Any, name: str) -> None:
    theirs = await db.get(Note, tenant="theirs", n=1)
    row = (await db.get(bag_key())).row.copy()
    before, requests = await db.get(bag_key()), db.stats.requests
    refused = [await refuses(owner, name, given, row) for given in arguments_of(name, theirs, row)]

    assert db.stats.requests == requests
    assert any(refused), f"{name} has refused nothing; give it arguments here, or name it in FREE and say why"
    after = await db.get(bag_key())
    assert after == before and after.etag == before.etag


async def test_what_a_query_has_found_is_not_deleted(db: Database) -> None:
    """A bulk of a scope refuses a row of another tenant, whatever query has brought it."""
    row = (await db.get(bag_key())).row
    async with db.scope(Note, tenant="mine").bulk() as bulk:
        with pytest.raises(AccessDenied, match="this scope is of tenant='mine'"):
            await delete_found(bulk, Note.key(tenant="theirs", n=1), row)
    assert await db.exists(bag_key())


async def test_queries_are_narrowed(db: Database) -> None:
    """Whatever makes them, they find the rows of the tenant alone, and delete those alone."""
    mine = db.scope(Note, tenant="mine")
    everything = db.select(Note).allow_scan()
    queries: list[Any] = [mine.select(Note), mine.select(Note.by_text), mine.select_raw("BoundaryNotes").allow_scan()]
    queries += [mine.select(Note, PropertyBag), mine.union(everything), everything.bind(mine)]
    for query in queries:
        rows = await query.all()
        assert rows
        assert "secret" not in repr(rows)
    await mine.select_raw("BoundaryNotes").delete()
    assert [each.tenant for each in await everything.all()] == ["theirs"]


def test_a_scope_answers_every_question_of_the_boundary() -> None:
    """A question that is added to the boundary, and that scopes forget to answer, would let everything through."""
    questions = {name for name in vars(Boundary) if not name.startswith("_")}
    assert questions == {name for name in vars(ScopeRules) if not name.startswith("_")} - {"narrowed"}


async def test_a_write_is_refused_where_it_is_sent(db: Database) -> None:
    """A verb that has not asked the boundary cannot send a write either."""
    write = encode(insert_change(Note(tenant="theirs", n=2)), 0)
    assert write is not None
    with pytest.raises(AccessDenied, match="this scope is of tenant='mine'"):
        await commit(connection_of(db.scope(tenant="mine")), [write])
    assert await db.get_or_none(Note, tenant="theirs", n=2) is None
