"""
A screen, as a terminal has it after what is written to it.
"""

import re

_PARTS = re.compile(r"\x1b\[(\??\d*)([A-Za-z])|([\r\n])|([^\x1b\r\n]+)")


class Screen:
    """The lines that a terminal shows, and whether it shows the cursor; an escape that it does not know is an error."""

    def __init__(self, text: str) -> None:
        self._lines = [""]
        self.row = 0
        self.column = 0
        self.cursor = True
        at = 0
        for part in _PARTS.finditer(text):
            assert part.start() == at
            at = part.end()
            number, code, control, shown = part.groups()
            if code:
                self._obey(number, code)
            elif control:
                self._break_line(control)
            else:
                self._write(shown)
        assert at == len(text)

    @property
    def lines(self) -> list[str]:
        """The lines down to the last that is not empty."""
        return "\n".join(line.rstrip() for line in self._lines).rstrip("\n").split("\n")

    def _break_line(self, control: str) -> None:
        self.column = 0
        self.row += control == "\n"
        if self.row == len(self._lines):
            self._lines.append("")

    def _write(self, text: str) -> None:
        end = self.column + len(text)
        before = self._lines[self.row].ljust(self.column)
        self._lines[self.row] = before[: self.column] + text + before[end:]
        self.column = end

    def _obey(self, number: str, code: str) -> None:
        match number, code:
            case _, "A":
                self.row = max(0, self.row - int(number or 1))
            case "2", "K":
                self._lines[self.row] = ""
            case "?25", "l" | "h":
                self.cursor = code == "h"
            case _, "m":
                pass
            case _:
                raise AssertionError(f"escape {number}{code}")
