"""
What users get: the wheel, installed into an environment of its own, works away from the checkout.
"""

import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from scripts.check_wheel import problems
from scripts.docs_pages import ROOT, Block, blocks
from tableorm import __version__
from tests.packaging.sources import PROJECT

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
    install = "install", "--quiet", "--no-compile", "--no-deps"
    run(sys.executable, "-m", "pip", "--python", scripts / "python", *install, wheel, folder=folder)
    link_what_it_needs(packages_beside(scripts))
    return scripts


def packages_beside(scripts: Path) -> Path:
    """Return the folder of the packages of an environment."""
    (packages,) = scripts.parent.glob("[Ll]ib/**/site-packages")
    return packages


def needs_of(packages: Path) -> list[Requirement]:
    """Return what the metadata of the wheel says that it needs without extras."""
    (wheel,) = importlib.metadata.distributions(name="tableorm", path=[str(packages)])
    found = [Requirement(text) for text in wheel.requires or []]
    return [each for each in found if each.marker is None or each.marker.evaluate({"extra": ""})]


def link_what_it_needs(packages: Path) -> None:
    """Link what the wheel needs, and what that needs, from the environment of the tests, and nothing else."""
    waiting, linked = needs_of(packages), set[str]()
    while waiting:
        needed = importlib.metadata.distribution(waiting.pop().name)
        if needed.name not in linked:
            linked.add(needed.name)
            for top in {file.parts[0] for file in needed.files or []} - {"..", "__pycache__"}:
                (packages / top).symlink_to(str(needed.locate_file(top)))
            more = map(Requirement, needed.requires or [])
            waiting += [each for each in more if each.marker is None or each.marker.evaluate({"extra": ""})]


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


def test_core_needs_its_dependencies_only(installed: Path) -> None:
    """The wheel asks for what pyproject.toml lists; so nothing else is installed where the other tests run it."""
    assert {*map(str, needs_of(packages_beside(installed)))} == {
        str(Requirement(each)) for each in PROJECT["project"]["dependencies"]
    }


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
