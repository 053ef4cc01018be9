"""
Check that a wheel puts into site-packages exactly what is ours, and that each of its packages is typed.

    python scripts/check_wheel.py dist/tableorm-0.1.0-py3-none-any.whl
"""

import sys
import tomllib
from pathlib import Path, PurePosixPath
from zipfile import ZipFile

PYPROJECT = Path(__file__).resolve().parent.parent / "pyproject.toml"


def problems(wheel: Path) -> list[str]:
    """What is wrong with the wheel."""
    project = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))
    sources = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    packages = {PurePosixPath(source).name for source in sources}
    with ZipFile(wheel) as archive:
        files = {PurePosixPath(name) for name in archive.namelist()}
    name, version = wheel.name.split("-")[:2]
    expected = packages | {f"{name}-{version}.dist-info"}
    found = {file.parts[0] for file in files}
    wrong = [f"{top} should not be there" for top in sorted(found - expected)]
    wrong += [f"{top} is missing" for top in sorted(expected - found)]
    wrong += [
        f"{package}/py.typed is missing"
        for package in sorted(packages)
        if PurePosixPath(package, "py.typed") not in files
    ]
    wrong += [f"{file} is no part of a package" for file in sorted(files) if "__pycache__" in file.parts]
    return wrong


def main() -> None:
    """Check the wheels that are named."""
    for wheel in map(Path, sys.argv[1:]):
        if wrong := problems(wheel):
            sys.exit("\n".join(f"{wheel.name}: {problem}" for problem in wrong))
        print(f"{wheel.name}: its top-level names are ours")


if __name__ == "__main__":
    main()
