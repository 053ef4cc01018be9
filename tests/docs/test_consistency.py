"""
The table of docs/derived/consistency.md: how many requests the writes of each declaration send.
"""

import asyncio
import datetime as dt
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from scripts.docs_pages import ROOT
from tableorm import Count, Database, Embedded, Entity, Feed, Index, IndexList, Mapped, connect, field
from tableorm.connection.connection import connection_of
from tableorm.testing import assert_requests


class Department(Entity, table="Firm", partition_key="{firm}", row_key="department_{name}"):
    firm: Mapped[str]
    name: Mapped[str]
    count: Mapped[int] = field(default=0, maintained=True)


class AnyPerson(Entity, abstract=True, partition_key="{firm}"):
    firm: Mapped[str]
    id: Mapped[int]
    city: Mapped[str]


class Plain(AnyPerson, table="Firm", row_key="plain_{id}"): ...


class Source(Entity, table="Firm", partition_key="{firm}", row_key="source_{id}", tracked=True):
    firm: Mapped[str]
    id: Mapped[str]
    city: Mapped[str]


class Indexed(AnyPerson, table="Firm", row_key="indexed_{id}"):
    by_city = Index(row_key="city_{city}_{id}")


class Listed(AnyPerson, table="Firm", row_key="listed_{id}"):
    by_city = IndexList(row_key="list_{city}")


class Counted(AnyPerson, table="Firm", row_key="counted_{id}"):
    counted = Count(lambda: Department.count, firm="{firm}", name="{city}")


class Holder(AnyPerson, table="Firm", row_key="holder_{id}"):
    copied: Mapped[str | None] = field(default=None, maintained=True)

    copies = Embedded(lambda: Source, {"copied": "city"}, firm="{firm}", id="{city}")


class Fed(AnyPerson, table="FirmChanges", row_key="fed_{id}"):
    changes = Feed(keep=dt.timedelta(days=7))


class Eventual(AnyPerson, table="Staff", row_key="eventual_{id}"):
    by_city = Index(partition_key="city_{city}", row_key="at_{firm}_{id}", consistency="eventual")


class Unique(AnyPerson, table="Staff", row_key="unique_{id}"):
    by_city = Index(partition_key="only_{city}", row_key="one", unique=True, consistency="eventual")


class ListedElsewhere(AnyPerson, table="Staff", row_key="elsewhere_{id}"):
    by_city = IndexList(partition_key="list_{city}", row_key="people", consistency="eventual")


class ListedInBlobs(AnyPerson, table="Staff", row_key="blob_{id}"):
    by_city = IndexList(partition_key="list", row_key="{city}", blob=True, consistency="eventual")


class KeysOnly(AnyPerson, table="Firm", row_key="keys_{id}"):
    by_city = Index(row_key="kept_{city}_{id}", include="keys")


MODELS: dict[str, type[Any]] = {
    "a plain model": Plain,
    "`Index(row_key=)`": Indexed,
    "`IndexList(row_key=)`": Listed,
    "`Count`, `Sum`": Counted,
    "`Embedded`": Holder,
    "`Feed`": Fed,
    '`Index(partition_key=, consistency="eventual")`': Eventual,
    '`Index(partition_key=, unique=True, consistency="eventual")`': Unique,
    '`IndexList(partition_key=, consistency="eventual")`': ListedElsewhere,
    '`IndexList(blob=True, consistency="eventual")`': ListedInBlobs,
}

READS: dict[str, tuple[type[Any], Callable[[Database], Awaitable[list[Any]]]]] = {
    "a query of an `Index`": (
        Indexed,
        lambda db: db.select(Indexed.by_city).where(Indexed.firm == "a", Indexed.city == "1").all(),
    ),
    'a query of an `Index` with `include="keys"`': (
        KeysOnly,
        lambda db: db.select(KeysOnly.by_city).where(KeysOnly.firm == "a", KeysOnly.city == "1").all(),
    ),
    "`lookup` of an `IndexList`": (Listed, lambda db: db.lookup(Listed.by_city, firm="a", city="1")),
    "a query of an eventual `Index`": (
        Eventual,
        lambda db: db.select(Eventual.by_city).where(Eventual.city == "1").all(),
    ),
    "a query of an eventual `Index` with `.verify(False)`": (
        Eventual,
        lambda db: db.select(Eventual.by_city).where(Eventual.city == "1").verify(False).all(),
    ),
    "`lookup` of an eventual `IndexList`, in rows or in a blob": (
        ListedElsewhere,
        lambda db: db.lookup(ListedElsewhere.by_city, city="1"),
    ),
}


def said() -> dict[str, list[int]]:
    page = (ROOT / "docs/derived/consistency.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (.+?) \| .* \| (\d+), (\d+), (\d+) \|$", page, re.MULTILINE)
    return {row[0]: [int(number) for number in row[1:]] for row in rows}


@pytest.fixture
async def db() -> AsyncIterator[Database]:
    async with connect("local::memory:") as db:
        await db.create_tables(Department, Source, KeysOnly, *MODELS.values())
        for name in ("1", "2"):
            await db.insert(Department(firm="a", name=name))
            await db.insert(Source(firm="a", id=name, city="x"))
        await db.insert(Eventual(firm="a", id=9, city="makes the queue"))
        await db.insert(ListedInBlobs(firm="a", id=9, city="makes the container"))
        await asyncio.sleep(0.01)
        yield db


def test_every_declaration_is_measured() -> None:
    """The page names those that are measured here."""
    assert said().keys() == MODELS.keys()
    assert said_of_reads().keys() == READS.keys()


def said_of_reads() -> dict[str, int]:
    page = (ROOT / "docs/derived/consistency.md").read_text(encoding="utf-8")
    return {name: int(number) for name, number in re.findall(r"^\| (.+?) \| .* \| (\d+) \|$", page, re.MULTILINE)}


@pytest.mark.parametrize("name", READS)
async def test_requests_of_reads(db: Database, name: str) -> None:
    """Three entities of a value are read with as many requests as the page says."""
    model, read = READS[name]
    for number in (1, 2, 3):
        await db.insert(model(firm="a", id=number, city="1"))
    with assert_requests(db, said_of_reads()[name]):
        assert len(await read(db)) == 3


@pytest.mark.parametrize("name", MODELS)
async def test_requests(db: Database, name: str) -> None:
    """An insert, a change of the value and a delete send as many requests as the page says."""
    entity = MODELS[name](firm="a", id=3, city="1")

    async def change(changed: Any) -> None:
        changed.city = "2"
        await db.save(changed)

    found: list[int] = []
    verbs: list[Callable[[Any], Awaitable[object]]] = [db.insert, change, db.delete]
    for verb in verbs:
        before = db.stats.requests
        await verb(entity)
        later = connection_of(db)._later  # pyright: ignore[reportPrivateUsage]
        if later:
            await asyncio.wait(later)
        found.append(db.stats.requests - before)
    assert found == said()[name]
