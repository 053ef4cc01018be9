"""
Database files made by somebody else whose rows of change feeds, and of states of indexes, have a time that is none.
"""

import datetime as dt
from pathlib import Path

import pytest

from tableorm import DecodeError, Entity, Feed, Index, Mapped, RetryPolicy, connect, field
from tableorm_migrations import migration_status
from tests.security.test_files import craft


class Ticket(Entity, table="CraftedTickets", partition_key="{show}", row_key="ticket_{id:05d}"):
    show: Mapped[str]
    id: Mapped[int]
    note: Mapped[str] = field(default="")

    by_note = Index(row_key="note_{note}_{id:05d}")
    changes = Feed(keep=dt.timedelta(hours=1))


async def test_a_timestamp_that_is_no_time_is_damage(tmp_path: Path) -> None:
    """Readers of a feed, sweeps, and who asks for states of indexes get an error of this package that names the row."""
    path = tmp_path / "crafted.tables"
    async with connect(f"local:{path}") as db:
        await db.create_tables(Ticket)
        await db.insert(Ticket(show="Hamlet", id=1))
        tables = await db.tables()
    body = "CAST(json_set(CAST(body AS TEXT), '$.Timestamp', 'soon') AS BLOB)"
    craft(path, *(f"UPDATE t{number} SET body = {body}" for number in range(1, len(tables) + 1)))
    async with connect(f"local:{path}", retry=RetryPolicy(attempts=1)) as db:
        with pytest.raises(DecodeError, match="has the Timestamp 'soon', which is no time"):
            _ = [change async for change in db.changes(Ticket, show="Hamlet")]
        with pytest.raises(DecodeError, match="has the Timestamp 'soon', which is no time"):
            await migration_status(db)
        report = await db.sweep(Ticket, parallel=1)
        assert report.failed == 1
