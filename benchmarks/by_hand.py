"""
What a careful programmer writes without the library: the yardstick of the benchmarks.

The same durability (WAL, synchronous=FULL), one clustered tree, JSON per row; nothing is checked, there are no models,
no conditions, and what is written has no time stamps. What is read are the same rows as the engine's, and once more
rows that hold nothing but values.
"""

import asyncio
import datetime as dt
import threading
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import apsw
import attrs
import orjson

_START = dt.datetime(2013, 1, 1, 5, tzinfo=dt.UTC)


@attrs.define(slots=False, kw_only=True)
class PlainFlight:
    """A flight as an attrs class of its own."""

    origin: str
    number: int
    carrier: str
    destination: str
    tail: str | None
    scheduled: dt.datetime
    departed: dt.datetime | None
    delay: int | None
    distance: float
    seats: int
    cancelled: bool


def connect(path: Path) -> Any:
    """A connection to a file with one table of rows."""
    connection: Any = apsw.Connection(str(path))
    for pragma in (
        "page_size=8192",
        "journal_mode=WAL",
        "synchronous=FULL",
        "cache_size=-65536",
        "mmap_size=1073741824",
    ):
        connection.execute(f"PRAGMA {pragma}").fetchall()
    connection.execute(
        "CREATE TABLE IF NOT EXISTS rows (key BLOB PRIMARY KEY, body BLOB NOT NULL) WITHOUT ROWID, STRICT"
    )
    return connection


def key(origin: str, number: int) -> bytes:
    """The key of a flight."""
    return f"{origin}\0{number:07d}".encode()


def row_of(origin: str, number: int) -> dict[str, Any]:
    """The flight of that number as a row, straight from its values; the same as `model.flight` makes."""
    scheduled = _START + dt.timedelta(minutes=number % 500_000)
    return {
        "PartitionKey": origin,
        "RowKey": f"{number:07d}",
        "carrier": ("UA", "AA", "B6", "DL")[number % 4],
        "destination": ("IAH", "MIA", "BQN", "ATL", "ORD")[number % 5],
        "tail": f"N{10_000 + number % 4000}",
        "scheduled@odata.type": "Edm.DateTime",
        "scheduled": scheduled.isoformat(),
        "departed@odata.type": "Edm.DateTime",
        "departed": (scheduled + dt.timedelta(minutes=number % 60 - 5)).isoformat(),
        "delay": number % 60 - 5,
        "distance": float(200 + number % 2400),
        "seats@odata.type": "Edm.Int64",
        "seats": str(100 + number % 200),
        "cancelled": number % 100 == 0,
    }


def get(connection: Any, origin: str, number: int) -> dict[str, Any]:
    """A point read to a dictionary."""
    body = connection.execute("SELECT body FROM rows WHERE key = ?", (key(origin, number),)).get
    row: dict[str, Any] = orjson.loads(body)
    return row


def stream(connection: Any, origin: str) -> Iterator[PlainFlight]:
    """The flights of an origin, with the Python values that the model has."""
    low, high = origin.encode() + b"\0", origin.encode() + b"\1"
    moment = dt.datetime.fromisoformat
    loads = orjson.loads
    for (body,) in connection.execute("SELECT body FROM rows WHERE key >= ? AND key < ? ORDER BY key", (low, high)):
        row = loads(body)
        departed = row.get("departed")
        yield PlainFlight(
            origin=row["PartitionKey"],
            number=int(row["RowKey"]),
            carrier=row["carrier"],
            destination=row["destination"],
            tail=row.get("tail"),
            scheduled=moment(row["scheduled"]),
            departed=None if departed is None else moment(departed),
            delay=row.get("delay"),
            distance=row["distance"],
            seats=int(row["seats"]),
            cancelled=row["cancelled"],
        )


class GroupCommit:
    """Durable inserts: one thread takes what waits, writes it in one transaction, and wakes the tasks at once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._queue: SimpleQueue[tuple[bytes, bytes, asyncio.Future[None]] | None] = SimpleQueue()
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    async def insert(self, row_key: bytes, row: dict[str, Any]) -> None:
        """Durable when it returns."""
        future: asyncio.Future[None] = self._loop.create_future()
        self._queue.put((row_key, orjson.dumps(row), future))
        await future

    def close(self) -> None:
        """End the thread."""
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        connection = connect(self._path)
        while (first := self._queue.get()) is not None:
            batch = [first]
            while not self._queue.empty():
                more = self._queue.get()
                if more is None:
                    self._queue.put(None)
                    break
                batch.append(more)
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany("INSERT INTO rows VALUES (?, ?)", [item[:2] for item in batch])
            connection.execute("COMMIT")
            self._loop.call_soon_threadsafe(_wake, [item[2] for item in batch])
        connection.close()


def _wake(futures: list["asyncio.Future[None]"]) -> None:
    for future in futures:
        if not future.done():
            future.set_result(None)
