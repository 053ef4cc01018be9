"""
The command `tableorm check`: pages, and what the engine relies on.
"""

import asyncio
import random
from pathlib import Path

import pytest

from tableorm.stores import Row
from tests.commandline import run_command
from tests.local.engine.conftest import opened
from tests.local.engine.rows import change_file
from tests.rows import insert_row
from tests.security.test_files import craft, fill_others


async def fill(path: Path) -> None:
    """Write rows, settings, messages and blobs."""
    async with opened(path, "Things") as engine:
        for number in range(100):
            row: Row = {"PartitionKey": "p", "RowKey": f"Zürich-{number:03d}", "Text": "x" * number * 10}
            await insert_row(engine, "Things", row)
        await fill_others(engine, 1_000_000)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "data.tables"
    asyncio.run(fill(path))
    return path


def test_a_file_in_order(path: Path) -> None:
    """A file of every sort of content passes, and is not changed."""
    before = path.read_bytes()
    done = run_command("check", str(path))

    assert (done.returncode, done.stdout, done.stderr) == (0, f"{path} is in order\n", "")
    assert path.read_bytes() == before


_DAMAGE = {
    "has no rows' table": "DROP TABLE t1",
    "messages of a queue with the number 1": "DELETE FROM queues",
    "blobs of a container with the number 1": "DELETE FROM containers",
    "settings of a table with the number 7": "UPDATE settings SET owner = 7 WHERE owner = 1",
    "shares its content": "INSERT INTO blobs SELECT container, 'b', content, length, tick, 0, metadata FROM blobs",
    "will be deleted": "UPDATE contents SET until = 5",
    "overlap, or a gap": "DELETE FROM chunks WHERE start = (SELECT max(start) FROM chunks WHERE start < 600000)",
    "has not as many bytes": "UPDATE blobs SET length = length + 1",
    "says that its keys are": "UPDATE t1 SET body = CAST(replace(CAST(body AS TEXT), '-007', '-008') AS BLOB)",
    "cannot be read": "UPDATE t1 SET body = x'5b5d' WHERE key = (SELECT max(key) FROM t1)",
    "has the ETag '*'": "UPDATE t1 SET body = CAST(json_set(CAST(body AS TEXT), '$.\"odata.etag\"', '*') AS BLOB)",
}


@pytest.mark.one_of(3)
@pytest.mark.parametrize("problem", _DAMAGE)
def test_damage_is_named(path: Path, problem: str) -> None:
    """What is wrong is said with the file and the remedy."""
    change_file(path, _DAMAGE[problem])
    done = run_command("check", str(path))

    assert done.returncode == 1
    assert done.stdout == ""
    assert problem in done.stderr
    assert f"{str(path)!r} is damaged" in done.stderr


def test_an_index_that_lacks_an_entry(path: Path) -> None:
    """What an index says is compared with its table."""
    craft(
        path,
        "UPDATE sqlite_schema SET sql = replace(sql, 'WHERE until', 'WHERE id') WHERE name = 'contents_by_end'",
    )

    assert "missing from index contents_by_end" in run_command("check", str(path)).stderr


def test_bytes_of_a_page_that_are_lost(path: Path) -> None:
    """A page of a table that is overwritten by others is found."""
    content = bytearray(path.read_bytes())
    page = content.index("Zürich-050".encode()) // 8192
    content[page * 8192 : page * 8192 + 64] = random.Random(0).randbytes(64)
    path.write_bytes(content)

    assert run_command("check", str(path)).returncode == 1
