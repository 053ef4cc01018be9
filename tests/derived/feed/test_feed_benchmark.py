"""
The benchmark of change feeds measures what it says.
"""

from pathlib import Path

import pytest

from benchmarks.feeds import bench_feeds


@pytest.mark.one_of(8, group="benchmarks")
async def test_the_benchmark_compares_saves(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One writer and eight, with a feed and without."""
    await bench_feeds(tmp_path, 8, 1)

    said = capsys.readouterr().out
    assert "save with a change feed / without, 1 at once" in said
    assert "save with a change feed / without, 8 at once" in said
