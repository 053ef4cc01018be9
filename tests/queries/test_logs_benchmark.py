"""
The benchmarks of logs measure what they say.
"""

from pathlib import Path

import pytest

from benchmarks.logs import compare_spread, compare_tail, fill_tail
from tableorm import connect


@pytest.mark.one_of(8, group="benchmarks")
async def test_the_benchmarks_compare_logs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The newest entries against a point read, and buckets against one partition."""
    async with connect("local::memory:") as db:
        await compare_tail(db, "here", await fill_tail(db, 50), 1, "")
    await compare_spread(tmp_path, 120, 1)

    shown = capsys.readouterr().out
    assert "newest ten of 50 / a point read, here" in shown
    assert "the newest ten: 16 buckets / one partition" in shown and "all 120:" in shown
