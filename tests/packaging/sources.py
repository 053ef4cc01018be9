"""
The packages and modules that the wheel holds, for tests that look at the code itself.
"""

from pathlib import Path

from scripts.docs_pages import ROOT

__all__ = ["MODULES", "PACKAGES", "relative"]

_CANDIDATES = [ROOT / "tableorm", *sorted((ROOT / "backends").iterdir()), *sorted((ROOT / "migrations").glob("*"))]

PACKAGES = [folder for folder in _CANDIDATES if (folder / "__init__.py").exists()]
MODULES = [module for package in PACKAGES for module in sorted(package.rglob("*.py"))]


def relative(path: Path) -> str:
    """Return the path from the root of the checkout, with slashes on every system."""
    return path.relative_to(ROOT).as_posix()
