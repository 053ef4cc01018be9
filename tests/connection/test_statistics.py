"""
`db.stats` by operation and model, and what `repr(db)` says.
"""

import datetime as dt
from typing import Any

import pytest

from tableorm import Counts, Database, Entity, Index, Mapped, PropertyBag, connect, field
from tests.connection.conftest import Connect
from tests.faults import FaultyBackend


class Person(Entity, table="People", partition_key="{team}", row_key="person_{id:04d}"):
    team: Mapped[str]
    id: Mapped[int]
    name: Mapped[str | None] = field(default=None)


class Member(Entity, table="Members", partition_key="{team}", row_key="member_{id:04d}"):
    team: Mapped[str]
    id: Mapped[int]
    email: Mapped[str]
    by_email = Index(row_key="email_{email}", unique=True)


NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


async def test_requests_are_counted_by_operation_and_model(connecting: Connect) -> None:
    """Each operation on each model has its counters; the totals are their sums."""
    async with connecting() as db:
        await db.create_tables(Person, Member)
        before = db.stats.snapshot()
        for number in range(3):
            await db.insert(Person(team="a", id=number))
        await db.insert(Member(team="a", id=1, email="x"))
        await db.select(Person).where(Person.team == "a").all()
        await db.get(Member.by_email, team="a", email="x")
        await db.get_or_none(PropertyBag.key("People", "a", "none"))

        assert {key: each for key, each in db.stats.counts.items() if key not in before.counts} == {
            ("insert", "Person"): Counts(requests=3, operations=3),
            ("transaction", "Member"): Counts(requests=1, operations=2),
            ("query", "Person"): Counts(requests=1, rows=3),
            ("get", "Member.by_email"): Counts(requests=1, rows=1),
            ("get", "PropertyBag"): Counts(requests=1),
        }
        # The third table is that of the states of indexes, of which one is written.
        assert before.counts == {("create-table", ""): Counts(requests=3), ("transaction", ""): Counts(requests=1)}
        assert (db.stats.requests, db.stats.rows, db.stats.operations) == (4 + 7, 4, 5)
        assert db.scope(team="a").stats is db.stats


async def test_requests_beside_rows_are_counted(connecting: Connect) -> None:
    """Tables, policies and `ping` are counted too, and observed."""
    async with connecting() as db:
        await db.create_tables(Person)
        with db.observe() as seen:
            # Azurite takes a policy only in full.
            await db.policies(Person).set("readers", "r", starts_at=NOW, expires_at=NOW + dt.timedelta(days=1))
            await db.policies(Person).list()
            await db.ping()
            await db.drop_table("People")

        told = ["set-policies", "get-policies", "list-tables", "query", "delete-table"]
        assert [each.operation for each in seen.requests] == told
        assert [each.line for each in seen.requests] == [
            "PUT People?comp=acl",
            "GET People?comp=acl",
            "GET Tables",
            "GET TableormUpkeep()?$filter=PartitionKey eq 'index states'&$top=1000",
            "DELETE Tables('People')",
        ]
        assert [db.stats.counts[name, ""].requests for name in told] == [1] * 5


@pytest.mark.parametrize(
    ("url", "given", "shown"),
    [
        ("local::memory:", {}, "local::memory:"),
        ("local:./hr.tables", {"key": "c2VjcmV0"}, "local:./hr.tables"),
        ("https://acc.table.core.windows.net", {"key": "c2VjcmV0"}, "https://acc.table.core.windows.net"),
        ("https://acc.table.core.windows.net?sv=1&sig=c2VjcmV0", {}, "https://acc.table.core.windows.net"),
        ("http://127.0.0.1:8000/acc", {"sas": "sv=1&sig=c2VjcmV0"}, "http://127.0.0.1:8000/acc"),
        ("AccountName=acc;AccountKey=c2VjcmV0", {}, "https://acc.table.core.windows.net"),
    ],
)
def test_a_database_says_where_it_is(url: str, given: dict[str, Any], shown: str) -> None:
    """`repr(db)` is its URL, without the key, token or connection string that opens it."""
    assert repr(connect(url, **given)) == f"<Database {shown}>"


def test_a_backend_without_url_is_named() -> None:
    """Of a backend that does not say where it is, the class is named: its URL could hold anything."""
    assert repr(Database(FaultyBackend())) == "<Database FaultyBackend>"
