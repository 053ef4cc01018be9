"""
Entities in which others keep something, under another key, and inserted again: what is kept begins anew there.
"""

import pytest

from tableorm import Conflict, Database
from tests.derived.index.oracle import read_table
from tests.derived.patterns.club import Player, check
from tests.derived.patterns.firm import Department, Employee, assert_consistent


async def led(db: Database) -> Department:
    """A department with a manager, and nobody who counts in it but for that one."""
    await db.insert(Department(name="Sales"))
    await db.insert(Employee(department="Sales", id=1, salary=5))
    return await db.modify(Department, lambda each: each.evolve(manager_id=1), name="Sales")


async def test_a_listed_and_counted_entity_moves(db: Database) -> None:
    """It is in the lists under its new key, and counted once."""
    await db.insert(Department(name="Sales"))
    ada = Employee(department="Sales", id=1, salary=5)
    await db.insert(ada)

    await db.move(ada, id=2)

    await assert_consistent(db)
    assert (await db.get(Department, name="Sales")).employee_count == 1


async def test_an_entity_of_which_copies_are_held_stays(db: Database) -> None:
    """The holder would refer to nothing."""
    await led(db)
    ada = await db.get(Employee, department="Sales", id=1)

    with pytest.raises(Conflict, match=r"holds copies of it \(Department.manager\)"):
        await db.move(ada, id=2)
    await assert_consistent(db)


@pytest.mark.parametrize("how", ["verb", "transaction"])
async def test_an_entity_that_holds_copies_moves(db: Database, how: str) -> None:
    """Under its new key it holds them as before, and the other entity notes that."""
    await db.create_tables(Player)
    await db.insert(Player(id=1, name="Ada"))
    bob = Player(id=2, friend=1)
    await db.insert(bob)
    assert bob.friend_name == "Ada"

    if how == "verb":
        await db.move(bob, id=3)
    else:
        async with db.transaction() as tx:
            tx.move(bob, id=3)

    assert (bob.id, bob.friend_name) == (3, "Ada")
    assert check(await read_table(db, "Club")) == []


async def test_what_was_deleted_can_be_inserted_again(db: Database) -> None:
    """The program holds the counts of then; the new row begins at none."""
    await led(db)
    sales = await db.get(Department, name="Sales")
    sales.manager_id = None
    await db.save(sales)
    await db.delete(Employee, department="Sales", id=1, if_match="*")
    await db.refresh(sales)
    ada = Employee(department="Sales", id=2, salary=7)
    async with db.transaction() as tx:
        tx.insert(ada)
    await db.refresh(sales)
    async with db.transaction() as tx:
        tx.delete(ada)
        tx.delete(sales)
    assert sales.employee_count == 0

    await db.insert(sales)

    await assert_consistent(db)
