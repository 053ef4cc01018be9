"""
The benchmarks of logs measure what they say.
"""

from pathlib import Path

import pytest

from benchmarks.logs import compare_spread, compare_tail


async def test_the_benchmarks_compare_logs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The newest entries against a point read, and buckets against one partition."""
    await compare_tail(tmp_path, 50)
    await compare_spread(tmp_path, 120)

    shown = capsys.readouterr().out
    assert "the newest ten of 50 / a point read" in shown
    assert "the newest ten: 16 buckets / one partition" in shown and "all 120:" in shown
