"""
`tableorm inspect` on tables in ten layouts: the models that it proposes read and save all rows exactly.
"""

import asyncio
import importlib.util
import json
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tableorm import Database, Entity, connect
from tableorm.inspection import propose
from tableorm.models.entity import schema_of
from tableorm.protocol.edm import ANNOTATION
from tableorm.stores import Row
from tableorm.testing.contract.base import everything
from tests.commandline import run_command
from tests.inspection.layouts import LAYOUTS, ROWS, Layout, fill

ROOT = Path(__file__).parents[2]


async def read_raw(db: Database, table: str) -> dict[tuple[str, str], Row]:
    """Return all rows of a table, as they are stored."""
    return {(row["PartitionKey"], row["RowKey"]): row for row in await everything(db.store, table)}


def load(text: str, folder: Path) -> ModuleType:
    """Import the text of a module."""
    path = folder / "proposed.py"
    path.write_text(text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(f"proposed_{abs(hash(text))}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[module.__name__] = module
    spec.loader.exec_module(module)
    return module


async def check_models(db: Database, table: str, models: Sequence[type[Entity]]) -> None:
    """Each row is read by one model and no other; a save changes no more than what was changed."""
    before = await read_raw(db, table)
    read: list[tuple[str, str]] = []
    for model in models:
        for entity in await db.select(model).allow_scan().all():
            key = entity.key.partition_key, entity.key.row_key
            read.append(key)
            await db.save(entity)
            if len(read) % 10 == 0:
                assert await db.get(entity.key) == entity
    assert sorted(read) == sorted(before)
    assert await read_raw(db, table) == before

    for model in models:
        one: Any = await db.select(model).allow_scan().limit(1).one()
        key = one.key.partition_key, one.key.row_key
        for info in schema_of(model).stored:
            if info.shape is None and info.name not in schema_of(model).key_names:
                old = await db.store.get(table, *key)
                name = info.member.property
                setattr(one, info.name, change(getattr(one, info.name), info.type.base))
                await db.save(one)
                new = await db.store.get(table, *key)
                written = {"odata.etag", "Timestamp", name, name + ANNOTATION}
                assert {n: old[n] for n in old if n not in written} == {n: new[n] for n in new if n not in written}
                assert new[name] != old.get(name)


def change(value: Any, kind: type) -> Any:
    """Return another value of a type."""
    if isinstance(value, bool):
        return not value
    if value is None:
        return kind(7) if kind in (int, float) else kind()
    if isinstance(value, int | float):
        return value + 1
    if isinstance(value, bytes):
        return value + b"x"
    return f"{value}x" if isinstance(value, str) else value.replace(year=2001)


def keys_of(text: str) -> set[tuple[str, str]]:
    """Return the templates of a module's models, without the names of fields."""
    pairs = re.findall(r'partition_key="(.*)",\n    row_key="(.*)",', text)
    return {(re.sub(r"\{\w+", "{", one), re.sub(r"\{\w+", "{", two)) for one, two in pairs}


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.table)
async def test_the_command(layout: Layout, tmp_path: Path) -> None:
    """The command prints a module whose models have the right keys, read all rows, and save them as they are."""
    url = f"local:{tmp_path / 'old.tables'}"
    await fill(url, layout.table, layout.rows, layout.others)
    done = await asyncio.to_thread(run_command, "inspect", url, layout.table)

    assert done.returncode == 0, done.stderr
    assert sum(map(int, re.findall(r": (\d+) of \1 rows read exactly", done.stderr))) == ROWS
    assert keys_of(done.stdout) == layout.keys
    module = load(done.stdout, tmp_path)
    async with connect(url) as db:
        await check_models(db, layout.table, [getattr(module, name) for name in module.__all__])


@pytest.mark.one_of(2)
@pytest.mark.parametrize("checker", ["mypy", "pyright"])
def test_the_modules_are_typed(tmp_path: Path, checker: str) -> None:
    """Mypy and pyright, both strict, find nothing in the modules as they are printed."""
    for layout in LAYOUTS:
        tables = [layout.table, *layout.others]
        text = propose(layout.table, layout.rows, tables=tables).text
        (tmp_path / f"models_{layout.table.lower()}.py").write_text(text, encoding="utf-8")
    config = {
        "include": ["."],
        "extraPaths": [str(ROOT), str(ROOT / "backends")],
        "typeCheckingMode": "strict",
        "pythonVersion": "3.11",
    }
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(config), encoding="utf-8")
    options: dict[str, list[str | Path]] = {
        "mypy": ["--config-file", ROOT / "pyproject.toml", "--cache-dir", ROOT / ".mypy_cache", "--strict", "."],
        "pyright": ["--pythonpath", sys.executable],
    }

    command = [sys.executable, "-m", checker, *options[checker]]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout
