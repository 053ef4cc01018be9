"""
Print the path of the lowest or the highest Python on this machine that pyproject.toml names.

    python3 scripts/interpreters.py lowest
    python3 scripts/interpreters.py highest

Looks among the commands python3.N of the PATH, and where pyenv keeps its versions; what does not run is passed over.
Without any, it is the Python that runs this.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

PYPROJECT = Path(__file__).resolve().parent.parent / "pyproject.toml"
# A release candidate may lack what was built for the release.
PROBE = "import sys, venv, ensurepip; sys.exit(sys.version_info.releaselevel != 'final')"


def main(choice: str) -> None:
    """Print the path."""
    versions = named_versions()
    for version in versions if choice == "lowest" else reversed(versions):
        for candidate in candidates(version):
            if runs(candidate):
                print(candidate)
                return
    print(sys.executable)


def named_versions() -> list[tuple[int, int]]:
    """Return the versions of the classifiers, lowest first."""
    text = PYPROJECT.read_text(encoding="utf-8")
    found = re.findall(r'"Programming Language :: Python :: (\d+)\.(\d+)"', text)
    return sorted((int(major), int(minor)) for major, minor in found)


def candidates(version: tuple[int, int]) -> list[str]:
    """Return the interpreters of that version that seem to be there."""
    major, minor = version
    command = shutil.which(f"python{major}.{minor}")
    found = [command] if command else []
    if sys.version_info[:2] == version:
        found.insert(0, sys.executable)
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    return found + [str(path) for path in sorted(pyenv.glob(f"versions/{major}.{minor}.*/bin/python"), reverse=True)]


def runs(python: str) -> bool:
    """Return whether it starts, can make an environment, and is a release."""
    return subprocess.run([python, "-c", PROBE], capture_output=True, check=False).returncode == 0


if __name__ == "__main__":
    if sys.argv[1:] not in (["lowest"], ["highest"]):
        sys.exit("Usage: interpreters.py lowest|highest")
    main(sys.argv[1])
