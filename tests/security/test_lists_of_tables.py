"""
A list of tables takes as much time as the names that it answers, however many tables there are.
"""

from pathlib import Path

import aiohttp
import pytest

from tableorm_local import serve
from tableorm_local.engine import Engine, catalog
from tests.local.server.client import Api, root_of

NAMES = [f"T{number:04}" for number in range(2_500)]


@pytest.mark.parametrize(
    ("path", "query", "read"),
    [
        ("/Tables", "$top=1", [2]),
        ("/Tables('t2400')", "", [1]),
        ("/Tables('Missing')", "", [1]),
        ("/Tables", "$filter=TableName%20eq%20'x'", [1000, 1000, 500]),
        ("/Tables", "$filter=TableName%20ge%20'T'&$top=3", [1000]),
    ],
)
async def test_names_are_read_in_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, query: str, read: list[int]
) -> None:
    """No request reads more than 1,000 names at once, nor more than it answers unless it has a filter."""
    engine = Engine(tmp_path / "data.tables")
    await engine.open()
    await engine.create_table("Tab")
    await engine.close()
    counts = list[int]()

    def list_names(_: object, start: str = "", limit: int | None = None) -> list[str]:
        found = [name for name in NAMES if name.lower() >= start][:limit]
        counts.append(len(found))
        return found

    async with serve(tmp_path / "data.tables", port=0) as server, aiohttp.ClientSession() as session:
        monkeypatch.setattr(catalog, "list_names", list_names)
        assert (await Api(session, root_of(server))("GET", path, query=query)).status == (
            404 if "Missing" in path else 200
        )
    assert counts == read
