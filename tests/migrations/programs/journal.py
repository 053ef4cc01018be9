"""
A journal of what writers do, which all of them write, and in which a reader sees what it must find.
"""

import os
from pathlib import Path

import attrs

GONE = -1
"""The value of an entity that is not there."""


class Pen:
    """
    Writes the journal: each line at once, so that no process sees half of one.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def begin(self, number: int) -> None:
        """Note that an entity is about to be written."""
        os.write(self._file, f"begin {number}\n".encode())

    def confirm(self, number: int, value: int) -> None:
        """Note that this was written."""
        os.write(self._file, f"end {number} {value}\n".encode())

    def close(self) -> None:
        os.close(self._file)


@attrs.define
class Known:
    """
    What is known of an entity.

    Args:
        begun: How many writes of it have begun.
        open: Whether one of them has not ended; then it may have either value.
        value: What was written last.
    """

    begun: int = 0
    open: bool = False
    value: int = GONE


class Journal:
    """
    Reads the journal.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._offset = path, 0
        self.known: dict[int, Known] = {}

    def catch_up(self) -> None:
        """Read what was written since the last call."""
        with self._path.open("rb") as file:
            file.seek(self._offset)
            lines = file.read().rpartition(b"\n")[0]
        if not lines:
            return
        self._offset += len(lines) + 1
        for line in lines.decode().split("\n"):
            what, number, *value = line.split()
            known = self.known.setdefault(int(number), Known())
            if what == "begin":
                known.begun += 1
                known.open = True
            else:
                known.open, known.value = False, int(value[0])

    def settled(self) -> dict[int, Known]:
        """Return what is known of the entities that nobody is writing at the moment."""
        return {number: attrs.evolve(known) for number, known in self.known.items() if not known.open}

    def find_problems(self, before: dict[int, Known], found: dict[int, int]) -> list[str]:
        """
        Return what is wrong with the answer to a question.

        Args:
            before: What was settled before it was asked; what has been written since is left out.
            found: The values of the entities that it gave.
        """
        self.catch_up()
        return [
            f"{number} is {found.get(number, GONE)} in the answer, and {known.value} was confirmed before it was asked"
            for number, known in before.items()
            if self.known[number].begun == known.begun and found.get(number, GONE) != known.value
        ]
