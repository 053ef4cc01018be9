"""
What users get: the wheel, installed into an environment of its own, works away from the checkout.
"""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from scripts.check_wheel import problems
from scripts.docs_pages import ROOT, Block, blocks
from tableorm import __version__

pytestmark = pytest.mark.packaging


def run(*command: str | Path, folder: Path) -> str:
    """Run in a folder, with nothing of ours in the environment; what it prints."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, encoding="utf-8", check=False)
    assert done.returncode == 0, f"{command} in {folder}:\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, ROOT, folder=folder)
    (wheel,) = folder.iterdir()
    return wheel


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the programs of a fresh environment with the wheel and its dependencies."""
    folder = tmp_path_factory.mktemp("installed")
    run(sys.executable, "-m", "venv", "--without-pip", folder / "venv", folder=folder)
    scripts = folder / "venv" / ("Scripts" if os.name == "nt" else "bin")
    # The few modules that the tests import are compiled when they are.
    install = "install", "--quiet", "--no-compile"
    run(sys.executable, "-m", "pip", "--python", scripts / "python", *install, wheel, folder=folder)
    return scripts


def test_wheel_has_our_names_only(wheel: Path) -> None:
    """The wheel's top-level names are our packages and its metadata; each package is typed."""
    assert problems(wheel) == []
    assert wheel.name == f"tableorm-{__version__}-py3-none-any.whl"


def test_quickstart_runs(installed: Path, tmp_path: Path) -> None:
    """The README's quickstart runs as it stands, and prints what the README shows."""
    program, output = quickstart()
    (tmp_path / "quickstart.py").write_text(program.text, encoding="utf-8")

    printed = run(installed / "python", "quickstart.py", folder=tmp_path)

    assert printed == output.text


def test_packages_come_from_the_wheel(installed: Path, tmp_path: Path) -> None:
    """It is the installed packages that are tested, not those of the checkout."""
    code = "import tableorm, tableorm_local; print(tableorm.__file__); print(tableorm_local.__file__)"
    files = run(installed / "python", "-c", code, folder=tmp_path).splitlines()

    assert [Path(file).is_relative_to(installed.parent) for file in files] == [True, True]


def test_core_needs_its_dependencies_only(installed: Path, tmp_path: Path) -> None:
    """Nothing is installed but what pyproject.toml lists, and what that needs."""
    code = (
        "import importlib.metadata as m; print(*(f'{d.name} {d.requires or []}' for d in m.distributions()), sep='\\n')"
    )
    lines = run(installed / "python", "-c", code, folder=tmp_path).splitlines()
    needs = {
        name.lower(): re.findall(r"['\"]([\w-]+)", rest) for name, _, rest in (each.partition(" ") for each in lines)
    }
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

    reached = {"tableorm"}
    waiting = [text.partition(">=")[0] for text in project["dependencies"]]
    assert set(waiting) <= needs.keys()
    while waiting:
        name = waiting.pop().lower()
        if name in needs and name not in reached:
            reached.add(name)
            waiting += needs[name]
    assert reached == needs.keys()


def test_command_line(installed: Path, tmp_path: Path) -> None:
    """The `tableorm` command runs on the core's dependencies, and finds the embedded engine."""
    assert run(installed / "tableorm", "--version", folder=tmp_path) == f"tableorm {__version__}\n"
    assert run(installed / "tableorm", "tables", "local::memory:", folder=tmp_path) == ""


def quickstart() -> tuple[Block, Block]:
    """The README's program and what it prints."""
    found = blocks(ROOT / "README.md")
    (index,) = [index for index, block in enumerate(found) if block.marker == "quickstart"]
    assert found[index + 1].is_output
    return found[index], found[index + 1]
