"""
Rows of a crafted file that would end a measurement of a table.
"""

from pathlib import Path

from tableorm import PropertyBag, connect
from tableorm.advice import measure_table
from tests.security.test_files import craft


async def test_a_binary_that_is_none_is_counted(tmp_path: Path) -> None:
    """A row of a crafted file whose Binary is a number ends no measurement."""
    path = tmp_path / "crafted.tables"
    async with connect(f"local:{path}") as db:
        await db.create_tables("Tab")
        await db.insert(PropertyBag("Tab", "p", "r", {"Data": b"x"}))
    craft(path, "UPDATE t1 SET body = CAST(json_set(CAST(body AS TEXT), '$.Data', 5) AS BLOB)")
    async with connect(f"local:{path}") as db:
        assert (await measure_table(db, "Tab")).rows == 1
