"""What is wrong with a call of `connect` or of a verb is said: the argument, its value, and what to write instead."""

import asyncio
import datetime as dt
import math
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from tableorm import (
    Database,
    Entity,
    Feed,
    Index,
    Mapped,
    ModelError,
    NotSupported,
    Partial,
    PropertyBag,
    TableOrmError,
    connect,
    field,
    from_dict,
    http_message,
    http_status,
    to_dict,
)
from tests.databases import database_fixture


class Order(Entity, table="Orders", partition_key="{shop}", row_key="order_{number:06d}"):
    shop: Mapped[str]
    number: Mapped[int]
    note: Mapped[str] = field(default="")

    by_note = Index(row_key="note_{note}_{number:06d}")


class Ticket(Entity, table="MistakenTickets", partition_key="{id}", row_key="{at:ticks}"):
    id: Mapped[UUID]
    at: Mapped[dt.datetime]
    seller: Mapped[UUID | None] = field(default=None)

    changes = Feed(keep=dt.timedelta(days=1))


ANY: Any = Order
NUMBER: Any = 5
HOUR = dt.timedelta(hours=1)
ACCOUNT = "https://acc.table.core.windows.net"
LOCAL_OPTIONS = "a local database has the options"

PLACES: list[tuple[Any, dict[str, Any], type[Exception], str]] = [
    ("", {}, ModelError, r"url is an empty string; write 'local:PATH' for a file, 'local::memory:'"),
    (None, {}, ModelError, "url is of type NoneType; write 'local:PATH'"),
    ("data.tables", {}, ModelError, "url does not begin with a scheme; write 'local:PATH'"),
    (r"C:\data.tables", {}, ModelError, "url does not begin with a scheme"),
    ("sqlite:///x.db", {}, NotSupported, "no installed backend opens 'sqlite:'; installed are: azure, local"),
    (ACCOUNT, {}, ModelError, "no credential for the account 'acc'; give key=, sas= or credential="),
    (ACCOUNT, {"key": "no base64!"}, NotSupported, "not base64"),
    (ACCOUNT, {"key": "a2V5", "sas": "sv=1"}, TypeError, "key and sas"),
    (f"{ACCOUNT}?sv=1", {"key": "a2V5"}, TypeError, "key and the URL's SAS"),
    ("AccountName=acc;AccountKey=a2V5", {"sas": "sv=1"}, TypeError, "sas and the connection string's AccountKey"),
    (ACCOUNT, {"key": "a2V5", "colour": 1}, TypeError, "'colour'"),
    (
        ACCOUNT,
        {"key": "a2V5", "retry_total": 3},
        TypeError,
        r"unknown option 'retry_total'.*; retry=RetryPolicy\(\.\.\.\) says how",
    ),
    (ACCOUNT, {"key": "a2V5", "connections": 0}, ValueError, "'connections' must be"),
    (ACCOUNT, {"key": "a2V5", "keepalive": -1}, ValueError, "'keepalive' must be"),
    (ACCOUNT, {"key": "a2V5", "api_version": 3}, TypeError, "'api_version' must be"),
    (
        "http://localhost:10002",
        {},
        ModelError,
        "names no account; an emulator's URL ends with its account, /devstoreaccount1; for any",
    ),
    ("local:", {}, ModelError, "give local:PATH or local::memory:"),
    ("local:a\0b", {}, ModelError, "give local:PATH or local::memory:"),
    (
        "local:x",
        {"kye": 1, "credential": 2},
        TypeError,
        "does not know .credential., .kye.; .* options timeout, account, create, key, sas",
    ),
    ("local::memory:", {"storage_api_version": 1}, TypeError, f"does not know 'storage_api_version'; {LOCAL_OPTIONS}"),
    (
        "local::memory:",
        {"connections": 1, "blobs": "local::memory:"},
        TypeError,
        f"does not know 'connections'; {LOCAL_OPTIONS}",
    ),
    (
        "local::memory:",
        {"colour": 1, "queues": "http://127.0.0.1:10001/devstoreaccount1"},
        TypeError,
        f"does not know 'colour'; {LOCAL_OPTIONS}",
    ),
    ("local::memory:", {"slow": 0}, ValueError, "give a number of seconds above 0, or None"),
    ("local::memory:", {"slow": -1.0}, ValueError, "give a number of seconds above 0, or None"),
    ("local::memory:", {"slow": math.nan}, ValueError, "give a number of seconds above 0, or None"),
    ("local::memory:", {"timeout": 0}, ValueError, r"connect\(timeout=0\) is rejected: give seconds above 0"),
    ("local::memory:", {"timeout": "5"}, ModelError, r"connect\(timeout='5'\) is rejected"),
    ("local::memory:", {"prefix": 5}, ModelError, r"connect\(prefix=5\): no name begins so; give 1 to 60 letters"),
    ("local::memory:", {"echo": "yes"}, ModelError, r"connect\(echo='yes'\) is rejected: give True or False"),
    ("local::memory:", {"blobs": "x"}, ModelError, "blobs does not begin with a scheme"),
]


