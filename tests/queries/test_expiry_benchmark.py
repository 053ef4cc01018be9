"""
The benchmark of expiry measures what it says.
"""

from pathlib import Path

import pytest

from benchmarks.expiry import compare_reads, compare_sweeps


@pytest.mark.one_of(8, group="benchmarks")
async def test_the_benchmark_compares_models(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same entities are read with expiry and without, and half of them are swept and deleted."""
    await compare_reads(tmp_path, 40, rounds=1)
    await compare_sweeps(tmp_path, 40, rounds=1)

    said = capsys.readouterr().out
    assert "stream of 40, entities that expire / that do not" in said
    assert "sweep of 20 in 40 / query.delete()" in said
