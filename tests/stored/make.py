"""
Makes the stored files: a database of the embedded engine that holds a form of what tableorm stores, and what is in it
as JSON.

    python -m tests.stored.make FOLDER NUMBER

It writes `NUMBER.tables.gz` and `NUMBER.json` into the folder. Files that are committed are never made again, since
they are what an older program has written. So there is only what made the last one; if there is something new to store,
put that in its place, and write files with the next number.

1 has what the first version stored, 2 fields of several properties, 3 wide entities, 4 blobs, 5 encrypted fields, 6
encrypted blobs, 7 counts, sums and copies across partitions, 8 indexes of lists, 9 deletes with children.
"""

import asyncio
import datetime as dt
import gzip
import json
import sys
import tempfile
from base64 import b64encode
from pathlib import Path
from typing import Any

from tableorm import Database, connect
from tableorm.connection.connection import connection_of
from tableorm.outbox.bell import OUTBOX
from tableorm.outbox.decision import read_decisions
from tableorm.relations.cascade import carry_out_cascades
from tableorm.stores import CLOCK
from tableorm.testing.contract.base import everything
from tests.faults import QUICK
from tests.stored.shop import Chest, Coin

NOON = dt.datetime(2025, 1, 6, 12, tzinfo=dt.UTC)
Facts = dict[str, Any]
"""What the JSON has: rows, blobs, messages, and texts that programs keep, such as cursors."""


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
            await carry_out_cascades(connection, table, {"cascade Chest": Chest.__schema__}, decision)
    await db.insert(Coin(chest="b", id=2))
    CLOCK.advance(dt.timedelta(days=1))  # so that messages are seen


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


async def make(folder: Path, number: str) -> None:
    """Make the files with a number."""
    CLOCK.freeze(NOON)
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "stored.tables"
        async with connect(f"local:{path}", retry=QUICK) as db:
            await make_cascades(db)
            facts: Facts = {"cursors": {}, **await export(db)}
        (folder / f"{number}.tables.gz").write_bytes(gzip.compress(path.read_bytes(), 9, mtime=0))
        (folder / f"{number}.json").write_text(json.dumps(facts, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    asyncio.run(make(Path(sys.argv[1]), sys.argv[2]))