@pytest.mark.parametrize(("url", "options", "error", "message"), PLACES)
def test_connect(url: Any, options: dict[str, Any], error: type[Exception], message: str) -> None:
    """What this installation cannot do is NotSupported; a wrong argument is a ModelError or ValueError."""
    with pytest.raises(error, match=message):
        connect(url, **options)


async def test_a_database_that_is_not_open() -> None:
    """Not yet, or not any more; then the error says how to open it, which works."""
    db = connect("local::memory:")
    with pytest.raises(NotSupported, match="is not open; use `async with connect"):
        await db.tables()
    async with db:
        with pytest.raises(NotSupported, match="open already; open it once and share it"):
            await db.open()
    with pytest.raises(NotSupported, match=r"is closed, by close.* `await db.open\(\)` opens it again"):
        await db.tables()
    await db.open()
    assert await db.tables() == []
    await db.close()


def test_a_database_of_another_loop() -> None:
    """Each loop needs one of its own."""
    db = connect("local::memory:")
    asyncio.run(db.open())
    with pytest.raises(
        NotSupported, match=r"another event loop, .* within each asyncio.run\(\); .* httpx.ASGITransport"
    ):
        asyncio.run(db.tables())


def order(**fields: Any) -> Order:
    made: Order = ANY(**{"shop": "a", "number": 1, **fields})
    return made


ID = UUID(int=1)
AWARE = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)


def ticket(**fields: Any) -> Ticket:
    make: Any = Ticket
    made: Ticket = make(**{"id": ID, "at": AWARE, **fields})
    return made


async def read_page(db: Any) -> list[Any]:
    return list(await db.select(Order).where(Order.shop == "a").page(5))


