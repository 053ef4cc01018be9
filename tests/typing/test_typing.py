"""
What mypy and pyright, both strict and without a plugin, know of models and of the database.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commandline import run_command

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
SOURCES = [ROOT, ROOT / "backends"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A new project, with the programs, and the misuse without the lines that hide it."""
    folder = tmp_path / "my-staff"
    assert run_command("init", str(folder)).returncode == 0
    for name in ("programs.py", "misuse.py"):
        lines = (HERE / name).read_text(encoding="utf-8").splitlines()
        shown = ["" if line.startswith(("# mypy:", "# type:")) else line for line in lines]
        (folder / name).write_text("\n".join(shown) + "\n", encoding="utf-8")
    return folder


def check_against_marks(folder: Path, found: dict[str, str]) -> None:
    """Lines with errors, as `file:line`, are those that are marked."""
    marked = {
        f"{path.name}:{number}"
        for path in folder.glob("*.py")
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if line.endswith("  # E")
    }

    assert {place: message for place, message in found.items() if place not in marked} == {}
    assert marked - set(found) == set()


def run(*command: str, cwd: Path) -> str:
    done = subprocess.run(  # noqa: PLW1510  # errors are what is looked for
        [sys.executable, "-m", *command], cwd=cwd, capture_output=True, text=True, timeout=300
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return done.stdout


def test_mypy(folder: Path) -> None:
    """An error is found on every marked line, and on no other, nor in what `tableorm init` makes."""
    settings = ["--config-file", str(ROOT / "pyproject.toml"), "--cache-dir", str(ROOT / ".mypy_cache")]
    quiet = ["--no-error-summary", "--hide-error-context", "--no-pretty"]

    output = run("mypy", *settings, *quiet, ".", cwd=folder)

    check_against_marks(folder, dict(re.findall(r"^([\w/]+\.py:\d+): error: (.*)", output, re.MULTILINE)))


def test_pyright(folder: Path) -> None:
    """So it is by pyright."""
    config = {
        "include": ["programs.py", "misuse.py"],
        "extraPaths": [str(path) for path in SOURCES],
        "typeCheckingMode": "strict",
        "pythonVersion": "3.11",
    }
    (folder / "pyrightconfig.json").write_text(json.dumps(config), encoding="utf-8")

    output = run("pyright", "--outputjson", "--pythonpath", sys.executable, cwd=folder)

    problems = [p for p in json.loads(output)["generalDiagnostics"] if p["severity"] == "error"]
    check_against_marks(
        folder, {f"{Path(p['file']).name}:{p['range']['start']['line'] + 1}": p["message"] for p in problems}
    )
