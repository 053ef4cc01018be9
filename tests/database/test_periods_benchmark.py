"""
The benchmark of tables of periods measures what it says.
"""

from pathlib import Path

import pytest

from benchmarks import periods
from benchmarks.upkeep import sizes


@pytest.mark.one_of(8, group="benchmarks")
async def test_the_benchmark_drops_periods(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It drops a period of few rows and one of many, while another client reads."""
    monkeypatch.setitem(sizes, "periods", 200)
    monkeypatch.setattr(periods, "_FEW", 20)
    monkeypatch.setattr(periods, "_SECONDS", 0.01)

    await periods.bench_periods(tmp_path)

    assert "drop a period of 200 rows / of 20" in capsys.readouterr().out
