"""
The memory of transfers does not depend on how many rows there are.
"""

from pathlib import Path

import pytest

from tests.children import run_program
from tests.torture import choose_rounds

PROGRAM = Path(__file__).with_name("programs.py")
COUNT = choose_rounds(25_000, 50_000)
MOST_KIB = 8 * 1024


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="capability: /proc tells the memory of a process")
@pytest.mark.one_of(3)
@pytest.mark.parametrize("name", ["copy", "jsonl", "parquet"])
def test_memory_is_flat(tmp_path: Path, name: str) -> None:
    """A copy, or an export and an import, of many rows takes little more than one of the first 5,000."""
    (grown,) = run_program(PROGRAM, tmp_path, COUNT, name)

    assert grown < MOST_KIB
