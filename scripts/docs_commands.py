"""
Commands on the pages of the documentation: a module of models that changes, and what `tableorm` prints for it.

The commands run in the process of the page, which is much faster than one of their own each.
"""

import contextlib
import importlib
import io
import re
import shutil
import sys
from pathlib import Path
from typing import Any

from tableorm.cli import main

_TIMES = {r"in \d+\.\d s": "in 0.1 s", r"20\d\d-\d\d-\d\d \d\d:\d\d": "2026-11-23 06:30"}


class ModelsModule:
    """
    A module of the current folder, whose text changes.

    Args:
        name: Its name.
        text: Its text at first.
    """

    def __init__(self, name: str, text: str) -> None:
        self.name, self._text = name, ""
        self.append(text)
        sys.path.insert(0, str(Path.cwd()))

    def append(self, text: str) -> None:
        """Add text at its end."""
        self._text += text
        Path(f"{self.name}.py").write_text(self._text, encoding="utf-8")

    def replace(self, old: str, new: str) -> None:
        """Replace a part of its text."""
        assert self._text.count(old) == 1, old
        self._text = self._text.replace(old, new)
        self.append("")

    def load(self) -> Any:
        """Import it as it is now."""
        self.unload()
        shutil.rmtree("__pycache__", ignore_errors=True)
        importlib.invalidate_caches()
        return importlib.import_module(self.name)

    def unload(self) -> None:
        """Forget that it was imported."""
        sys.modules.pop(self.name, None)

    def run(self, *arguments: str) -> None:
        """Print a command as it is typed, what it prints, and its exit status if that is not 0."""
        print("$ tableorm", " ".join(f'"{each}"' if " " in each else each for each in arguments))
        self.load()
        with contextlib.redirect_stdout(io.StringIO()) as output, contextlib.redirect_stderr(output):
            status = main(arguments)
        lines = [line for line in output.getvalue().splitlines() if ": running: " not in line]
        for line in [*lines, *([f"(exit status {status})"] if status else [])]:
            for pattern, shown in _TIMES.items():
                line = re.sub(pattern, shown, line)  # noqa: PLW2901 - one after the other
            print(line)

    def close(self) -> None:
        """Leave no trace of it in the process."""
        self.unload()
        sys.path[:] = [each for each in sys.path if each != str(Path.cwd())]
