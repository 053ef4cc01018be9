"""
Habits that are kept by tests: the public names, the version, and what CI does with skipped tests.
"""

import ast
import importlib.metadata
import inspect
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from packaging.requirements import Requirement

import tableorm
import tableorm.testing
from scripts.docs_pages import ROOT, pages
from tests.children import environment
from tests.packaging.sources import MODULES, PACKAGES, PROJECT, parse_module, relative


def test_modules_say_what_they_are_for() -> None:
    """A module opens with a docstring."""
    assert [relative(module) for module in MODULES if not ast.get_docstring(parse_module(module))] == []


def read_reference() -> str:
    """Return all pages of the reference."""
    return "\n".join(page.read_text(encoding="utf-8") for page in sorted((ROOT / "docs" / "reference").glob("*.md")))


@pytest.mark.parametrize("module", [tableorm, tableorm.testing])
def test_public_names_are_listed(module: ModuleType) -> None:
    """Every public name stands in a table of the reference, with what it is."""
    rows = [line for line in read_reference().splitlines() if line.startswith("|")]

    assert [name for name in module.__all__ if not any(f"`{name}`" in row for row in rows)] == []


def test_reference_pages_are_in_the_navigation() -> None:
    """The site leads to every page of the documentation."""
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    documents = [page.relative_to(ROOT / "docs").as_posix() for page in pages() if ROOT / "docs" in page.parents]

    assert [page for page in documents if f": {page}\n" not in navigation] == []


def test_tables_have_headings() -> None:
    """Each column of a table in the documentation says what it holds."""
    headings = [
        (relative(page), heading)
        for page in pages()
        for heading in re.findall(r"^(\|.*\|)\n\|[-:| ]+\|$", page.read_text(encoding="utf-8"), re.MULTILINE)
    ]

    assert headings
    assert [(page, heading) for page, heading in headings if not all(map(str.strip, heading[1:-1].split("|")))] == []


def test_public_names_are_documented() -> None:
    """Every name that `tableorm` exports exists, has a docstring if it can, and stands in the reference."""
    values = {name: getattr(tableorm, name) for name in tableorm.__all__}
    entries = set(re.findall(r"^::: tableorm\.(\w+)$", read_reference(), re.MULTILINE))

    bare = [name for name, value in values.items() if inspect.isroutine(value) or inspect.isclass(value)]
    assert [name for name in bare if not inspect.getdoc(values[name])] == []
    assert entries == set(tableorm.__all__)


def test_methods_of_databases_are_documented() -> None:
    """Each public method of a database has one entry in the reference, on the page of its subject."""
    reference = read_reference()
    entries = re.findall(r"^::: tableorm\.Database\.(\w+)$", reference, re.MULTILINE)
    selected = re.findall(r"^::: tableorm\.Database\n    options:\n      members: \[(.+)\]$", reference, re.MULTILINE)

    assert sorted([*entries, *selected[0].split(", ")]) == sorted(
        {name for base in tableorm.Database.__mro__ if base is not object for name in vars(base) if name[0] != "_"}
    )


def test_commands_are_documented() -> None:
    """Every built-in command stands in the documentation."""
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages())
    commands = list(PROJECT["project"]["entry-points"]["tableorm.commands"])
    assert commands
    assert [name for name in commands if f"tableorm {name}" not in text] == []


@pytest.mark.parametrize("package", PACKAGES, ids=relative)
def test_package_is_typed(package: Path) -> None:
    """Type checkers look into a package only if it has a py.typed."""
    assert (package / "py.typed").is_file()


def test_every_package_is_in_the_wheel() -> None:
    """The wheel's packages are those of the source tree."""
    assert PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"] == [
        relative(package) for package in PACKAGES
    ]


def test_hooks_use_versions_that_lint_allows() -> None:
    """What pre-commit runs is pinned to versions that the dependency group `lint` allows."""
    requirements = [Requirement(each) for each in PROJECT["dependency-groups"]["lint"] if isinstance(each, str)]
    allowed = {each.name: each.specifier for each in requirements}
    hooks = (ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8")
    pins = re.findall(r"additional_dependencies: \[(\w+)==([\d.]+)\]", hooks)

    assert {name for name, _ in pins} == {"ruff", "typos"}
    assert [(name, version) for name, version in pins if version not in allowed[name]] == []


def test_how_long_tests_explore_is_said_once() -> None:
    """Only tests/torture.py says how many examples hypothesis makes, so that `make torture` can change it for all."""
    saying = "max_" + "examples"
    tests = {path for path in (ROOT / "tests").rglob("*.py") if saying in path.read_text(encoding="utf-8")}

    assert {relative(path) for path in tests} == {"tests/torture.py"}


def test_version_stands_once() -> None:
    """The version stands in tableorm/__init__.py; the metadata has it from there."""
    assert "version" not in PROJECT["project"]
    assert importlib.metadata.version("tableorm") == tableorm.__version__


SKIPS = {
    "def test(): pytest.skip('no reason')": False,
    "def test(): pytest.skip('the backend lacks the capability durable')": True,
    "def test(): pytest.xfail('known')": True,
    "pytest.skip('no reason', allow_module_level=True)": False,
    "pytest.importorskip('no_such_module')": False,
}
"""Modules with a skip, and whether CI accepts it."""


@pytest.mark.one_of(2)
@pytest.mark.parametrize("ci", ["true", ""])
def test_skips_in_ci(tmp_path: Path, ci: str) -> None:
    """A test or module that is skipped fails in CI, unless a backend lacks the capability; elsewhere it is skipped."""
    (tmp_path / "conftest.py").write_bytes((ROOT / "tests" / "conftest.py").read_bytes())
    for number, code in enumerate(SKIPS):
        (tmp_path / f"test_{number}.py").write_text(f"import pytest\n{code}\n", encoding="utf-8")
    (tmp_path / "test_other.py").write_text("def test(): pass\n", encoding="utf-8")

    options = ["-rfE", "-p", "no:cacheprovider", "--continue-on-collection-errors", "--rootdir", str(tmp_path)]
    command = [sys.executable, "-m", "pytest", *options, str(tmp_path)]

    done = subprocess.run(command, cwd=tmp_path, env=environment(CI=ci), capture_output=True, text=True, check=False)

    refused = {number for number, passes in enumerate(SKIPS.values()) if ci and not passes}
    assert set(map(int, re.findall(r"^(?:FAILED|ERROR) test_(\d)\.py", done.stdout, re.MULTILINE))) == refused
    assert done.returncode == bool(refused), done.stdout
    assert "1 passed" in done.stdout
