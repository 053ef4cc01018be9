"""
Chunks of a bulk, and parts of rows made from others: what one failure costs, and whose error it is.
"""

import pytest

from tableorm import (
    AccessDenied,
    Database,
    Entity,
    EntityExists,
    Index,
    Mapped,
    OutcomeUnknown,
    RetryPolicy,
    TableNotFound,
    Unavailable,
    connect,
)
from tableorm.derived.index_list.rows import ListEffect
from tableorm.stores import Operation, Row
from tableorm.testing import Faults
from tests.databases import memory_database
from tests.derived.patterns.firm import Department, Employee, assert_consistent


class Ticket(Entity, table="TicketsInChunks", partition_key="{queue}", row_key="ticket_{id:05d}"):
    queue: Mapped[str]
    id: Mapped[int]
    state: Mapped[str]

    by_state = Index(row_key="state_{state}_{id:05d}", include="keys")


async def fill(db: Database, *numbers: int) -> None:
    await db.insert(Department(name="Sales"))
    for number in numbers:
        await db.insert(Employee(id=number))


@pytest.mark.parametrize("code", ["TableNotFound", "AuthorizationFailure", "InternalError"])
async def test_what_every_part_would_meet_is_sent_once(code: str) -> None:
    """A table that is missing, or a refusal of the caller, is an error of each write, after one transaction for all."""
    async with connect("local::memory:", retry=RetryPolicy(base=0, attempts=1)) as db:
        if code != "TableNotFound":
            await db.create_tables(Ticket)
            Faults(db).fail_next("transaction", with_=code, times=1000)
        async with db.bulk(errors="report") as bulk:
            for number in range(20):
                await bulk.insert(Ticket(queue="a", id=number, state="open"))

    assert (bulk.report.failures, bulk.report.requests) == (20, 1)
    assert {type(each.error) for each in bulk.report.failed} <= {TableNotFound, AccessDenied, Unavailable}


async def test_what_fails_is_left_out(db: Database) -> None:
    """The others are sent once more without it, all together: the chunk is not searched for what failed."""
    await fill(db, 12)
    async with db.bulk(errors="report") as bulk:
        for number in range(16):
            await bulk.insert(Employee(id=number))

    assert (bulk.report.written, bulk.report.failures) == (15, 1)
    assert [type(each.error) for each in bulk.report.failed] == [EntityExists]
    failed = bulk.report.failed[0].entity
    assert isinstance(failed, Employee)
    assert failed.id == 12
    assert bulk.report.requests == 2
    await assert_consistent(db)


async def test_a_list_that_may_not_be_divided(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the store says of the transaction that divides a list is the error of the write that needs it."""
    await fill(db)
    async with db.bulk() as bulk:
        for number in range(150):
            await bulk.insert(Employee(id=number, last_name="Li"))
    real, faults = ListEffect.split_first, Faults(db)

    def split_first(self: ListEffect, stored: Row | None, token: str) -> list[Operation]:
        operations = real(self, stored, token)
        if operations:
            faults.fail_next("transaction", with_=403)
        return operations

    monkeypatch.setattr(ListEffect, "split_first", split_first)
    with pytest.raises(AccessDenied, match=r" split for the insert of Employee \('Sales', .*'lastname_Li~'"):
        for number in range(150, 170):
            await db.insert(Employee(id=number, last_name="Li"))
    monkeypatch.undo()
    await assert_consistent(db)


async def test_a_list_that_was_divided_proves_no_write(monkeypatch: pytest.MonkeyPatch) -> None:
    """The list is divided in a transaction of its own: it says nothing of the insert behind it, which never arrived."""
    async with memory_database(Department, Employee, retry=RetryPolicy(base=0, attempts=2)) as db:
        await fill(db)
        real, faults, number = ListEffect.split_first, Faults(db), 0

        def split_first(self: ListEffect, stored: Row | None, token: str) -> list[Operation]:
            operations = real(self, stored, token)
            if operations:
                faults.lose_request("merge", times=1000)  # of the department's count, beside the insert
            return operations

        monkeypatch.setattr(ListEffect, "split_first", split_first)
        with pytest.raises(OutcomeUnknown):
            for number in range(1000):
                await db.insert(Employee(id=number, last_name="Li"))
        assert number > 100
        assert await db.select(Employee).where(Employee.department == "Sales").count() == number
