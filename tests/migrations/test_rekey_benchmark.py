"""
The benchmark of re-keys measures what it says.
"""

from pathlib import Path

import pytest

from benchmarks.rekey import compare_memory, compare_with_hand
from tests.torture import choose_rounds


@pytest.mark.one_of(8, group="benchmarks")
@pytest.mark.parametrize("server", [False, True][: choose_rounds(1, 2)])
async def test_the_benchmark_compares_with_hand(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], *, server: bool
) -> None:
    """A re-key online, one offline and a script by hand do the same to tables of their own."""
    await compare_with_hand(tmp_path, 60, server=server)

    said = capsys.readouterr().out
    assert f"re-key of 60 {'on a server' if server else 'in a file'}" in said
    assert "operations a transaction" in said


@pytest.mark.one_of(8, group="benchmarks")
async def test_the_benchmark_compares_memory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The memory of the process that moves is told without what SQLite has, and that beside it."""
    await compare_memory(tmp_path, 30, 60, server=False)

    said = capsys.readouterr().out
    assert "peak memory of a re-key online in a file, 60 / 30" in said
    assert "and SQLite" in said
