"""
Database files made by somebody else whose rows have values that no service stores there: lists, objects and numbers,
also as what tells the kind of a row. Whatever is asked of them, an error of this package says that the file is damaged.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tableorm import (
    Count,
    Database,
    Entity,
    Index,
    IndexList,
    Mapped,
    PropertyBag,
    RetryPolicy,
    TableOrmError,
    connect,
    field,
)
from tests.security.test_files import craft

MEMBERS = (
    *("EntityType", "EntityVersion", "_ix", "_mv", "_w", "_of", "_v", "_un", "Timestamp", "odata.etag"),
    *("text", "text@odata.type", "count", "PartitionKey", "RowKey", "_p00", "new"),
)
VALUES = ('["CraftedNote"]', '{"a": [1]}')
NUMBERS = {"Timestamp": ("5",), "odata.etag": ("5",)}


class Topic(Entity, table="CraftedRows", partition_key="{topic}", row_key="topic"):
    topic: Mapped[str]
    count: Mapped[int] = field(default=0, maintained=True)


class CraftedNote(Entity, table="CraftedRows", partition_key="{topic}", row_key="note_{id}", version=2):
    topic: Mapped[str]
    id: Mapped[int]
    text: Mapped[str] = field(default="")

    by_text = Index(row_key="text_{text}_{id}")
    listed = IndexList(row_key="list_{text}")
    far = Index(partition_key="far_{text}", row_key="far_{topic}_{id}", consistency="eventual")
    counted = Count(lambda: Topic.count, topic="{topic}")


class Told(Entity, table="CraftedRows", partition_key="{topic}", row_key="note_{id}", discriminator="row_key"):
    topic: Mapped[str]
    id: Mapped[int]


NOTE = CraftedNote.key(topic="a", id=1)


def change(note: CraftedNote) -> None:
    note.text += "x"


async def change_all(db: Database) -> None:
    async with db.bulk(errors="report") as bulk:
        for number in (1, 2):
            await bulk.upsert(CraftedNote(topic="a", id=number, text="z"))
    for failure in bulk.report.failed:
        raise failure.error


ACTS: list[Callable[[Database], Awaitable[object]]] = [
    lambda db: db.get(NOTE),
    lambda db: db.get(Told, topic="a", id=1),
    lambda db: db.select(CraftedNote).where(CraftedNote.topic == "a").all(),
    lambda db: db.select(CraftedNote, Topic, PropertyBag).where(CraftedNote.topic == "a").all(),
    lambda db: db.select(Told).where(Told.topic == "a").all(),
    lambda db: db.select(CraftedNote.by_text).where(CraftedNote.topic == "a").all(),
    lambda db: db.select(CraftedNote.far).where(CraftedNote.text == "y").all(),
    lambda db: db.lookup(CraftedNote.listed, topic="a", text="y"),
    lambda db: db.select_raw("CraftedRows").allow_scan().all(),
    lambda db: db.modify(NOTE, change),
    lambda db: db.upsert(CraftedNote(topic="a", id=1, text="y")),
    change_all,
    lambda db: db.audit(CraftedNote, repair=True),
    lambda db: db.move(CraftedNote(topic="a", id=1), topic="b"),
    lambda db: db.delete(NOTE, if_match="*"),
    lambda db: db.select(CraftedNote).where(CraftedNote.topic == "a").delete(),
]


@pytest.mark.parametrize("member", MEMBERS)
async def test_values_of_no_type(tmp_path: Path, member: str) -> None:
    """One such value stands in all rows of the file: whatever is asked, nothing else than an error is raised."""
    for number, value in enumerate(VALUES + NUMBERS.get(member, ())):
        path = tmp_path / f"{number}.tables"
        async with connect(f"local:{path}", retry=RetryPolicy(attempts=1)) as db:
            await db.create_tables(Topic, CraftedNote)
            await db.insert(Topic(topic="a"))
            await db.insert(CraftedNote(topic="a", id=1, text="y"))
            await db.insert(CraftedNote(topic="a", id=2, text="y"))
        found = f"""json_set(CAST(body AS TEXT), '$."{member}"', json('{value}'))"""
        craft(path, *(f"UPDATE t{each} SET body = CAST({found} AS BLOB)" for each in (1, 2)))
        async with connect(f"local:{path}", retry=RetryPolicy(attempts=1)) as db:
            for act in ACTS:
                with suppress(TableOrmError):
                    await act(db)
