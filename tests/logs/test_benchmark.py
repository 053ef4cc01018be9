"""
The benchmark of logs measures what it says.
"""

from pathlib import Path

import pytest

from benchmarks.log_streams import compare_late_writers, compare_lines


@pytest.mark.one_of(8, group="benchmarks")
async def test_the_benchmark_compares_logs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Lines in blobs are compared with entities, and a writer among many segments with one among few."""
    await compare_lines(tmp_path, 40, 40, rounds=1)
    await compare_late_writers(tmp_path, 2, 20, rounds=1)

    said = capsys.readouterr().out
    assert "40 lines of a LogStream / bulk of as many" in said
    assert "40 durable lines by 32 tasks / inserts" in said
    assert "first line in an hour of 20 segments / of 2" in said
