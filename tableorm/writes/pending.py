"""
Writes that a transaction holds until it is sent.
"""

import attrs
from msgspec import structs

from .plan import PlannedWrite

__all__ = ["Address", "Pending"]

Address = tuple[str, str, str]


@attrs.define
class Pending:
    """The write of one row, and the objects of it: all of them become what is written."""

    write: PlannedWrite
    subjects: list[object] = attrs.Factory(list[object])
    version: int = 0
    views: dict[int, tuple[int, PlannedWrite]] = attrs.Factory(dict[int, tuple[int, PlannedWrite]])
    """By the identity of an object the write as it knows it, and of which version that is."""

    def given(self, subject: object, write: PlannedWrite) -> None:
        """An object has made the write what it is: the others do not know that."""
        self.write, self.version = write, self.version + 1
        self.know(subject, write)

    def know(self, subject: object, write: PlannedWrite) -> None:
        """An object knows of the write so much."""
        if id(subject) not in self.views:
            self.subjects.append(subject)
        self.views[id(subject)] = self.version, write

    def view(self, subject: object) -> PlannedWrite | None:
        """The write as an object knows it; None if another has added to it since."""
        version, write = self.views.get(id(subject), (0, None))
        if write is None or version != self.version:
            return None
        if write is self.write:
            return write
        # Its condition may be another by now, since the row was read.
        return structs.replace(self.write, after=write.after, partial=write.partial, stale=write.stale)

    def last_view(self, subject: object) -> PlannedWrite | None:
        """The write as an object knew it, whatever was added since; None if it is none of the row's."""
        return self.views.get(id(subject), (0, None))[1]
