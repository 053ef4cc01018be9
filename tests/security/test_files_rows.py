"""
Database files made by somebody else whose rows contradict the place where they are stored: they say the keys of another
row, or show an ETag under which nobody could write them, or everybody.
"""

import struct
from pathlib import Path

import pytest

from tableorm import (
    Database,
    Entity,
    Index,
    Mapped,
    PreconditionFailed,
    RetryPolicy,
    TableOrmError,
    connect,
    field,
)
from tests.security.test_files import craft


class Ship(Entity, table="MisplacedShips", partition_key="{port}", row_key="ship_{id}"):
    port: Mapped[str]
    id: Mapped[int]
    note: Mapped[str] = field(default="")

    by_note = Index(row_key="note_{note}_{id}")


@pytest.fixture
async def path(tmp_path: Path) -> Path:
    """A file with two partitions of ships."""
    path = tmp_path / "crafted.tables"
    async with connect(f"local:{path}") as db:
        await db.create_tables(Ship)
        for port in ("Rome", "Ürün", "😀"):
            for number in range(3):
                await db.insert(Ship(port=port, id=number))
    return path


def open_crafted(path: Path) -> Database:
    return connect(f"local:{path}", retry=RetryPolicy(attempts=1))


def place(port: str, row_key: str) -> str:
    """Return the condition of the row that is stored under these keys."""
    return "key = x'" + f"{port}\0{row_key}".encode().hex() + "'"


def say(path: Path, port: str, row_key: str, other: str, other_row: str) -> None:
    """Let a row say what another one says, keys included, and leave it where it is."""
    body = f"(SELECT body FROM t1 WHERE {place(other, other_row)})"
    craft(path, f"UPDATE t1 SET body = {body} WHERE {place(port, row_key)}")


@pytest.mark.parametrize("other", ["Rome", "Ürün"])
async def test_a_row_that_says_the_keys_of_another_row_is_damage(path: Path, other: str) -> None:
    """A query gives no row of another partition, and who deletes what it finds deletes nothing there."""
    say(path, "Rome", "ship_1", other, "ship_2")
    async with open_crafted(path) as db:
        ships = db.select(Ship).where(Ship.port == "Rome")
        for read in (ships.all(), ships.count(), ships.delete(), db.select_raw("MisplacedShips").allow_scan().all()):
            with pytest.raises(TableOrmError, match="and it is stored under"):
                await read
        assert await db.exists(Ship, port=other, id=2)


async def test_a_row_that_says_keys_before_its_own_ends_pages(path: Path) -> None:
    """Pages follow the keys of the rows that they end with: one that goes back would let them begin again and again."""
    say(path, "Rome", "ship_2", "Rome", "ship_0")
    async with open_crafted(path) as db:
        ships, cursor = db.select(Ship).where(Ship.port == "Rome"), None
        with pytest.raises(TableOrmError, match="and it is stored under"):
            for _ in range(10):
                page = await ships.page(1, cursor)
                cursor = page.cursor


async def test_keys_of_all_characters_are_read(path: Path) -> None:
    """What is compared are the keys, however many bytes their characters have."""
    async with open_crafted(path) as db:
        assert len(await db.select(Ship).allow_scan().all()) == 9
        assert len(await db.select(Ship).where(Ship.port == "😀").all()) == 3


async def test_a_row_under_another_form_of_its_key_is_damage(path: Path) -> None:
    """A key has one form in a file: a row under another one, which point reads do not find, is no second version."""
    stored = "😀".encode("utf-16-be")
    surrogates = "".join(map(chr, struct.unpack(">2H", stored))).encode("utf-8", "surrogatepass").hex()
    wrong = f"CAST(x'{'😀'.encode().hex()}' || substr(key, {1 + len(surrogates) // 2}) AS BLOB)"
    craft(path, f"UPDATE t1 SET key = {wrong} WHERE substr(key, 1, {len(surrogates) // 2}) = x'{surrogates}'")
    async with open_crafted(path) as db:
        with pytest.raises(TableOrmError, match="and it is stored under"):
            await db.select(Ship).allow_scan().all()
        for port in ("Rome", "Ürün"):
            assert len(await db.select(Ship).where(Ship.port == port).all()) == 3


def set_etag(path: Path, etag: str, where: str = "") -> None:
    body = f"""CAST(json_set(CAST(body AS TEXT), '$."odata.etag"', '{etag}') AS BLOB)"""
    craft(path, f"UPDATE t1 SET body = {body}{where}")


@pytest.mark.parametrize("tick", [None, 5, -1, 2**62])
async def test_an_etag_that_is_not_that_of_the_tick(path: Path, tick: int | None) -> None:
    """A row is written under the ETag that it shows, once, instead of again and again without success."""
    if tick is None:
        set_etag(path, "W/\"datetime''2026-01-01T00%3A00%3A00.0000000Z''\"")
    else:
        craft(path, f"UPDATE t1 SET ts = {tick}")
    async with open_crafted(path) as db:
        one, two = await db.get(Ship, port="Rome", id=1), await db.get(Ship, port="Rome", id=1)
        one.note = two.note = "x"
        requests = db.stats.requests
        await db.save(one)
        await db.modify(Ship.key(port="Rome", id=2), lambda ship: setattr(ship, "note", "y"))
        assert db.stats.requests - requests < 20
        with pytest.raises(PreconditionFailed):
            await db.replace(two)


@pytest.mark.parametrize("etag", ["*", " *", "*\t", "", "x" * 45, "x" * 47, "*" * 46, "x" * 2_000_000])
async def test_what_is_no_etag_is_damage(path: Path, etag: str) -> None:
    """No row lets its reader overwrite what others have written since, nor send a header that is too large."""
    set_etag(path, etag)
    async with open_crafted(path) as db:
        for read in (db.get(Ship, port="Rome", id=1), db.select(Ship).where(Ship.port == "Rome").all()):
            with pytest.raises(TableOrmError, match="its ETag and Timestamp are") as caught:
                await read
            assert len(str(caught.value)) < len(str(path)) + 1000


async def test_an_etag_among_others_is_damage(path: Path) -> None:
    """What is wrong with one is not made up for by the others of a page."""
    for etags in (("*", "x" * 91), ("", "x" * 92), ("x", "x" * 91)):
        for number, etag in enumerate(etags):
            set_etag(path, etag, f" WHERE {place('Rome', f'ship_{number}')}")
        async with open_crafted(path) as db:
            with pytest.raises(TableOrmError, match="its ETag and Timestamp are"):
                await db.select(Ship).where(Ship.port == "Rome").all()
