"""
Database files made by somebody else whose list of tables contradicts itself: a table is found by another name than it
has, or has a name that no table can have. A list of tables would never end, and nobody could drop such a table.
"""

import asyncio
from pathlib import Path

import pytest

from tableorm.protocol.codes import Fault
from tableorm_local.engine import Engine
from tests.security.test_files import craft, path, refused
from tests.security.world import serve_file

__all__ = ["path"]

_LONGEST = "t" * 63


@pytest.mark.parametrize(
    ("name", "folded"),
    [
        ("'aaa'", "'zz0'"),
        ("'Things'", "'Things'"),
        ("'Tables'", "'tables'"),
        ("'ab'", "'ab'"),
        (f"'{_LONGEST}t'", f"'{_LONGEST}t'"),
        ("''", "''"),
        ("'1abc'", "'1abc'"),
        ("'a_bc'", "'a_bc'"),
        ("'a-bc'", "'a-bc'"),
        ("'abc' || char(10)", "'abc' || char(10)"),
        ("'abc' || char(0)", "'abc' || char(0)"),
        ("'abcü'", "'abcü'"),
        ("'abc' || char(0x0130)", "'abci'"),
        ("replace(hex(zeroblob(100000)), '0', 'x')", "'abc'"),
    ],
)
async def test_a_name_that_no_table_has(path: Path, name: str, folded: str) -> None:
    """A file is refused if a table has a name that is not allowed, or is found by another one."""
    craft(path, f"UPDATE catalog SET name = {name}, folded = {folded}")
    error = str(await refused(path))

    assert error.startswith(f"{str(path)!r} is damaged (no table can have the name '")
    assert error.endswith("'); restore it from a backup.")
    assert len(error) < len(str(path)) + 300


@pytest.mark.parametrize("name", ["abc", "Z09", "tABLES1", _LONGEST.upper()])
async def test_a_name_that_a_table_has(path: Path, name: str) -> None:
    """All names that are allowed are, in any letter case."""
    craft(path, f"UPDATE catalog SET name = '{name}', folded = '{name.lower()}'")
    engine = Engine(path)
    await engine.open()

    assert await engine.list_tables() == [name]
    await engine.close()


@pytest.mark.parametrize("query", ["$filter=TableName%20eq%20'none'", "", "$top=1"])
async def test_a_list_that_goes_back_is_damage(path: Path, query: str) -> None:
    """If names contradict their places in a file that is open, a list of tables fails, and does not begin anew."""
    async with serve_file(path) as (_, api):
        count = "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 1499)"
        craft(path, f"{count} INSERT INTO catalog (folded, name) SELECT printf('zz%06d', i), 'aaa' FROM n")
        async with asyncio.timeout(5):
            reply = await api("GET", "/Tables", query=query)

        assert (reply.status, reply.code) == (500, "InternalError")
        assert b"the file is damaged" in reply.body


async def test_a_list_of_some_names_is_damage_by_these_alone(path: Path) -> None:
    """Who lists other tables does not notice it."""
    engine = Engine(path)
    await engine.open()
    craft(path, "INSERT INTO catalog (folded, name) VALUES ('zzz', 'aaa')")
    assert await engine.list_tables("", 1) == ["Things"]
    with pytest.raises(Fault, match="the file is damaged"):
        await engine.list_tables()
    await engine.close()
