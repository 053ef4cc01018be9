"""
Check the types of all code in the documentation: mypy --strict and pyright in strict mode, without a plugin.

Each page becomes a module in which every line has the number that it has on the page.
"""

import json
import re
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from scripts.docs_pages import ROOT, PageError, blocks, module_text, pages


def main() -> None:
    """Check all pages."""
    with TemporaryDirectory() as folder:
        modules = write_modules(Path(folder))
        errors = mypy(Path(folder)) + pyright(Path(folder))
    for module, page in modules.items():
        errors = [error.replace(module, page) for error in errors]
    if errors:
        sys.exit("\n".join(errors))
    print(f"The code of {len(modules)} pages passes mypy and pyright")


def write_modules(folder: Path) -> dict[str, str]:
    """A module for each page with code; the page of each."""
    modules: dict[str, str] = {}
    for page in pages():
        found = blocks(page)
        if any(block.language == "python" for block in found):
            name = page.relative_to(ROOT).as_posix()
            module = folder / f"page_{re.sub('[^0-9A-Za-z]', '_', name)}.py"
            module.write_text(module_text(page, found), encoding="utf-8")
            modules[str(module)] = name
    if not modules:
        raise PageError("no page has code")
    return modules


def mypy(folder: Path) -> list[str]:
    """What mypy finds."""
    options = ["--strict", "--config-file=", "--no-error-summary"]
    done = run(sys.executable, "-m", "mypy", *options, folder)
    return done.stdout.splitlines() if done.returncode else []


def pyright(folder: Path) -> list[str]:
    """What pyright finds."""
    # What a page defines counts as local once it is put into a function; at the top level, nobody asks for its use.
    unused = dict.fromkeys(("reportUnusedVariable", "reportUnusedClass", "reportUnusedFunction"), False)
    config = {"typeCheckingMode": "strict", "include": ["."], **unused}
    (folder / "pyrightconfig.json").write_text(json.dumps(config), encoding="utf-8")
    done = run(sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, "--project", folder)
    report: dict[str, Any] = json.loads(done.stdout)
    if not report["summary"]["filesAnalyzed"]:
        raise PageError("pyright analyzed no file")
    return [
        f"{found['file']}:{found['range']['start']['line'] + 1}: {found['message']} [{found.get('rule', 'pyright')}]"
        for found in report["generalDiagnostics"]
        if found["severity"] == "error"
    ]


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a checker; one that breaks down is an error of its own."""
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1) or (done.returncode and not done.stdout):
        raise PageError(f"{command[2]} broke down with status {done.returncode}: {done.stderr or done.stdout}")
    return done


if __name__ == "__main__":
    main()
