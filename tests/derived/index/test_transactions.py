"""
Indexes in transactions: several changes of one entity, values that are exchanged or taken over, rows that are read when
the block ends, moves, and chunks of a bulk.
"""

import pytest

from tableorm import Database, NotSupported, PreconditionFailed, TransactionFailed, UniqueViolation
from tests.derived.index.oracle import read_table
from tests.derived.index.staff import Desk, Employee, EmployeeV1, employee, find_wrong, stored

EMPLOYEE = Employee.key(department="Sales", id=1)


async def prepare(db: Database, count: int = 3) -> list[Employee]:
    await db.create_tables(Employee)
    entities = [employee(number) for number in range(1, count + 1)]
    for each in entities:
        await db.insert(each)
    return entities


async def check(db: Database) -> None:
    assert await find_wrong(db) == []


@pytest.mark.parametrize("verb", ["insert", "save", "upsert", "replace"])
@pytest.mark.parametrize("together", ["transaction", "bulk"])
async def test_what_is_changed_after_it_was_given(db: Database, together: str, verb: str) -> None:
    """Entries are of the entity as it was given; what is changed later in the block belongs to another write."""
    (one,) = await prepare(db, 1) if verb in ("save", "replace") else [employee(1)]
    await db.create_tables(Employee)
    one.email, one.last_name = "given@x", "Given"
    async with db.transaction() if together == "transaction" else db.bulk() as block:
        given = getattr(block, verb)(one)
        if together == "bulk":
            await given
        one.email, one.last_name, one.age = "later@x", "Later", 77

    await check(db)
    assert (one.email, (await db.get(EMPLOYEE)).email) == ("later@x", "given@x")
    await db.save(one)
    await check(db)
    assert (await db.get(EMPLOYEE)).last_name == "Later"


async def test_an_entity_takes_its_own_place(db: Database) -> None:
    """Deleted and inserted in one block, with other values."""
    one, *_ = await prepare(db)
    async with db.transaction() as tx:
        tx.delete(one)
        tx.insert(employee(1, email="new@x", last_name="Zed", active=False))
    await check(db)


async def test_two_entities_of_a_transaction_want_one_value(db: Database) -> None:
    """Nothing is sent; the second of them is named."""
    await prepare(db)
    before = await stored(db)
    with pytest.raises(TransactionFailed, match="another entity of this transaction has") as caught:
        async with db.transaction() as tx:
            tx.insert(employee(7, email="same@x"))
            tx.insert(employee(8, email="same@x"))
    assert caught.value.index == 1
    assert isinstance(caught.value.__cause__, UniqueViolation)
    assert await stored(db) == before


async def test_a_violation_names_the_operation(db: Database) -> None:
    """Of the user's, however many rows were sent before; nothing was applied."""
    await prepare(db)
    before = await stored(db)
    with pytest.raises(TransactionFailed) as caught:
        async with db.transaction() as tx:
            tx.insert(employee(7))
            tx.insert(Desk(department="Sales", number=1))
            tx.insert(employee(8, email="e1@x"))
    assert (caught.value.index, caught.value.operation) == (2, "insert")
    assert isinstance(caught.value.__cause__, UniqueViolation)
    assert await stored(db) == before


async def test_what_is_read_late_is_written_once(db: Database) -> None:
    """A second change of the row in the block would not know it: refused, with the way out."""
    await prepare(db)
    with pytest.raises(NotSupported, match=r"tx\.modify"):
        async with db.transaction() as tx:
            tx.upsert(employee(1))
            tx.delete(EMPLOYEE, if_match="*")
    with pytest.raises(NotSupported, match="read it before"):
        async with db.transaction() as tx:
            tx.upsert(employee(1))
            await tx.get(EMPLOYEE)
    await check(db)


async def test_a_guard_touches_the_entity_alone(db: Database) -> None:
    """Its copies are as they were; who has changed it fails the transaction."""
    await prepare(db)
    before = await read_table(db, "Staff")
    async with db.transaction() as tx:
        await tx.get(EMPLOYEE, guard=True)
        tx.insert(Desk(department="Sales", number=1))
    await check(db)
    after = await read_table(db, "Staff")
    touched = {key for key in before if before[key].etag != after[key].etag}
    assert touched == {("Sales", "empid_000001")}
    with pytest.raises(TransactionFailed) as caught:
        async with db.transaction() as tx:
            one = await tx.get(EMPLOYEE, guard=True)
            tx.insert(Desk(department="Sales", number=2))
            await db.modify(Employee, lambda e: e.evolve(age=50), department="Sales", id=one.id)
    assert isinstance(caught.value.__cause__, PreconditionFailed)
    await check(db)


async def test_an_entity_that_was_read_by_an_index_moves(db: Database) -> None:
    """Likewise, and one of an older version."""
    await prepare(db)
    await db.insert(EmployeeV1(department="Sales", id=9, email="old@x"))
    for address, number in (("e1@x", 71), ("old@x", 79)):
        found = await db.get(Employee.by_email, department="Sales", email=address)
        await db.refresh(found)
        await db.move(found, id=number)
    await check(db)
    assert (await db.get(Employee.by_email, department="Sales", email="old@x")).id == 79
