"""
Makes the stored files: a database of the embedded engine that holds at least one of all that tableorm stores, and what
is in it as JSON.

    python -m tests.stored.make FOLDER NUMBER

It writes `NUMBER.tables.gz` and `NUMBER.json` into the folder, and a snapshot with a revision beside them. Files that
are committed are never made again, since they are what an older program has written. If there is something new to
store, extend this, and write files with another number.
"""

import asyncio
import datetime as dt
import gzip
import json
import sys
import tempfile
from base64 import b64encode
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from tableorm import Blob, Database, Encryption, KeyRing, OutcomeUnknown, RunReport, TableOrmError, connect
from tableorm.connection.connection import connection_of
from tableorm.jobs import scan
from tableorm.logs import LogStream
from tableorm.outbox.bell import OUTBOX
from tableorm.outbox.decision import read_decisions
from tableorm.outbox.table_queue import TableQueueStore
from tableorm.queries.pages import Page
from tableorm.rekey.phases import RekeyPhase, change_phase, load_phase
from tableorm.relations.cascade import carry_out_cascades
from tableorm.stores import CLOCK, Operation, Row, TableStore, Verb
from tableorm.testing.contract.base import everything
from tableorm_migrations import apply_revisions, rewrite, run_rekey, write_revision
from tests import rekeys
from tests.faults import QUICK, Fate, FaultyStore
from tests.stored.shop import (
    CARRIER,
    KEYS,
    MODELS,
    NORTH,
    OLD_PARCELS,
    Chest,
    Coin,
    Customer,
    Day,
    DayOfPartsV1,
    Firm,
    Hand,
    Item,
    Line,
    Login,
    Mate,
    NewTrip,
    NewVisit,
    Note,
    Order,
    OrderV1,
    Parcel,
    Person,
    Pin,
    PinV1,
    Poster,
    Reader,
    Secret,
    Session,
    Setting,
    Ship,
    Status,
    Trip,
    Visit,
    Xray,
    cold_parcels,
)
from tests.unfinished_moves import CONFIRMED, FORWARD, MARK, TENTATIVE, move_half

NOON = dt.datetime(2025, 1, 6, 12, tzinfo=dt.UTC)
DAY = dt.timedelta(days=1)
DEAD = [Fate.LOST_REQUEST] * 9999
Facts = dict[str, Any]
"""What the JSON has besides rows: texts that programs keep, such as cursors."""


class _StopError(Exception):
    """A program is ended."""


def fail_between(db: Database) -> FaultyStore:
    """Put a network that fails between a database and its tables."""
    networks: list[FaultyStore] = []

    def beneath(store: TableStore) -> FaultyStore:
        networks.append(FaultyStore(store))
        return networks[0]

    connection_of(db).wrap_store(beneath)
    return networks[0]


