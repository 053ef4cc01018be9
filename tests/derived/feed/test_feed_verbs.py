"""
What writes note in a change feed: each transaction once, under the next number of its partition.
"""

import datetime as dt

import pytest

from tableorm import (
    BlobArchive,
    Database,
    DecodeError,
    Entity,
    EntityExists,
    Feed,
    LimitExceeded,
    Mapped,
    ModelError,
    NotSupported,
    PreconditionFailed,
    PropertyBag,
    TransactionFailed,
    field,
)
from tests.derived.feed.staff import (
    COUNTER,
    KEEP,
    Desk,
    Employee,
    Visitor,
    change_row,
    changes_of,
    insert,
    noted,
    remove,
)


class OldDesk(Entity, table="FedOldDesks", partition_key="{department}", row_key="desk_{name}", tracked=True):
    department: Mapped[str]
    name: Mapped[str]
    note: Mapped[str] = field(default="")


@pytest.mark.parametrize("db", ["memory", "azurite"], indirect=True)
async def test_every_verb_is_noted_once(db: Database) -> None:
    """Verbs are noted by what they did to the row; blind ones read it first, and so know."""
    ken = Employee(id=1, mail="k")
    await db.insert(ken)
    ken.count = 1
    await db.save(ken)
    await db.merge(ken, only=["count"])
    await db.replace(Employee(id=1, mail="k"), if_match="*")
    await db.upsert(Employee(id=2))
    await db.upsert(Employee(id=2, count=3), mode="replace")
    await db.modify(Employee, lambda each: each.evolve(count=each.count + 1), department="Sales", id=2)
    await db.get_or_insert(Employee(id=3))
    await db.delete(Employee, department="Sales", id=3, if_match="*")
    await db.delete(await db.get(Employee, department="Sales", id=2))

    assert await noted(db) == [
        ["insert empid_000001"],
        ["update empid_000001"],
        ["update empid_000001"],
        ["update empid_000001"],
        ["insert empid_000002"],
        ["update empid_000002"],
        ["update empid_000002"],
        ["insert empid_000003"],
        ["delete empid_000003"],
        ["delete empid_000002"],
    ]
    (first, *_) = await changes_of(db)
    (entity,) = first.entities
    assert (entity.key, entity.kind, entity.verb) == (ken.key, "Employee", "insert")
    assert abs(first.time - dt.datetime.now(dt.UTC)) < dt.timedelta(minutes=10)


async def test_what_is_not_written_is_not_noted(db: Database) -> None:
    """A save without changes, a guard, and writes that are rejected."""
    ken = Employee(id=1, mail="k")
    await db.insert(ken)
    await db.save(ken)
    async with db.transaction() as tx:
        await tx.get(Employee, department="Sales", id=1, guard=True)
    with pytest.raises(EntityExists):
        await insert(db, 1)
    with pytest.raises(EntityExists):
        await db.insert(Employee(id=2, mail="k"))
    with pytest.raises(PreconditionFailed):
        await db.merge(ken, only=["count"], if_match='W/"old"')
    await db.delete(Employee, department="Sales", id=9, if_match="*", missing_ok=True)

    assert await noted(db) == [["insert empid_000001"]]


async def test_a_transaction_is_one_change(db: Database) -> None:
    """It has every entity once, also those of other models with a feed; those without one are not in it."""
    ken, desk = Employee(id=1), Desk(name="a")
    async with db.transaction() as tx:
        tx.insert(ken)
        tx.insert(desk)
        tx.insert(Visitor(name="v"))
        tx.insert(Employee(id=2))
    async with db.transaction() as tx:
        ken.count = 1
        tx.save(ken)
        tx.delete(desk)
        ken.count = 2
        tx.save(ken)
    await db.insert(Visitor(name="w"))

    assert await noted(db) == [
        ["insert empid_000001", "insert desk_a", "insert empid_000002"],
        ["update empid_000001", "delete desk_a"],
    ]
    assert [each.key.model for each in (await changes_of(db))[1].entities] == [Employee, Desk]


class Person(Entity, table="FedPeople", partition_key="{team}", abstract=True):
    team: Mapped[str] = field(default="a")
    id: Mapped[int]

    changes = Feed(keep=KEEP)


class Boss(Person, row_key="boss_{id}"): ...


class Guest(Person, row_key="guest_{id}"): ...


async def test_classes_of_a_base_share_its_feed(db: Database) -> None:
    """It is declared once, and each change tells the class of its entities."""
    await db.create_tables(Boss)
    await db.insert(Boss(id=1))
    await db.insert(Guest(id=1))

    found = [change async for change in db.changes(Boss, team="a")]
    assert [each.key for change in found for each in change.entities] == [Boss(id=1).key, Guest(id=1).key]
    with pytest.raises(ModelError, match=r"changes\(Person\) is rejected: the model is abstract; name one of"):
        db.changes(Person, team="a")


async def test_each_partition_has_numbers_of_its_own(db: Database) -> None:
    """Writers of different partitions do not meet."""
    await insert(db, 1)
    await db.insert(Employee(department="Law", id=1))

    assert await noted(db) == await noted(db, "Law") == [["insert empid_000001"]]
    assert await noted(db, "None") == []


