"""
The status of migrations: which revisions a database has applied, what is under way, and which indexes are complete.
"""

import datetime as dt
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs

from tableorm import Database
from tableorm.connection.connection import connection_of
from tableorm.connection.index_states import IndexState, load_states
from tableorm.connection.rows import time_of
from tableorm.jobs.report import RunReport
from tableorm.protocol.redaction import escape_unprintable
from tableorm.rekey.phases import read_phases
from tableorm.stores import Row

from .line import check_records, load_records, load_revisions


@attrs.frozen(kw_only=True)
class RevisionStatus:
    """
    The state of a revision in a database.

    Args:
        name: The name of the revision.
        begun: When it was begun; None if it wasn't.
        applied: When it was applied; None if it isn't.
    """

    name: str
    begun: dt.datetime | None = None
    applied: dt.datetime | None = None

    def __str__(self) -> str:
        if self.applied is not None:
            return f"{self.name}: applied {_format_time(self.applied)}"
        return f"{self.name}: pending" + (f", begun {_format_time(self.begun)}" if self.begun is not None else "")


@attrs.frozen(kw_only=True)
class RekeyStatus:
    """
    How far a re-key is.

    Args:
        model: Name of the newer model.
        old_model: Name of the older model.
        phase: "move", "sealed", "done" or "back". Before "move" the store knows nothing of it.
        since: When the phase began.
    """

    model: str
    old_model: str
    phase: str
    since: dt.datetime

    def __str__(self) -> str:
        return f"{self.old_model} as {self.model}: {self.phase} since {_format_time(self.since)}"


@attrs.frozen(kw_only=True)
class MigrationStatus:
    """
    What a database records about its migrations.

    Args:
        revisions: The recorded revisions, and those of a folder that aren't recorded.
        runs: The shared runs.
        indexes: The states of indexes.
        rekeys: The phases of re-keys.
    """

    revisions: tuple[RevisionStatus, ...]
    runs: tuple[RunReport, ...]
    indexes: tuple[IndexState, ...]
    rekeys: tuple[RekeyStatus, ...] = ()

    def __str__(self) -> str:
        runs = [f"{run}, {run.rate:.0f} entities a second" if run.state == "open" else run for run in self.runs]
        parts: dict[str, Sequence[object]] = {"revisions": self.revisions, "runs": runs, "indexes": self.indexes}
        if self.rekeys:
            parts["re-keys"] = self.rekeys
        lines: list[str] = []
        for title, some in parts.items():
            lines.append(f"{title}:" if some else f"{title}: none")
            lines += [f"  {escape_unprintable(str(each))}" for each in some]  # what rows say makes no lines
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Return the status as plain values; times are datetimes."""
        return {**attrs.asdict(self), "runs": [each.to_dict() for each in self.runs]}


async def migration_status(db: Database, directory: Path | None = None) -> MigrationStatus:
    """
    Return what a database records about its revisions, its shared runs, its indexes, and its re-keys.

        print(await migration_status(db, Path("revisions")))

    Args:
        db: The open database.
        directory: The folder of the revisions, to list also those that the database hasn't begun; None to omit these.

    Raises:
        ModelError: The revisions of the folder don't form a single line, or aren't those that the database has
            recorded.
    """
    records = await load_records(db)
    line = [] if directory is None else load_revisions(directory)
    if directory is not None and line:
        check_records(records, line, directory)
    names = dict.fromkeys([*(each.name for each in line), *sorted(records, key=lambda name: records[name].begun)])
    recorded = {
        name: RevisionStatus(name=name, begun=record.begun, applied=record.applied) for name, record in records.items()
    }
    connection = connection_of(db)
    return MigrationStatus(
        revisions=tuple(recorded.get(name) or RevisionStatus(name=name) for name in names),
        runs=tuple(await db.runs()),
        indexes=tuple(await load_states(connection)),
        rekeys=tuple(map(_rekey_status, await read_phases(connection))),
    )


def _rekey_status(row: Row) -> RekeyStatus:
    model, old, phase = (str(row.get(name)) for name in ("Model", "OldModel", "Phase"))
    return RekeyStatus(model=model, old_model=old, phase=phase, since=time_of(row, f"the phase of {model}"))


def _format_time(moment: dt.datetime) -> str:
    return f"{moment.astimezone(dt.UTC):%Y-%m-%d %H:%M} UTC"