@contextmanager
def small_pages() -> Generator[None]:
    """Let what goes through whole tables read two rows at a time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scan, "MAX_PAGE", 2)
        yield


async def insert_and_die(url: str, entity: Person, writes: int) -> None:
    """Insert an entity; only so many writes to tables arrive, of this program alone."""
    async with connect(url, retry=QUICK) as db:
        fail_between(db).plan(*[Fate.FINE] * writes, *DEAD)
        with suppress(OutcomeUnknown):
            await db.insert(entity)


async def make_entities(db: Database) -> None:
    """Entities of several versions and kinds, with all that is derived from them in their partition."""
    await db.insert(Customer(shop=NORTH, name="ann", city="Oslo"))
    await db.insert(OrderV1(shop=NORTH, id=1, customer="ann", code="c1", total=2.5))
    order = Order(
        shop=NORTH,
        id=2,
        customer="ann",
        code="c2",
        cents=1250,
        status=Status.SENT,
        boxes=3,
        weight=1.5,
        paid=True,
        at=NOON,
        due=NOON.date(),
        ticket=UUID(int=7),
        seal=b"\x00\xff",
        lines=[Line("nail", 100), Line("saw", 1)],
    )
    order.extra["Crate"] = 2**40
    await db.insert(order)
    await db.insert(Order(shop=NORTH, id=3, customer="ann", code="c3", cents=100))
    await db.insert(OrderV1(shop=NORTH, id=4, customer="ann", code="c4", total=0.5))
    for number in range(8):
        await db.insert(Item(shop=NORTH, name=f"{number}{'x' * 300}", shelf="a"))
    await db.insert(Session(user="ann", device="phone", expires=NOON - DAY))
    await db.insert(Session(user="ann", device="desk"))
    await db.insert(Setting(user="ann", name="colour", value="red"))
    row: Row = {"PartitionKey": "theirs", "RowKey": "r1", "size": 5, "Other": "9007199254740993"}
    await db.store.write("StoredForeign", Operation(Verb.INSERT, {**row, "Other@odata.type": "Edm.Int64"}))
    for month in (1, 2, 3):
        await db.insert(Login(user="ann", at=NOON.replace(month=month)))


async def make_fields(db: Database) -> None:
    """Series and long values: one in two properties, and one that a merge has made shorter."""
    await db.create_tables(Day)
    await db.queues.create_queue(OUTBOX)
    for number in (1, 2):
        day = Day(user="ann", day=number, text="\U0001f600" * 16_385, lines=["one", "two"])
        day.sent[9] = 5
        day.sent[23] = number
        await db.insert(day)
    await db.merge(Day(user="ann", day=2, text="short"), only=[Day.text], if_match="*")


async def make_unfinished(db: Database, url: str) -> None:
    """Changes of several partitions: one is done, one was begun and made void, one was begun, and one was committed."""
    await db.insert(Person(team="red", id=1, email="ann@x", city="Oslo", role="chief"))
    await insert_and_die(url, Person(team="red", id=2, email="void@x", city="Oslo", role="clerk"), 1)
    CLOCK.advance(DAY)
    async with db.worker(Person) as worker:
        await worker.drain()
    await insert_and_die(url, Person(team="red", id=3, email="begun@x", city="Rome", role="clerk"), 1)
    await insert_and_die(url, Person(team="red", id=4, email="jun@x", city="Rome", role="chief"), 2)


async def make_moves(url: str) -> None:
    """Moves to another partition, of which one more write has arrived each time."""
    for number, writes in enumerate((MARK, TENTATIVE, FORWARD, CONFIRMED), 1):
        async with connect(url, retry=QUICK) as db:
            note = Note(box="in", id=number, text=f"t{number}")
            await db.insert(note)
            await move_half(db, fail_between(db), note, writes, box=f"out{number}")


async def make_feed(db: Database, facts: Facts) -> None:
    """A change feed of which the first changes were trimmed."""
    for number in (1, 2):
        await db.insert(Mate(team="red", id=number))
    CLOCK.advance(9 * DAY)
    await db.sweep(Mate)
    facts["changes"] = await db.changes(Mate, team="red").end()
    await db.upsert(Mate(team="red", id=1, name="Ann"))
    async with db.transaction() as tx:
        tx.delete(await db.get(Mate, team="red", id=2))
        tx.insert(Mate(team="red", id=3))


async def make_workflows(db: Database, url: str) -> None:
    """Workflows that were given up, or not yet begun, and parcels that were archived, or are to be."""
    parcels = [Parcel(depot="d", id=number) for number in range(1, 7)]
    for parcel in parcels:
        await db.insert(parcel)
    failing, waiting, in_blob, in_cold, to_blob, to_cold = parcels
    async with db.transaction() as tx:
        failing.state = "ready"
        tx.save(failing)
        tx.start(Ship, failing, {"via": "rail"})
    cold = cold_parcels(url)
    async with connect(url, prefix="Cold") as other:
        await other.create_tables(Parcel)
    await db.archive(in_blob, to=OLD_PARCELS)
    await db.archive(in_cold, to=cold)
    CARRIER.refuses = True
    CLOCK.advance(DAY)
    async with db.worker(Ship, OLD_PARCELS, cold, tries=1) as worker:
        await worker.drain()
    CARRIER.refuses = False
    await db.archive(to_blob, to=OLD_PARCELS)
    await db.archive(to_cold, to=cold)
    async with db.transaction() as tx:
        waiting.state = "ready"
        tx.save(waiting)
        tx.start(Ship, waiting, {"via": "road"})


async def make_rekeys(db: Database, url: str) -> None:
    """A re-key under way while programs write, with rows in each state, and one while nobody writes."""
    for number in range(1, 6):
        await db.insert(Trip(day="mon", id=number, text=f"t{number}"))
    rekeying = rekeys.rekeying_of(NewTrip)
    await change_phase(connection_of(db), rekeying, await load_phase(connection_of(db), rekeying), RekeyPhase.MOVE)
    await rekeys.move(db, NewTrip, 2)
    await db.save((await db.get(NewTrip, id=1, day="mon")).evolve(text="written since"))
    for writes in (2, 1):
        async with connect(url, retry=QUICK) as dying:
            rekeys.set_phase(dying, NewTrip, RekeyPhase.MOVE)
            fail_between(dying).plan(*[Fate.FINE] * writes, *DEAD)
            with suppress(TableOrmError):
                await rekeys.move(dying, NewTrip, 1)
    for number in (1, 2):
        await db.insert(Visit(day="mon", id=number))
    await run_rekey(db, Visit, NewVisit, writers_stopped=True)


async def make_upkeep(db: Database, folder: Path) -> None:
    """States of indexes, shared runs, and a revision that was applied."""
    await db.insert(PinV1(board="b", id=1, colour="red"))
    await db.create_tables(Pin)

    def stop(report: RunReport) -> None:
        if report.entities > 1:
            raise _StopError

    with small_pages(), suppress(_StopError):
        await rewrite(db, Order, name="cents", parallel=1, lease=0.001, on_progress=stop)
    await rewrite(db, Setting, name="settings")
    write_revision([Setting], folder / "revisions", message="The first", snapshot=folder / "models.json")
    await apply_revisions(db, [Setting], folder / "revisions")
    await db.policies(Customer).set("readers", "r", expires_at=NOON + 3650 * DAY)


async def make_queues_and_logs(db: Database) -> None:
    """Queues in a table, and logs in blobs."""
    queues = TableQueueStore(db.store)
    await queues.create_queue("mail")
    await queues.put("mail", b"first")
    await queues.take("mail", 1, 30)
    await queues.put("mail", b"second", ttl_seconds=999_999_999)
    async with LogStream(db, "queue") as log:
        await log.write({"operation": "PutMessage", "status": 201}, at=NOON)
    async with LogStream(db, "queue", durable=True) as log:
        await log.write({"operation": "GetMessages", "status": 200}, at=NOON + dt.timedelta(hours=1))


async def note_cursors(db: Database, facts: Facts) -> None:
    """Cursors, which programs keep."""
    pages: dict[str, Page[Any]] = {
        "page": await db.select(Order).where(Order.shop == NORTH).page(1),
        "page by index": await db.select(Order.by_code).where(Order.shop == NORTH).page(1),
        "page of periods": await db.select(Login).where(Login.user == "ann").allow_scan().page(1),
        "page with limit": await db.select(Item).where(Item.shop == NORTH, Item.shelf == "a").limit(5).page(2),
    }
    facts |= {name: page.cursor for name, page in pages.items()}
    reports: list[str | None] = []
    await db.audit(Customer, Order, Mate, parallel=1, on_progress=lambda report: reports.append(report.cursor))
    facts["audit"] = next(cursor for cursor in reports if cursor is not None)


async def export(db: Database) -> Facts:
    """Return all rows, blobs and messages."""
    blobs: Facts = {}
    for container in await db.blobs.list_containers():
        blobs[container] = {
            info.name: {"metadata": dict(info.metadata), "data": _as_text(await db.blobs.read(container, info.name))}
            for info in (await db.blobs.list_blobs(container)).blobs
        }
    return {
        "tables": {name: await everything(db.store, name) for name in await db.store.list_tables()},
        "blobs": blobs,
        "messages": [json.loads(message.body) for message in await db.queues.peek(OUTBOX, 32)],
    }


def _as_text(data: bytes) -> str:
    """Return the text of a blob; of one that is sealed base64."""
    return b64encode(data).decode() if data.startswith(b"tableorm blob") else data.decode()


async def make_wide(db: Database) -> None:
    """Entities of several rows, one of which was changed since."""
    await db.create_tables(DayOfPartsV1)
    await db.queues.create_queue(OUTBOX)
    for number in (1, 2):
        day = DayOfPartsV1(user="ann", day=number, text="t")
        day.sent[0] = day.sent[15] = number
        day.extra["other"] = "o"
        await db.insert(day)
        if number == 2:
            day.sent[5] = 7
            await db.save(day)


async def make_blobs(db: Database, url: str) -> None:
    """Entities with blobs, one of which has moved; an upload that was given up, one that was begun, and one dropped."""
    await db.create_tables(Poster)
    for number in (1, 2, 3):
        await db.insert(Poster(wall="east", id=number, picture=Blob(f"p{number}".encode(), "text/plain")))
    await db.move(await db.get(Poster, wall="east", id=2), wall="west")
    await _upload_and_die(url, Poster(wall="east", id=4, picture=Blob(b"given up")))
    CLOCK.advance(DAY)
    async with db.worker(Poster) as worker:
        await worker.drain()
    await _upload_and_die(url, Poster(wall="east", id=5, picture=Blob(b"begun")))
    async with connect(url, retry=QUICK) as dying:
        poster = await dying.get(Poster, wall="east", id=3)
        poster.picture = Blob(b"p3 again")
        fail_between(dying).plan(Fate.FINE, *DEAD)
        await dying.save(poster)
    CLOCK.advance(DAY)


async def make_encrypted(url: str) -> None:
    """Rows with encrypted fields: of two keys, one changed since, and what the model does not know."""
    older = KeyRing({"2025": bytes(range(32))}, wrap_with="2025")
    for number, keys in enumerate([older, KEYS, KEYS], 1):
        async with connect(url, retry=QUICK, encryption=Encryption(keys, lambda _, __, name: name == "other")) as db:
            await db.create_tables(Secret)
            secret = Secret(user="ann", id=number, text=f"text {number}", scan=b"\0\xff")
            secret.extra["other"] = "o"
            await db.insert(secret)
            if number == 2:
                secret.text, secret.level, secret.long = "newer text", 2, "\u20ac" * 22_000
                await db.save(secret)
    async with connect(url) as db:
        await db.queues.create_queue(OUTBOX)


async def make_sealed_blobs(url: str) -> None:
    """An entity of several rows, with an encrypted blob and an encrypted series, that was replaced since."""
    async with connect(url, retry=QUICK, encryption=Encryption(KEYS)) as db:
        await db.create_tables(Xray)
        await db.queues.create_queue(OUTBOX)
        xray = Xray(user="ann", id=1, image=Blob(b"\0\xff" * 40_000, "image/png"), doses=[1, 0, 3])
        await db.insert(xray)
        xray.note = "n"
        await db.replace(xray)


async def make_across(db: Database, url: str) -> None:
    """Counts, sums and copies across partitions: some are right, others are still to be made so."""
    await db.create_tables(Firm, Hand)
    await db.insert(Firm(name="a", title="first"))
    for number in range(3):
        await db.insert(Hand(town=("north", "south")[number % 2], id=number, firm="a", wage=number))
    async with connect(url, retry=QUICK) as dying:
        firm = await dying.get(Firm, name="a")
        firm.title = "second"
        fail_between(dying).plan(Fate.FINE, *DEAD)
        await dying.save(firm)
    async with connect(url, retry=QUICK) as dying:
        fail_between(dying).plan(Fate.FINE, *DEAD)
        await dying.insert(Hand(town="north", id=9, firm="a", wage=9))
    CLOCK.advance(DAY)


async def _upload_and_die(url: str, poster: Poster) -> None:
    async with connect(url, retry=QUICK) as dying:
        fail_between(dying).plan(*DEAD)
        with suppress(OutcomeUnknown):
            await dying.insert(poster)


async def make_lists(db: Database) -> None:
    """Entities with an index entry for each element of a list, one of which was changed since."""
    await db.create_tables(Reader)
    await db.queues.create_queue(OUTBOX)
    notes = [Note.key(box="in|out", id=number) for number in (1, 2)]
    await db.insert(Reader(town="lund", id=1, tags=["a_b"], notes=notes[:1]))
    reader = Reader(town="lund", id=2, tags=["a_b", "c/d"], notes=notes)
    await db.insert(reader)
    reader.tags.remove("a_b")
    await db.save(reader)


async def make_cascades(db: Database) -> None:
    """Two entities that are being deleted after their children; one of them is gone, and has got a child since."""
    await db.create_tables(Chest, Coin)
    for name in ("a", "b"):
        await db.insert(Chest(name=name))
        await db.insert(Coin(chest=name, id=1))
        await db.delete(Chest, name=name, if_match="*")
    connection, table = connection_of(db), Chest.__schema__.table_name()
    for decision in await read_decisions(connection, table, "chests"):
        if decision.works[0].row_key == "chest_b":
            await carry_out_cascades(connection, db, table, {"cascade Chest": Chest.__schema__}, decision)
    await db.insert(Coin(chest="b", id=2))
    CLOCK.advance(DAY)


async def make_first(db: Database, url: str, folder: Path, cursors: Facts) -> None:
    """All that the first file has."""
    await db.create_tables(*MODELS)
    await make_entities(db)
    await make_feed(db, cursors)
    await make_workflows(db, url)
    await make_unfinished(db, url)
    await make_moves(url)
    await make_rekeys(db, url)
    await make_upkeep(db, folder)
    await make_queues_and_logs(db)
    await note_cursors(db, cursors)
    CLOCK.advance(DAY)  # so that messages are seen


async def make(folder: Path, number: str) -> None:
    """Make the files: 1 has what the first version stored, 2 fields of several properties, 3 wide entities, 4 blobs,
    5 encrypted fields, 6 encrypted blobs, 7 counts, sums and copies across partitions, 8 indexes of lists, 9 deletes
    with children.
    """
    CLOCK.freeze(NOON)
    cursors: Facts = {}
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "stored.tables"
        url = f"local:{path}"
        async with connect(url, retry=QUICK) as db:
            if number == "1":
                await make_first(db, url, folder, cursors)
            elif number == "2":
                await make_fields(db)
            elif number == "3":
                await make_wide(db)
            elif number == "5":
                await make_encrypted(url)
            elif number == "6":
                await make_sealed_blobs(url)
            elif number == "7":
                await make_across(db, url)
            elif number == "8":
                await make_lists(db)
            elif number == "9":
                await make_cascades(db)
            else:
                await make_blobs(db, url)
            facts = {"cursors": cursors, **await export(db)}
        (folder / f"{number}.tables.gz").write_bytes(gzip.compress(path.read_bytes(), 9, mtime=0))
        (folder / f"{number}.json").write_text(json.dumps(facts, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    asyncio.run(make(Path(sys.argv[1]), sys.argv[2]))
