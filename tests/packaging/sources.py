"""
The packages and modules that the wheel holds, for tests that look at the code itself.
"""

import ast
import tomllib
from functools import cache
from pathlib import Path

from scripts.docs_pages import ROOT

_BESIDE = [*sorted((ROOT / "backends").iterdir()), *sorted((ROOT / "migrations").glob("*"))]
_CANDIDATES = [ROOT / "tableorm", ROOT / "tableorm_command", *_BESIDE]

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PACKAGES = [folder for folder in _CANDIDATES if (folder / "__init__.py").exists()]
MODULES = [module for package in PACKAGES for module in sorted(package.rglob("*.py"))]


def relative(path: Path) -> str:
    """Return the path from the root of the checkout, with slashes on every system."""
    return path.relative_to(ROOT).as_posix()


@cache
def parse_module(path: Path) -> ast.Module:
    """Return the syntax tree of a module, which several tests look at."""
    return ast.parse(path.read_text(encoding="utf-8"))
