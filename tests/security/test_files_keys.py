"""
Database files made by somebody else with keys that are larger than any: a query collects many keys at once, and a look
at any row compares its key with those of others.
"""

from pathlib import Path

import pytest

from tableorm.protocol.codes import Fault
from tableorm.protocol.filters import Compare, Op, constant
from tableorm.stores import Bounds, Operation, RowQuery, Verb
from tableorm_local.engine import Engine, scan
from tableorm_local.engine.damage import find_damage
from tests.security.test_files import craft, path

__all__ = ["path"]

_LARGEST = "\uffff" * 512  # three bytes each


def insert_large(path: Path, row_key: str) -> None:
    """Put a row with this RowKey, an expression, behind those that are there. It says the keys that it is stored by."""
    craft(
        path,
        f"INSERT INTO t1 SELECT CAST('p' || char(0) || {row_key} AS BLOB), ts, "
        f"CAST(json_set(CAST(body AS TEXT), '$.RowKey', {row_key}) AS BLOB) FROM t1 LIMIT 1",
    )


@pytest.mark.parametrize(
    ("query", "limit"),
    [
        (RowQuery(), 1000),
        (RowQuery(), 2),
        (RowQuery(Bounds.only("p"), select=("N",)), 1000),
        (RowQuery(row=Bounds("b")), 1000),
        (RowQuery(row=Bounds("b")), 1),
        (RowQuery(row=Bounds.only("b")), 1000),
        (RowQuery(where=Compare("N", Op.EQ, constant(5))), 1000),
    ],
    ids=["all", "full page", "one partition", "RowKeys", "full page of RowKeys", "other RowKeys", "a condition"],
)
async def test_a_key_that_is_too_large_is_damage(path: Path, query: RowQuery, limit: int) -> None:
    """A query does not read a key that is larger than any, wherever it meets it, and gives no page that ends there."""
    insert_large(path, "printf('%.*c', 3072, 'x')")
    engine = Engine(path)
    await engine.open()
    with pytest.raises(Fault, match="the file is damaged"):
        await engine.query("Things", query, limit)
    assert [row["RowKey"] for row in (await engine.query("Things", RowQuery(), 1)).rows] == ["a"]
    await engine.close()


async def test_the_first_of_many_large_keys_is_damage(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many such keys none is kept in memory, and the rows before them are the only ones that are looked at."""
    for number in range(20):
        insert_large(path, f"'{number:02}' || printf('%.*c', 100000, 'x')")
    orders = list[bytes]()
    check = scan.PageScan._check_order  # pyright: ignore[reportPrivateUsage]

    def note(page: scan.PageScan, key: bytes) -> None:
        orders.append(key)
        check(page, key)

    monkeypatch.setattr(scan.PageScan, "_check_order", note)
    engine = Engine(path)
    await engine.open()
    with pytest.raises(Fault, match="the file is damaged"):
        await engine.query("Things", RowQuery())
    assert orders == []
    await engine.close()


async def test_the_largest_keys_are_read(path: Path) -> None:
    """Keys of the most characters, each of the most bytes, are not too large, also where a page ends with them."""
    engine = Engine(path)
    await engine.open()
    await engine.write("Things", Operation(Verb.INSERT, {"PartitionKey": _LARGEST, "RowKey": _LARGEST}))
    first = await engine.query("Things", RowQuery(), 2)
    for query in (RowQuery(), RowQuery(row=Bounds("b"))):
        assert (await engine.query("Things", query)).rows[-1]["RowKey"] == _LARGEST
    last = await engine.query("Things", RowQuery(), 2, first.continuation)
    assert [row["PartitionKey"] for row in last.rows] == [_LARGEST]
    assert await engine.read(find_damage) is None
    await engine.close()


@pytest.mark.parametrize(
    "change", ["key = CAST('p' || char(0) || printf('%.*c', 3072, 'x') AS BLOB)", f"body = zeroblob({(16 << 20) + 1})"]
)
async def test_rotating_the_key_finds_large_rows(path: Path, change: str) -> None:
    """
    `tableorm keys rotate` refuses a file with a key or a body that is larger than any: SQLite reads both whole when it
    compares the row with the one that is looked for, so each look at another row would take long.
    """
    craft(path, f"UPDATE t1 SET {change} WHERE key = x'700062'")
    engine = Engine(path)
    await engine.open()
    assert await engine.read(find_damage) == "'t1' has a row that is larger than any may be"
    await engine.close()
