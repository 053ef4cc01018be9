"""
Install the emulator Azurite into `.azurite`, for the tests of the Azure backend.

    python3 scripts/azurite.py

The version and all that it needs are pinned in scripts/npm/package-lock.json: 3.35.0 is the newest for Node.js 20.
Without Node.js nothing is installed, and those tests are skipped; in CI they fail.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PINS = ROOT / "scripts" / "npm"
FOLDER = ROOT / ".azurite"  # not in .cache, which building the documentation empties
PROGRAM = FOLDER / "node_modules" / "azurite" / "dist" / "src" / "azurite.js"
STAMP = FOLDER / "installed.txt"


def main() -> None:
    """Install it, unless the stamp says that it is there."""
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        print("There is no Node.js: the tests that need Azurite are skipped", flush=True)
        return
    key = sha256((PINS / "package-lock.json").read_bytes()).hexdigest()
    if PROGRAM.exists() and STAMP.exists() and STAMP.read_text(encoding="utf-8") == key:
        return
    print("Installing Azurite into .azurite", flush=True)
    FOLDER.mkdir(parents=True, exist_ok=True)
    STAMP.unlink(missing_ok=True)
    for name in ("package.json", "package-lock.json"):
        shutil.copyfile(PINS / name, FOLDER / name)
    command = [npm, "ci", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"]
    status = subprocess.run(command, cwd=FOLDER, stdin=subprocess.DEVNULL, env=os.environ, check=False).returncode
    if status:
        sys.exit(f"Failed with status {status}: {' '.join(command)}")
    STAMP.write_text(key, encoding="utf-8")


if __name__ == "__main__":
    main()
