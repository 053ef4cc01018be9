"""
`db.audit` while somebody writes between two of its requests: it reports no damage that never was, and its repairs
overwrite nothing.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from itertools import count
from typing import Any

import pytest

from tableorm import Database, connect
from tableorm.connection import races
from tableorm.connection.connection import connection_of
from tableorm.connection.races import ATTEMPTS
from tableorm.derived.index_list.rows import bits_of
from tableorm.protocol.codes import Fault
from tableorm.stores import RetryPolicy, Row, StoreLayer, StoreRequest, Verb
from tests.audit.patterns.test_audit import CASES, E1, E2, HEAD, LI, merge, put, write
from tests.damage import found_by
from tests.database.between import Between
from tests.derived.patterns.firm import Badge, Department, Employee, assert_consistent
from tests.faults import QUICK
from tests.rows import merge_row
from tests.torture import Rounds

Deed = Callable[[Database], Awaitable[object]]
"""What somebody does to the rows."""

E5 = "empid_000005"
MODELS = (Department, Employee, Badge)


class Interrupted(StoreLayer):
    """A store in which somebody does something before a request arrives: `deed`, after `left` other requests."""

    left = 0
    deed: Callable[[], Awaitable[object]] | None = None

    @property
    def interrupted(self) -> bool:
        """Whether it has been done."""
        return self.deed is None

    async def send(self, request: StoreRequest) -> Any:
        if self.deed is not None and self.left == 0:
            deed, self.deed = self.deed, None
            await deed()
        self.left -= self.deed is not None
        return await super().send(request)


def interrupt(db: Database) -> Interrupted:
    """Put such a store in front of that of a database."""
    store = Interrupted(connection_of(db).store)
    connection_of(db).wrap_store(lambda _: store)
    return store


async def fill(db: Database) -> None:
    """A department that is led by the first of four employees, and a badge."""
    await db.create_tables(*MODELS)
    async with db.transaction() as tx:
        tx.insert(Department(name="Sales"))
        for number, last_name in ((1, "Li"), (2, "Li"), (3, "Wu"), (5, "Li")):
            tx.insert(Employee(department="Sales", id=number, last_name=last_name, salary=5 * number))
        tx.insert(Badge(department="Sales", number=1, code="a"))
    await db.modify(Department, lambda each: setattr(each, "manager_id", 1), name="Sales")


# What others do that know what is derived


async def insert_employee(db: Database) -> None:
    await db.insert(Employee(department="Sales", id=4, last_name="Li", salary=7))


async def delete_employee(db: Database) -> None:
    await db.delete(Employee, department="Sales", id=2, if_match="*")


async def rename_manager(db: Database) -> None:
    await db.modify(Employee, lambda each: setattr(each, "name", "Bea"), department="Sales", id=1)


async def change_reference(db: Database) -> None:
    await db.modify(Department, lambda each: setattr(each, "manager_id", 3), name="Sales")


async def change_code(db: Database) -> None:
    await db.modify(Badge, lambda each: setattr(each, "code", "b"), department="Sales", number=1)


async def make_list_anew(db: Database) -> None:
    """What another audit repairs, and then a new employee comes into the list."""
    await put(db, LI, E1, E2, E5)
    await insert_employee(db)


async def divide_list_again(db: Database) -> None:
    await put(db, LI, divided=True)
    await insert_employee(db)


async def make_entry_of_new_badge(db: Database) -> None:
    """What another audit repairs, and then the key of the entry is that of another badge."""
    with suppress(Fault):  # the audit may have deleted it
        await write(db, Verb.DELETE, "code_z")
    await db.insert(Badge(department="Sales", number=9, code="z"))


# Damage, besides that of all audits


async def list_was_divided(db: Database) -> None:
    for bit in "01":
        await put(db, LI + bit, *(key for key in (E1, E2, E5) if bits_of(key, 1) == bit))
    await put(db, LI, E1)


async def entry_of_nobody(db: Database) -> None:
    await write(db, Verb.INSERT, "code_z", EntityType="Badge#by_code", _of="badge_000009", code="z")


async def entry_is_changed(db: Database) -> None:
    await merge(db, "code_a", EntityType="Badge#by_code", Extra="x")


HARMS = {case.name: case.harm for case in CASES}


@pytest.mark.one_of(7)
@pytest.mark.parametrize(
    ("harm", "deed"),
    [
        (HARMS["count_is_wrong"], insert_employee),
        (HARMS["count_is_wrong"], delete_employee),
        (HARMS["key_of_nobody"], insert_employee),
        (HARMS["list_is_damaged"], make_list_anew),
        (list_was_divided, divide_list_again),
        (list_was_divided, insert_employee),
        (HARMS["copy_is_changed"], rename_manager),
        (HARMS["reference_is_changed"], change_reference),
        (entry_of_nobody, make_entry_of_new_badge),
        (entry_is_changed, change_code),
    ],
)
@pytest.mark.parametrize("repair", [False, True])
async def test_a_write_between_two_requests(harm: Deed, deed: Deed, repair: bool, rounds: Rounds) -> None:
    """
    Wherever it falls, the audit finds what was wrong before it or after it, and nothing else; and after a repair
    everything is as the entities say.
    """
    for number in count(0, rounds(3, 1)):
        async with connect("local::memory:", retry=QUICK) as db:
            store = interrupt(db)
            await fill(db)
            await harm(db)
            before = found_by(await db.audit(*MODELS, parallel=1))
            store.left, store.deed = number, partial(deed, db)
            report = await db.audit(*MODELS, parallel=1, repair=repair)
            if not store.interrupted:
                assert number > 2
                break
            after = await db.audit(*MODELS, parallel=1)

            assert report.undecided == 0
            if repair:
                assert [str(each) for each in after.findings] == []
                await assert_consistent(db)
            else:
                assert found_by(report) <= before | found_by(after)


class Overwritten(Between):
    """A store in which somebody writes an entity again and again: at each of its reads it has another ETag."""

    row_key: str | None = None

    async def get(self, table: str, partition_key: str, row_key: str, select: tuple[str, ...] | None = None) -> Row:
        if row_key == self.row_key:
            keys: Row = {"PartitionKey": partition_key, "RowKey": row_key}
            await merge_row(self.inner.tables, table, keys)
        return await super().get(table, partition_key, row_key, select)


def longer_each_time(failures: int, policy: RetryPolicy) -> float:
    """Return the seconds of a pause that tell after how many failures it comes: after n failures n + 1 seconds."""
    return failures + 1.0


@pytest.mark.parametrize(
    ("harm", "row_key", "looks"),
    [
        (HARMS["copy_is_changed"], HEAD, ATTEMPTS),
        (entry_of_nobody, "code_z", ATTEMPTS),
        (HARMS["count_is_wrong"], HEAD, 6),
        (HARMS["list_is_damaged"], LI, ATTEMPTS),
        (HARMS["key_of_nobody"], LI, ATTEMPTS),
    ],
)
async def test_pauses_between_looks(harm: Deed, row_key: str, looks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row that others write all the time is looked at again after a pause that grows, until it is undecided."""
    pauses: list[float] = []
    sleep = asyncio.sleep

    async def record(seconds: float) -> None:
        pauses.append(seconds)
        await sleep(0)

    backend = Overwritten()
    async with Database(backend, retry=RetryPolicy()) as db:
        await fill(db)
        await harm(db)
        backend.row_key = row_key
        monkeypatch.setattr(asyncio, "sleep", record)
        monkeypatch.setattr(races, "pause_after", longer_each_time)
        report = await db.audit(*MODELS, parallel=1)

    assert ([str(each) for each in report.findings], report.undecided) == ([], 1)
    assert not report.clean and ": nothing found, 1 undecided; " in str(report)
    assert [each for each in pauses if each] == [min(1.0, (number + 1) / 5) for number in range(1, looks)]