async def test_a_bulk_notes_each_transaction(db: Database) -> None:
    """Two rows of each transaction are those of the feed, so that it has room for 98 entities without indexes."""
    async with db.bulk() as bulk:
        for number in range(250):
            await bulk.insert(Desk(name=f"{number:03d}"))

    assert [len(change) for change in await noted(db)] == [98, 98, 54]
    assert (bulk.report.written, bulk.report.requests) == (250, 3)


async def test_a_move_to_another_partition_is_refused(db: Database) -> None:
    """Two partitions have two feeds, and a move writes each of them several times."""
    ken = Employee(id=1)
    await db.insert(ken)
    with pytest.raises(NotSupported, match=r"Employee cannot be moved .*: Employee\.changes would be wrong meanwhile"):
        await db.move(ken, department="Law")


async def test_an_archive_in_another_table_is_refused(db: Database) -> None:
    """It is a move; one out of the database notes the delete alone, as a copy changes nothing."""
    old, desk = BlobArchive("fed-desks", Desk), Desk(name="a")
    await db.insert(desk)
    with pytest.raises(NotSupported, match=r"Desk cannot be moved .*: Desk\.changes would be wrong meanwhile"):
        await db.archive(desk, to=OldDesk)
    await db.archive(desk, to=old)
    async with db.worker(old) as worker:
        await worker.drain()

    assert await noted(db) == [["insert desk_a"], ["delete desk_a"]]


async def test_a_bag_notes_nothing(db: Database) -> None:
    """A bag has no model, so what is written by it is not in the feed."""
    await db.insert(PropertyBag("FedStaff", "Sales", "empid_000007", {"EntityType": "Employee", "count": 1}))

    assert await noted(db) == []


async def test_entities_of_which_nothing_is_noted_yet(db: Database) -> None:
    """What was stored before the model had a feed is noted from its next write on."""
    for number in (1, 2):
        row_key = f"empid_{number:06d}"
        await db.insert(PropertyBag("FedStaff", "Sales", row_key, {"EntityType": "Employee", "count": 1}))
    await db.modify(Employee, lambda each: each.evolve(count=5), department="Sales", id=1)
    await db.delete(await db.get(Employee, department="Sales", id=2))

    assert await noted(db) == [["update empid_000001"], ["delete empid_000002"]]


async def test_a_transaction_that_is_too_large_says_why(db: Database) -> None:
    """Two of a hundred rows are those of the feed."""
    with pytest.raises(TransactionFailed, match=r"101 operations, 100 are allowed; 2 of them write what is derived"):
        async with db.transaction() as tx:
            for number in range(99):
                tx.insert(Desk(name=str(number)))
    assert await noted(db) == []


async def test_long_keys_are_noted_in_full(db: Database) -> None:
    """The keys of a whole transaction do not fit into one property."""
    names = [f"{number:02d}".ljust(500, "\N{SNOWMAN}") for number in range(98)]
    async with db.transaction() as tx:
        for name in names:
            tx.insert(Desk(name=name))

    assert await noted(db) == [[f"insert desk_{name}" for name in names]]


async def test_a_damaged_counter_refuses_writes(db: Database) -> None:
    """Nobody knows which number is next."""
    await insert(db, 1)
    await change_row(db, COUNTER, Last=-1)

    with pytest.raises(Exception, match=r"is not the counter of a change feed .* `tableorm audit --repair`"):
        await insert(db, 2)


@pytest.mark.parametrize("last", [None, 1])
async def test_a_counter_that_lags_behind_refuses_writes(db: Database, last: int | None) -> None:
    """The next number is taken, and will be: the error says so at once, and an audit repairs it."""
    await insert(db, *range(3))
    await (remove(db, COUNTER) if last is None else change_row(db, COUNTER, Last=last))

    counted = rf"counts {last or 0} changes of the change feed, which has the row '~f_00000000000000{(last or 0) + 1}'"
    with pytest.raises(DecodeError, match=counted):
        await insert(db, 9)
    with pytest.raises(TransactionFailed, match=rf"{counted}.*nothing was applied"):
        async with db.transaction() as tx:
            tx.insert(Employee(id=9))
    await db.audit(Employee, repair=True)
    await insert(db, 9)
    assert [change.number for change in await changes_of(db)] == [1, 2, 3, 4]


async def test_a_bag_cannot_write_the_counter_beside_entities(db: Database) -> None:
    """One transaction writes a row once."""
    await insert(db, 1)
    bag = await db.get(PropertyBag.key("FedStaff", "Sales", "~f_counter"))
    bag["Last"] = 7
    with pytest.raises(TransactionFailed, match=r"operation 0: save of PropertyBag .* counts the changes of the part"):
        async with db.transaction() as tx:
            tx.insert(Employee(id=2))
            tx.save(bag)
    assert await noted(db) == [["insert empid_000001"]]


async def test_a_limit_of_a_single_write_names_the_write(db: Database) -> None:
    """A value that is too large is rejected as without a feed."""
    with pytest.raises(LimitExceeded, match=r"field Desk\.note"):
        await db.insert(Desk(name="a", note="x" * 40_000))
