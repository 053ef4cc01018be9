"""
The layout that docs/architecture.md describes: modules import in one direction and stand in packages.
"""

import ast
from pathlib import Path

import pytest

from tests.packaging.imports import find_circles, import_graph, read_modules
from tests.packaging.sources import MODULES, PACKAGES, parse_module, relative

FLAT = {"__init__", "errors", "expressions", "types"}

NOT_A_SENTENCE = (
    "As ",
    "Likewise",
    "Of ",
    "That which ",
    "The like",
    "Those ",
    "Under what ",
    "What of ",
    "Whether that ",
    "Whoever ",
)
"""Openings of docstrings that only somebody who knows the code already can read."""


def write_package(folder: Path, modules: dict[str, str]) -> Path:
    package = folder / "toy"
    for name, text in {"__init__": "", **modules}.items():
        path = package / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return package


def test_imports_make_no_circle() -> None:
    """No module leads back to itself, be it by imports for types alone or inside of functions."""
    modules = read_modules(PACKAGES)

    assert len(modules) == len(MODULES)
    assert find_circles(import_graph(modules)) == []


@pytest.mark.parametrize(
    ("modules", "circles"),
    [
        ({"a": "from .b import f", "b": "import os"}, []),
        ({"a": "from .b import f", "b": "import toy.a"}, [["toy.a", "toy.b"]]),
        ({"a": "from . import b", "b": "from toy import a"}, [["toy.a", "toy.b"]]),
        ({"a": "from .b import f", "b": "def f():\n    from .a import g"}, [["toy.a", "toy.b"]]),
        (
            {"a": "if TYPE_CHECKING:\n    from .b import F", "b": "from .c import G", "c": "from .a import H"},
            [["toy.a", "toy.b", "toy.c"]],
        ),
        # What the package hands on is found where it comes from.
        ({"__init__": "from .a import f\nfrom .b import g", "a": "", "b": "from . import f"}, []),
        (
            {"__init__": "from .a import f\nfrom .b import g", "a": "from toy import g", "b": "from toy import f"},
            [["toy.a", "toy.b"]],
        ),
        ({"__init__": "from .a import f", "a": "import toy"}, []),
        (
            {"__init__": "from .a import f\nfrom .b import g", "a": "import toy", "b": "from .a import f"},
            [["toy.a", "toy.b"]],
        ),
        ({"__init__": "def __getattr__(name):\n    from . import a", "a": "from .b import f", "b": "import toy.c"}, []),
        # A package that defines something is a module like any other.
        (
            {"inner/__init__": "from .a import f\ndef g(): ...", "inner/a": "from . import g"},
            [["toy.inner", "toy.inner.a"]],
        ),
        (
            {"inner/__init__": "", "inner/a": "from ..b import f", "b": "from .inner import a"},
            [["toy.b", "toy.inner.a"]],
        ),
    ],
)
def test_circles_are_found(tmp_path: Path, modules: dict[str, str], circles: list[list[str]]) -> None:
    """The test above finds every kind of circle, and takes a name that a package hands on for the module's own."""
    package = write_package(tmp_path, modules)

    assert find_circles(import_graph(read_modules([package]))) == circles


def test_modules_stand_in_packages() -> None:
    """Only what every package uses lies flat in tableorm/; all else is in the package of its subject."""
    (core,) = (package for package in PACKAGES if package.name == "tableorm")

    assert {path.stem for path in core.glob("*.py")} - FLAT == set()


def test_docstrings_are_sentences() -> None:
    """No docstring begins as only its writer can read it; say subject, verb and object."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    texts = {
        f"{relative(module)}:{getattr(node, 'lineno', 1)}": ast.get_docstring(node) or ""
        for module in MODULES
        for node in ast.walk(parse_module(module))
        if isinstance(node, documented)
    }

    assert {place: text.splitlines()[0] for place, text in texts.items() if text.startswith(NOT_A_SENTENCE)} == {}
