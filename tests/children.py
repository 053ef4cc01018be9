"""
Programs that tests start: what they import.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).parents[1]
_FOLDERS = [_ROOT, _ROOT / "backends", _ROOT / "migrations"]


def environment(**more: str) -> dict[str, str]:
    """Return the environment of a program that imports the code beside these tests, whatever is installed."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, _FOLDERS)), **more}


def run_program(path: Path, *arguments: object) -> list[Any]:
    """Run such a program, and return what it prints: a value of JSON in each line."""
    command = [sys.executable, str(path), *map(str, arguments)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=environment(), check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]