CALLS: list[tuple[Callable[[Any], Any], str]] = [
    (lambda db: db.insert(Order), "Order'> cannot be written: it is not an entity; give an instance of a model"),
    (lambda db: db.merge(order(), "note", if_match="*"), r"merge\(only='note'\) of Order .* only=\['note'\]"),
    (
        lambda db: db.merge(order(), [ANY.shop], if_match="*"),
        r"Order.shop is held by the key; the stored field is note",
    ),
    (lambda db: db.upsert(order(), "overwrite"), r"upsert\(mode='overwrite'\) is unknown; use 'merge' or 'replace'"),
    (
        lambda db: db.get(Order, shop="a", numbr=1),
        "does not take 'numbr', which is not a field of the model; did you mean 'number'.* shop, number",
    ),
    (lambda db: db.get(Order, shop="a", number=9), r"there is no Order \('a', 'order_000009'\) in table Orders"),
    (
        lambda db: db.get(Order.by_note, note="x", shop="a"),
        r"by_note.key needs 'number'; .*: db.select\(Order.by_note\)",
    ),
    (lambda db: db.get_many([order()]), r"get_many\(\) needs keys, got Order.* make them with Model.key\(...\)"),
    (lambda db: db.modify(Order, None, shop="a", number=1), "modify: None is no plain function; give one that changes"),
    (lambda db: db.modify(Order, len, attempts=0), r"modify\(attempts=0\) is rejected: try at least once"),
    (lambda db: db.get(Order, note="x"), "does not take 'note', which is not a key field of the model"),
    (lambda db: db.refresh(Order), "is not an entity; give an instance of a model, or a bag"),
    (
        lambda db: db.lookup(Order.by_note),
        r"lookup\(Order.by_note\) is rejected: .*read it by db.select\(Order.by_note\)",
    ),
    (lambda db: db.lookup(Order), r"lookup\(.*Order.*\) is rejected: give an index list of a model"),
    (
        lambda db: db.select(Order).all(),
        r"Order: the query visits every partition of table Orders, .*Order.shop == ...",
    ),
    (lambda db: db.select(Order).where("a eq 1").all(), "'a eq 1' is not a condition; compare a field of the class"),
    (lambda db: db.select(Order).limit(-1).all(), r"limit\(-1\) is rejected: give a number of entities from 0"),
    (lambda db: db.select(Order).only("note").all(), r"only\('note'\) is rejected: .* as in only\(Order.note\)"),
    (lambda db: db.select(Order).page(0), r"page\(size=0\) is rejected: give an int from 1 to 1000"),
    (
        lambda db: db.select(Order).where(Order.shop == "a").page(5, "x"),
        "'x' is not a cursor; pass Page.cursor unchanged",
    ),
    (lambda db: db.bulk(concurrency=0), r"bulk\(concurrency=0, rate=None\) is rejected: give a whole number"),
    (lambda db: db.explain_write(["save"], order()), r"explain_write\(\['save'\]\) is unknown; use insert, save"),
    (lambda db: db.explain_write("save", order(), only=["note"]), r"only=...\) is rejected: save takes nothing beside"),
    (lambda db: db.audit("Orders"), "'Orders' is not a model"),
    (lambda db: db.audit(order()), r"Order\(shop='a'.* is an entity, not a model; give its class, Order"),
    (
        lambda db: db.audit(Order, on_progress=5),
        r"audit\(on_progress=5\) is rejected: give a plain function, which is not awaited",
    ),
    (lambda db: db.create_tables([Order]), r"\[<class .*Order'>\] is not a model"),
    (
        lambda db: db.select_raw(Order),
        r"select_raw\(<class .*Order'>\): The specified resource name is not text: .*; a table name is letters",
    ),
    (lambda db: db.select_raw(None), r"select_raw\(None\): The specified resource name is not text: None"),
    (lambda db: db.select(Order).where(shop="a"), r"where\(shop='a'\) is rejected: write where\(Order.shop == 'a'\)"),
    (
        lambda db: db.select(Order).bind("local:x"),
        r"'local:x' is not a database; give one that connect\(url\) has made, or a scope of it",
    ),
    (
        lambda db: db.run_transaction(order, attempts="5"),
        r"run_transaction\(attempts='5'\) is rejected: try at least once",
    ),
    (
        lambda db: db.grant(Order, "r", HOUR, start="a"),
        r"grant\(Order\): start='a' is rejected; give fields of the key and their values",
    ),
    (lambda db: db.policies(Order).set("p", ["r"]), r"permissions=\['r'\] is rejected"),
    (lambda db: db.merge(order(), [[]], if_match="*"), r"merge\(only=\[...\]\) of Order: \[\] is not a field"),
    (lambda db: db.upsert(order(), []), r"upsert\(mode=\[\]\) is unknown"),
    (
        lambda db: db.get(Ticket, id=str(ID), at=AWARE),
        r"Ticket.partition_key: .* needs a UUID, got '00.*01' \(str\); give UUID\(text\) \(field 'id'\)",
    ),
    (lambda db: db.insert(ticket(seller=str(ID))), r"Ticket.seller: '00.*01' is a str, not a UUID; give UUID\(text\)"),
    (read_page, "a page can't be iterated; use page.items"),
    (
        lambda db: db.changes(Ticket, id=ID),
        r"<changes\(Ticket\) of partition '00.*01'> cannot be awaited; write async for change in changes",
    ),
    (
        lambda db: list(db.changes(Ticket, id=ID)),
        "can't be used in a plain for loop; write async for change in changes",
    ),
]


VALUES: list[tuple[Callable[[], Any], str]] = [
    (lambda: to_dict(ANY), r"to_dict\(<class .*Order'>\) is rejected: give an entity, and not its model"),
    (lambda: to_dict(PropertyBag("T", "a", "b")), "PropertyBag'> is not a model"),  # type: ignore[arg-type]
    (lambda: to_dict(order(), include=NUMBER), r"to_dict\(include=...\) of Order: 5 is not a field"),
    (lambda: order().update(NUMBER), r"Order.update\(5\) is rejected: give a Partial\(Order, {...}\) of the fields"),
    (
        lambda: order().update(note="x"),  # type: ignore[arg-type]
        r"Order.update\(note=...\) is rejected: set the field, as in entity.note = value, or give a Partial",
    ),
    (lambda: from_dict(NUMBER, {}), "5 is not a model"),
    (lambda: Partial(order(), {}), "is not a model"),  # type: ignore[arg-type]
    (lambda: PropertyBag("Orders", "a", "b", NUMBER), r"'b'\).properties: 5 is of type int; give a dictionary"),
    (
        lambda: PropertyBag("Orders", "a", "b").__setitem__(NUMBER, 1),
        r"'b'\).5: 1 cannot be set: a property has a",
    ),
    (lambda: order().extra.__setitem__(NUMBER, 1), "5: 1 cannot be set: a property has a"),
    (lambda: PropertyBag.key(NUMBER, "a", "b"), "The specified resource name is not text: 5"),
]


