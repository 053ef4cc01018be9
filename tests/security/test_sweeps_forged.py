"""
Index entries by which who may write some rows of an index would end every sweep that reads by it.
"""

import datetime as dt
import json

import pytest

from tableorm import Database, Entity, Index, Mapped, field
from tableorm.stores import Row, RowQuery
from tests.rows import insert_row

PAST = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)


class Ticket(Entity, table="ForgedTickets", partition_key="{show}", row_key="ticket_{id:05d}"):
    show: Mapped[str]
    id: Mapped[int]
    expires: Mapped[dt.datetime | None] = field(default=None, expiry=True)

    by_expiry = Index(
        table="ForgedExpiry",
        partition_key="all",
        row_key="{expires:ticks}_{show}_{id:05d}",
        consistency="eventual",
        building=False,
    )


@pytest.fixture
async def db(db: Database) -> Database:
    await db.create_tables(Ticket)
    await db.insert(Ticket(show="Hamlet", id=5, expires=PAST))
    return db


OWNERS = {
    "no text": 5,
    "no JSON": "x",
    "a key that no row can have": json.dumps(["ForgedTickets", "Hamlet", "a/b"]),
    "a key of another length": json.dumps(["ForgedTickets", "Hamlet" * 1_000, "ticket_00005"]),
    "a key of another type": json.dumps(["ForgedTickets", "Hamlet", 5]),
    "another table": json.dumps(["ForgedExpiry", "Hamlet", "ticket_00005"]),
    "no entity": json.dumps(["ForgedTickets", "Hamlet", "ticket_00006"]),
}


@pytest.mark.parametrize("owner", OWNERS.values(), ids=OWNERS)
async def test_an_entry_that_names_no_entity_ends_no_sweep(db: Database, owner: object) -> None:
    """It is reported, or passed over if there is no such entity, and what has expired is deleted."""
    [entry] = (await db.store.query("ForgedExpiry", RowQuery(), 10)).rows
    forged: Row = {**entry, "RowKey": entry["RowKey"].replace("0637", "0636"), "_of": owner}
    await insert_row(db, "ForgedExpiry", forged)
    report = await db.sweep(Ticket)
    assert report.deleted == 1
    assert len(report.failures) == int("00006" not in str(owner))
    assert all(repr(forged["RowKey"]) in each and len(each) <= 440 for each in report.failures)
