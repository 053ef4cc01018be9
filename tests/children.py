"""
Programs that tests start: what they import.
"""

import os
from pathlib import Path

_ROOT = Path(__file__).parents[1]
_FOLDERS = [_ROOT, _ROOT / "backends", _ROOT / "migrations"]


def environment(**more: str) -> dict[str, str]:
    """Return the environment of a program that imports the code beside these tests, whatever is installed."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, _FOLDERS)), **more}