def test_a_database_that_is_closed_in_another_event_loop(tmp_path: Path) -> None:
    """It is rejected at once, and stays open where it was opened: there it is used and closed as ever."""
    with asyncio.Runner() as runner:
        db = runner.run(connect(f"local:{tmp_path}/data.tables").open())
        runner.run(db.create_tables(Order))
        begun = time.monotonic()
        with pytest.raises(NotSupported, match=r"close\(\) is rejected: the database was opened in another event loop"):
            asyncio.run(db.close())
        assert time.monotonic() - begun < 5
        assert "Orders" in runner.run(db.tables())
        runner.run(db.close())
        asyncio.run(db.close())


@pytest.mark.parametrize(("call", "message"), VALUES)
def test_a_function_of_values(call: Callable[[], Any], message: str) -> None:
    """What needs no database says the same."""
    with pytest.raises(TableOrmError, match=message):
        call()


def test_what_is_no_error_has_a_status_too() -> None:
    """A handler of errors must not fail itself."""
    nothing: Any = None

    assert (http_status(nothing), http_message(nothing)) == (500, "the service has failed")


db = database_fixture(Order)


@pytest.mark.parametrize(("call", "message"), CALLS)
async def test_a_verb(db: Database, call: Callable[[Any], Any], message: str) -> None:
    """The verb, the model or argument, and the value are named, and what to give."""
    with pytest.raises(TableOrmError, match=message):
        await call(db)


BLOCKS: list[tuple[Callable[[Any], Any], str]] = [
    (lambda db: db, "Database"),
    (lambda db: db.scope(shop="a"), "Scope"),
    (lambda db: db.transaction(), "Transaction"),
    (lambda db: db.bulk(), "Bulk"),
    (lambda db: db.worker(Order), "Worker"),
    (lambda db: db.select(Order).stream(), "EntityStream"),
]


@pytest.mark.parametrize(("make", "name"), BLOCKS)
async def test_with_in_place_of_async_with(db: Database, make: Callable[[Any], Any], name: str) -> None:
    """What has an asynchronous block says that it needs `async with`."""
    with pytest.raises(ModelError, match=f"a {name} cannot be used by with; write async with"), ExitStack() as stack:
        stack.enter_context(make(db))


@pytest.mark.parametrize(("make", "name"), BLOCKS)
async def test_await_in_place_of_async_with(db: Database, make: Callable[[Any], Any], name: str) -> None:
    """What has an asynchronous block is not awaited; of a database both ways to open it are named."""
    with pytest.raises(ModelError, match=f"a {name} cannot be awaited; write async with"):
        await make(db)
    opening: Any = connect("local::memory:")
    with pytest.raises(ModelError, match=r"async with connect\(url\) as db, or db = await connect\(url\)\.open\(\)"):
        await opening


WRITES: list[Callable[[Any, Any], Any]] = [
    lambda tx, entity: tx.insert(entity),
    lambda tx, entity: tx.upsert(entity),
    lambda tx, entity: tx.insert(PropertyBag("Orders", "a", f"bag_{entity.number}")),
]


@pytest.mark.parametrize("write", WRITES)
async def test_a_write_of_a_transaction_that_is_awaited(db: Database, write: Callable[[Any, Any], Any]) -> None:
    """It only collects, and says so; the transaction is dropped like by any error. Not awaited, it is as None."""
    with pytest.raises(
        ModelError, match=r"a transaction collects what it writes.*leave out the await, as in tx\.insert"
    ):
        async with db.transaction() as tx:
            await write(tx, Order(shop="a", number=1))
    assert not await db.exists(Order, shop="a", number=1)
    async with db.transaction() as tx:
        tx.insert(Order(shop="a", number=2))
        assert not write(tx, Order(shop="a", number=3))


def test_a_field_that_is_misspelt_on_the_class() -> None:
    """The nearest attribute is named, be it a field or an index; names that Python looks for are left alone."""
    model: Any = Order
    with pytest.raises(AttributeError, match="no attribute 'numbeer'; did you mean 'number'") as raised:
        _ = model.numbeer == 1
    assert raised.value.name == "numbeer"
    with pytest.raises(AttributeError, match="did you mean 'by_note'"):
        _ = model.by_notte
    with pytest.raises(AttributeError, match=r"no attribute '_private'$"):
        _ = model._private
    assert not hasattr(Entity, "numbeer")


async def test_a_list_of_changes(db: Database) -> None:
    """A stream of changes has no methods of queries."""
    changes: Any = db.changes(Ticket, id=ID)

    with pytest.raises(AttributeError, match=r"no attribute 'all'; write \[change async for change in changes\]"):
        changes.all()
    with pytest.raises(AttributeError, match=r"no attribute 'cursor'$"):
        _ = changes.cursor
