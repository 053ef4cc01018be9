"""
The benchmark of shared runs measures what it says.
"""

from pathlib import Path

import pytest

from benchmarks.migrations import compare_crews


@pytest.mark.one_of(8, group="benchmarks")
async def test_the_benchmark_compares_processes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One process rewrites a table, and two rewrite another one."""
    await compare_crews(tmp_path, "rewrite", 2, 200, "", server=0)

    assert "rewrite of 200 by one process / 2, one file, 4 at once" in capsys.readouterr().out
