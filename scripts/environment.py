"""
Make `.venv` hold this checkout, editable, with the dependency groups that are asked for.

    python3 scripts/environment.py [--this-python] test lint

Needs nothing but Python, and does nothing when all is there already. An environment that exists keeps its Python; with
--this-python, one of another version is made anew with the Python that runs this.
"""

from __future__ import annotations

import os
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
STAMP = VENV / "installed.txt"


def main(arguments: list[str]) -> None:
    """Install the groups, unless the stamp says that they are there."""
    groups = [argument for argument in arguments if argument != "--this-python"]
    if not works(PYTHON, of_this_version=len(groups) < len(arguments)):
        if sys.version_info < (3, 11):  # noqa: UP036 - this very interpreter may be too old
            found = sys.version.split()[0]
            sys.exit(f"tableorm needs Python 3.11 or newer, this is {found}; name another: make PYTHON=python3.12 ...")
        run(sys.executable, "-m", "venv", "--clear", VENV)
    key = fingerprint()
    last_key, *last_groups = STAMP.read_text(encoding="utf-8").split() if STAMP.exists() else [""]
    # What was asked for before stays current too: the targets share one environment.
    wanted = sorted({*groups, *last_groups})
    if (key, wanted) == (last_key, last_groups):
        return
    print(f"Installing into {VENV.name}: {', '.join(['tableorm', *wanted])}", flush=True)
    STAMP.unlink(missing_ok=True)
    # Dependency groups need pip 25.1; Python 3.11 comes with an older one.
    run(PYTHON, "-m", "pip", "install", "--quiet", "--upgrade", "pip>=25.1")
    chosen = [argument for group in wanted for argument in ("--group", group)]
    run(PYTHON, "-m", "pip", "install", "--quiet", "--editable", ".", *chosen)
    STAMP.write_text("\n".join([key, *wanted]), encoding="utf-8")


def works(python: Path, *, of_this_version: bool) -> bool:
    """Return whether that interpreter runs: the link to one that was upgraded or removed dangles."""
    wanted = f"{sys.version_info[:2]}" if of_this_version else "sys.version_info[:2]"
    test = f"import sys; sys.exit(sys.version_info[:2] != {wanted})"
    return python.exists() and subprocess.run([python, "-c", test], check=False).returncode == 0


def fingerprint() -> str:
    """Changes when what is to be installed does: the metadata, the version among it."""
    module = (ROOT / "tableorm" / "__init__.py").read_text(encoding="utf-8")
    version = next(line for line in module.splitlines() if line.startswith("__version__"))
    return sha256((ROOT / "pyproject.toml").read_bytes() + version.encode()).hexdigest()


def run(*command: str | Path) -> None:
    """Run it in the checkout, without input; stop if it fails."""
    status = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, check=False).returncode
    if status:
        sys.exit(f"Failed with status {status}: {' '.join(map(str, command))}")


if __name__ == "__main__":
    main(sys.argv[1:])
