"""
What a store has recorded of revisions: which were begun, and which are applied.
"""

import datetime as dt
from collections.abc import Mapping, Sequence
from pathlib import Path

from tableorm import Database, Entity, Mapped, ModelError, TableNotFound, field
from tableorm.models.reserved import UPKEEP_TABLE
from tableorm.stores import utc_now

from .revision import Revision, digest_of


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
