"""
The layout that docs/architecture.md describes: modules import in one direction and stand in packages.
"""

import ast

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


def test_imports_make_no_circle() -> None:
    """No module leads back to itself, be it by imports for types alone or inside of functions."""
    modules = read_modules(PACKAGES)

    assert len(modules) == len(MODULES)
    assert find_circles(import_graph(modules)) == []


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
