"""
What a server remembers of the names of properties: it is in no budget, so that it must be little.
"""

from pathlib import Path

import pytest

from tableorm.protocol import limits
from tests.security.world import serve_file


async def test_names_of_properties_are_not_kept_at_any_length(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Inserts with 252 names of 255 characters, by a token for one partition, leave little in the server."""
    shapes: dict[tuple[str, ...], object] = {}
    monkeypatch.setattr(limits, "_SHAPES", shapes)
    async with serve_file(tmp_path / "data.tables") as (owner, api):
        await owner.create_table("Tab")
        for number in range(20):
            row: dict[str, object] = {"PartitionKey": "p", "RowKey": str(number)}
            for name in range(252):
                long = f"n{number}_{name}_".ljust(255, "x")
                row |= {long: "1", long + "@odata.type": "Edm.Int64"}
            assert (await api("POST", "/Tab", row)).status in (201, 204)
    assert sum(len(name) for names in shapes for name in names) < 1_000_000  # of 5 million characters that were sent
