"""
Database files made by somebody else whose rows of change feeds, and of states of indexes, have a time that is none.
"""

import datetime as dt
from pathlib import Path

import pytest

from tableorm import DecodeError, Entity, Feed, Index, Mapped, RetryPolicy, connect, field
from tableorm.stores import Operation, Verb
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


class Account(Entity, table="CraftedAccounts", partition_key="{town}", row_key="account_{id}"):
    town: Mapped[str]
    id: Mapped[int]
    email: Mapped[str]

    by_email = Index(
        table="CraftedEmails", partition_key="{email}", row_key="taken", unique=True, consistency="eventual"
    )


@pytest.mark.parametrize("time", ["soon", "0001-01-01T00:00:00+23:00"])
@pytest.mark.parametrize(
    ("table", "row_key", "kind"),
    [
        ("CraftedEmails", "taken", "Account#by_email"),
        ("CraftedAccounts", "account_1", "Account#_tentative"),
        ("CraftedAccounts", "~o_x", "#_decision"),
    ],
)
async def test_a_timestamp_that_is_no_time_ends_an_audit(
    tmp_path: Path, table: str, row_key: str, kind: str, time: str
) -> None:
    """An audit that asks how old a row is, to tell whether its write is over, gets such an error too."""
    path = tmp_path / "crafted.tables"
    async with connect(f"local:{path}") as db:
        await db.create_tables(Account)
        row = {"PartitionKey": "Bern", "RowKey": row_key, "EntityType": kind}
        await db.store.write(table, Operation(Verb.INSERT, row))
    body = f"CAST(json_set(CAST(body AS TEXT), '$.Timestamp', '{time}') AS BLOB)"
    craft(path, f"UPDATE t1 SET body = {body}", f"UPDATE t2 SET body = {body}")
    async with connect(f"local:{path}", retry=RetryPolicy(attempts=1)) as db:
        with pytest.raises(DecodeError, match="which is no time"):
            await db.audit(Account)
