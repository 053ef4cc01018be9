"""
Database files made by somebody else whose list of tables looks right, but of which SQLite or the engine would see
something else later: names in another letter case, pages that are no numbers, texts in another encoding.
"""
# ruff: noqa: ASYNC240 - a test may look at its files

from pathlib import Path
from typing import Any

import apsw
import pytest

from tableorm.errors import NotSupported, Unavailable
from tableorm.protocol.codes import Fault
from tableorm_local.engine import Engine, catalog
from tableorm_local.engine.sqlite import connect
from tests.security.test_files import craft, path, reads, refused

__all__ = ["path"]

_SET = "UPDATE sqlite_schema SET {} WHERE name = '{}'"


async def delete_without_freeing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Delete the table of the file, and leave its pages to be freed later."""
    monkeypatch.setattr("tableorm_local.engine.reclaim._RECLAIMERS", ())
    engine = Engine(path)
    await engine.open()
    await engine.delete_table("Things")
    await engine.close()
    path.with_name(path.name + "-lock").unlink()


_FORMS = ["tbl_name = upper(tbl_name)", "tbl_name = CAST(tbl_name AS BLOB)", "tbl_name = 'settings'", "type = 'TABLE'"]


@pytest.mark.parametrize("change", _FORMS)
@pytest.mark.parametrize("table", ["t1", "settings"])
async def test_a_table_that_is_described_otherwise(path: Path, table: str, change: str) -> None:
    """The whole row that describes a table must be as the engine makes it: SQLite goes by each column of it."""
    if (table, change) == ("settings", "tbl_name = 'settings'"):
        change = "tbl_name = 'Settings'"
    craft(path, _SET.format(change, table))

    await refused(path)


@pytest.mark.parametrize("change", _FORMS)
async def test_a_deleted_table_that_is_described_otherwise(
    path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """So must that of a deleted table: otherwise its pages would be freed, and its name be left with them."""
    await delete_without_freeing(path, monkeypatch)
    craft(path, _SET.format(change, "gone_1"))

    await refused(path)


@pytest.mark.parametrize(
    ("name", "page"),
    [
        ("t1", "CAST(rootpage AS BLOB)"),
        ("t1", "rootpage + 0.5"),
        ("t1", "(SELECT CAST(rootpage AS BLOB) FROM sqlite_schema WHERE name = 'settings')"),
        ("t1", "(SELECT rootpage FROM sqlite_schema WHERE name = 'settings')"),
        ("settings", "CAST(rootpage AS BLOB)"),
        ("messages_by_time", "CAST(rootpage AS BLOB)"),
    ],
)
async def test_a_page_that_is_no_number_of_its_own(path: Path, name: str, page: str) -> None:
    """Tables and indexes begin at pages of their own, which are whole numbers: SQLite finds and compares them so."""
    craft(path, _SET.format(f"rootpage = {page}", name))
    error = await refused(path)

    assert isinstance(error, Unavailable)


async def test_a_table_that_is_there_twice(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table and a deleted one of the same number do not stand side by side: the former could not be deleted."""
    await delete_without_freeing(path, monkeypatch)
    rows: Any = apsw.Connection(str(path))
    made: str = rows.execute("SELECT sql FROM sqlite_schema WHERE name = 'gone_1'").get
    rows.close()
    craft(path, made.replace('"gone_1"', "t1"), "INSERT INTO catalog VALUES (1, 'things', 'Things')")

    assert "two tables with the number 1" in str(await refused(path))


@pytest.mark.parametrize("mode", ["FULL", "INCREMENTAL"])
async def test_a_file_whose_tables_move(path: Path, mode: str) -> None:
    """A file in which SQLite moves tables to other pages when one is dropped is refused; a tool can pack it anew."""
    craft(path, "PRAGMA journal_mode = DELETE", f"PRAGMA auto_vacuum = {mode}", "VACUUM")
    error = await refused(path)

    assert isinstance(error, NotSupported)
    assert "PRAGMA auto_vacuum = NONE; VACUUM" in str(error)
    craft(path, "PRAGMA auto_vacuum = NONE", "VACUUM")
    assert await reads(path) == ["a", "b"]


@pytest.mark.parametrize("encoding", ["UTF-16le", "UTF-16be"])
async def test_a_file_in_another_encoding(path: Path, encoding: str) -> None:
    """A file whose texts are not in UTF-8 is refused: names would sort in another order than they are listed in."""
    old: Any = apsw.Connection(str(path))
    made = list(old.execute("SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY rowid"))
    names = [name for name, sql in made if sql.startswith("CREATE TABLE")]
    contents = {name: list(old.execute(f"SELECT * FROM {name}")) for name in names}
    numbers = [old.execute(f"PRAGMA {pragma}").get for pragma in ("application_id", "user_version")]
    old.close()
    path.unlink()
    new: Any = apsw.Connection(str(path))
    new.execute(f"PRAGMA encoding = '{encoding}'; PRAGMA page_size = 8192")
    new.execute("PRAGMA application_id = {}; PRAGMA user_version = {}".format(*numbers))
    for name, sql in made:
        if name != "sqlite_sequence":
            new.execute(sql)
    for name in names:
        for row in contents[name]:
            new.execute(f"REPLACE INTO {name} VALUES ({', '.join('?' * len(row))})", row)
    new.close()
    error = await refused(path)

    assert isinstance(error, NotSupported)
    assert encoding in str(error)


async def test_a_deleted_table_that_stays_in_the_schema(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If a table is still listed after its pages were freed, that is damage, and its pages are not given to others."""
    await delete_without_freeing(path, monkeypatch)
    craft(path, _SET.format("tbl_name = 'GONE_1'", "gone_1"))
    connection = connect(str(path), apsw.SQLITE_OPEN_READWRITE)
    connection.execute("BEGIN")
    with pytest.raises(apsw.CorruptError, match="gone_1"):
        catalog.reclaim(connection, 10)
    connection.close()


async def test_a_name_without_a_table(path: Path) -> None:
    """A name in the catalog without its table is damage: a table of that name could be neither made nor deleted."""
    craft(path, "INSERT INTO catalog VALUES (50, 'orders', 'Orders')")
    problem = "the table 'Orders' is in its catalog, but not in the file"
    assert str(await refused(path)) == f"{str(path)!r} is damaged ({problem}); restore it from a backup."


async def test_rows_of_a_table_that_is_listed(path: Path) -> None:
    """Names and tables that belong together open, also deleted ones and those whose numbers are far apart."""
    engine = Engine(path)
    await engine.open()
    await engine.create_table("Second")
    await engine.delete_table("Second")
    await engine.create_table("Third")
    with pytest.raises(Fault):
        await engine.create_table("THIRD")
    await engine.close()

    assert await reads(path) == ["a", "b"]
