"""
The backend `local:` as `connect` sees it: URLs, options, and errors of the one tree.
"""
# ruff: noqa: ASYNC240 - a test may look at its files

from importlib.metadata import entry_points
from pathlib import Path

import pytest

from tableorm import Unavailable, connect
from tableorm.stores import Capabilities
from tableorm_local import LocalBackend

pytestmark = pytest.mark.limit(10)  # what hangs shall fail soon


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("local:./hr.tables", True),
        ("local::memory:", True),
        ("local:C:\\data\\hr.tables", True),
        ("http://127.0.0.1:10002/devstoreaccount1", False),
        ("hr.tables", False),
        ("LOCAL:x", False),
    ],
)
def test_handles(url: str, *, expected: bool) -> None:
    """It opens what starts with `local:`, nothing else."""
    assert LocalBackend.handles(url) is expected


def test_it_is_found() -> None:
    """The distribution announces it."""
    found = {entry.name: entry.value for entry in entry_points(group="tableorm.backends")}

    assert found["local"] == "tableorm_local:LocalBackend"


@pytest.mark.parametrize("name", ["hr.tables", "100%25.tables", "a b", "sub/../data", "file:x?mode=ro"])
async def test_path_is_literal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """The rest of the URL is a path as the operating system spells it; nothing in it is decoded."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sub").mkdir()
    async with LocalBackend.from_url(f"local:{name}", timeout=1.0, options={}):
        assert Path(name).is_file()


async def test_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`local::memory:` makes no file, and is another database each time."""
    monkeypatch.chdir(tmp_path)
    async with LocalBackend.from_url("local::memory:", timeout=1.0, options={}) as first:
        await first.tables.create_table("Mine")
        async with LocalBackend.from_url("local::memory:", timeout=1.0, options={}) as second:
            assert await second.tables.list_tables() == []
        assert first.tables.capabilities == Capabilities(durable=False, retries=True)
    assert list(tmp_path.iterdir()) == []


async def test_options_that_are_none() -> None:
    """An option that is None was not given, so that one call serves URLs of several backends."""
    async with connect("local::memory:", storage_api_version=None, credential=None, key=None) as db:
        assert await db.tables() == []


async def test_open_without_creating(tmp_path: Path) -> None:
    """With create=False a path without a file is rejected and nothing is made; an existing file is opened."""
    path = tmp_path / "typo.tables"
    backend = LocalBackend.from_url(f"local:{path}", timeout=1.0, options={"create": False})
    with pytest.raises(Unavailable, match=r"there is no database .*typo\.tables"):
        await backend.open()
    assert list(tmp_path.iterdir()) == []

    async with LocalBackend(path):
        pass
    await backend.open()
    await backend.close()
