"""
The line of revisions: a folder has one file for each, and each but the first follows another one; and what a store has
recorded of them: which were begun, and which are applied.
"""

import datetime as dt
import runpy
from collections.abc import Mapping, Sequence
from pathlib import Path

from tableorm import Database, Entity, Mapped, ModelError, TableNotFound, field
from tableorm.models.reserved import UPKEEP_TABLE
from tableorm.stores import utc_now

from ..evolution import compare_snapshots
from ..snapshot import Identity, ModelLayout, Snapshot
from .revision import Revision, digest_of


def load_revisions(directory: Path) -> list[Revision]:
    """
    Return the revisions of a folder in order; none if the folder doesn't exist.

    Args:
        directory: The folder. Files whose names begin with an underscore are ignored.

    Raises:
        ModelError: A file doesn't contain a revision, or the revisions don't form a single line: two follow the same
            one, or one follows a revision that isn't there.
    """
    files = sorted(path for path in directory.glob("*.py") if not path.name.startswith("_"))
    return _sort_revisions([_load_revision(path) for path in files], directory)


def last_layouts(revisions: Sequence[Revision]) -> dict[Identity, ModelLayout]:
    """Return the layouts that some revisions, one after the other, lead to."""
    layouts: dict[Identity, ModelLayout] = {}
    for revision in revisions:
        for layout in revision.before.values():
            layouts.pop(layout.identity, None)
        layouts |= {layout.identity: layout for layout in revision.after.values()}
    return layouts


def check_snapshot(revisions: Sequence[Revision], snapshot: Snapshot | None, directory: Path, path: Path) -> None:
    """
    Refuse a snapshot that is not what some revisions lead to.

    Args:
        revisions: The revisions, in order; if there is none, any snapshot is good that was written without one.
        snapshot: The snapshot; None if there is none.
        directory: The folder of the revisions.
        path: The file of the snapshot.

    Raises:
        ModelError: It says something else.
    """
    written = None if snapshot is None else snapshot.revision
    if written is not None and all(each.name != written for each in revisions):
        raise ModelError(
            f"{path} was written with revision {written}, which is not in {directory}; restore it from the repository, "
            "or say where the revisions are"
        )
    if not revisions:
        return
    if snapshot is None:
        raise ModelError(f"{directory} has revisions, and there is no snapshot {path}; restore it from the repository")
    differences = compare_snapshots(Snapshot(models=tuple(last_layouts(revisions).values())), snapshot)
    if differences:
        raise ModelError(
            f"{path} is not what revision {revisions[-1].name} leads to: {differences[0].subject}: "
            f"{differences[0].detail}; restore both from the repository, then run tableorm migrate revision"
        )


def _load_revision(path: Path) -> Revision:
    try:
        found = runpy.run_path(str(path)).get("REVISION")
    except Exception as error:
        raise ModelError(f"{path} cannot be loaded: {type(error).__name__}: {error}") from error
    if not isinstance(found, Revision):
        raise ModelError(f"{path} has no REVISION = Revision(...); begin the names of other files with an underscore")
    if found.name != path.stem:
        raise ModelError(f"{path} holds the revision {found.name!r}; file and revision must have the same name")
    return found


def _sort_revisions(revisions: Sequence[Revision], directory: Path) -> list[Revision]:
    names = {revision.name for revision in revisions}
    next_of: dict[str | None, Revision] = {}
    for revision in revisions:
        follows = revision.follows
        if follows is not None and follows not in names:
            raise ModelError(
                f"{directory}: revision {revision.name} follows {follows}, which is not there; restore its file from "
                "the repository"
            )
        other = next_of.setdefault(follows, revision)
        if other is not revision:
            place = f"both follow {follows}" if follows else "are both the first"
            raise ModelError(
                f"{directory}: revisions {other.name} and {revision.name} {place}, but revisions are one line; delete "
                "the file of one that no database has applied, restore the snapshot of the other, and write it anew: "
                "tableorm migrate revision"
            )
    line: list[Revision] = []
    last: str | None = None
    while last in next_of:
        line.append(next_of.pop(last))
        last = line[-1].name
    if next_of:
        names_left = ", ".join(sorted(revision.name for revision in next_of.values()))
        raise ModelError(f"{directory}: revisions {names_left} follow each other in a circle; restore their files")
    return line


class RevisionRecord(
    Entity, table=UPKEEP_TABLE, kind="Revision", partition_key="revisions", row_key="{name}", write_token=True
):
    """
    The row of a revision that was begun.
    """

    name: Mapped[str]
    follows: Mapped[str | None] = field(default=None)
    digest: Mapped[str]
    begun: Mapped[dt.datetime]
    applied: Mapped[dt.datetime | None] = field(default=None)


async def load_records(db: Database) -> dict[str, RevisionRecord]:
    """Return the revisions that a store has recorded, by name; none if it has no such table."""
    try:
        found = await db.select(RevisionRecord).all()
    except TableNotFound:
        return {}
    return {record.name: record for record in found}


def check_records(records: Mapping[str, RevisionRecord], revisions: Sequence[Revision], directory: Path) -> None:
    """
    Refuse files of revisions that are not those that a store has recorded.

    Args:
        records: What is recorded.
        revisions: The revisions, in order.
        directory: Their folder.

    Raises:
        ModelError: A revision that is recorded is missing, or differs.
    """
    by_name = {revision.name: revision for revision in revisions}
    for name, record in records.items():
        revision, said = by_name.get(name), "applied" if record.applied is not None else "begun"
        if revision is None:
            raise ModelError(
                f"{directory} has no revision {name}, which the database has {said}; run the program that has it, or "
                "restore its file from the repository"
            )
        if digest_of(revision) != record.digest:
            raise ModelError(
                f"revision {name} of {directory} is not the one that the database has {said}: its steps, layouts or "
                "what it follows have changed; restore its file from the repository, and write another revision"
            )


async def record_begun(db: Database, revision: Revision, directory: Path) -> None:
    """
    Note that a revision is begun, unless somebody has noted it already.

    Raises:
        ModelError: Somebody has noted another revision of this name since the records were read.
    """
    record = RevisionRecord(name=revision.name, follows=revision.follows, digest=digest_of(revision), begun=utc_now())
    try:
        stored, _ = await db.get_or_insert(record)
    except TableNotFound:
        await db.create_tables(RevisionRecord)
        stored, _ = await db.get_or_insert(record)
    check_records({revision.name: stored}, [revision], directory)


async def record_applied(db: Database, revision: Revision) -> None:
    """Note that a revision is applied, unless somebody has noted it already."""

    def apply(record: RevisionRecord) -> None:
        record.applied = record.applied or utc_now()

    await db.modify(RevisionRecord, apply, name=revision.name)
