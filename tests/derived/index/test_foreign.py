"""
Rows that other programs wrote: copies left behind, indexes that this program does not know, keys that are taken, and
properties of which the model knows nothing.
"""

import pytest

from tableorm import (
    Database,
    DecodeError,
    Entity,
    EntityExists,
    Index,
    LimitExceeded,
    Mapped,
    ModelError,
    NotSupported,
    PreconditionFailed,
    PropertyBag,
    TransactionFailed,
    UniqueViolation,
    WrongKind,
    field,
)
from tests.derived.index.oracle import audit, read_table
from tests.derived.index.staff import (
    KINDS,
    AgedEmployee,
    AnyEmployee,
    Employee,
    employee,
    find_wrong,
    hire,
    stored,
)
from tests.rows import merge_row, replace_row

EMPLOYEE = Employee.key(department="Sales", id=1)


class Plain(Entity, kind="Employee", version=2, table="Staff", partition_key="{department}", row_key="empid_{id:06d}"):
    """An employee as a program knows it that has no indexes."""

    department: Mapped[str]
    id: Mapped[int]
    last_name: Mapped[str] = field(default="Li")


class More(AgedEmployee, kind="Employee", version=2):
    """An employee as a newer program knows it."""

    by_note = Index(row_key="note_{note}_{id}", include="keys")


async def bag_of(db: Database, row_key: str) -> PropertyBag:
    return await db.get(PropertyBag.key("Staff", "Sales", row_key))


async def remove(db: Database, row_key: str) -> None:
    """Delete a row, as a program does that has no models."""
    await db.delete(PropertyBag.key("Staff", "Sales", row_key), if_match="*")


async def test_a_key_that_is_taken_is_not_overwritten(db: Database) -> None:
    """Whatever verb wants it; the error names the index and the row."""
    await db.create_tables(Employee)
    await db.insert(PropertyBag("Staff", "Sales", "email_e1@x", {"mine": 1}))
    await db.insert(employee(2))
    before = await stored(db)
    wanted = r"index Employee\.by_email needs the row 'email_e1@x'.*row of another kind"

    with pytest.raises(EntityExists, match=wanted) as caught:
        await db.insert(employee(1))
    assert not isinstance(caught.value, UniqueViolation)
    assert caught.value.index == "Employee.by_email"
    with pytest.raises(EntityExists, match=wanted):
        await db.upsert(employee(1))
    two = await db.get(Employee, department="Sales", id=2)
    two.email = "e1@x"
    with pytest.raises(EntityExists, match=wanted):
        await db.save(two)
    with pytest.raises(EntityExists, match=wanted):
        await db.replace(employee(2, email="e1@x"), if_match="*")
    with pytest.raises(TransactionFailed, match=wanted):
        async with db.transaction() as tx:
            tx.upsert(employee(1))
    assert await stored(db) == before


async def test_an_entity_is_not_written_over_a_copy(db: Database) -> None:
    """A model whose keys are those of copies of another one is rejected the row."""

    class Mail(Entity, table="Staff", partition_key="{department}", row_key="email_{address}"):
        department: Mapped[str]
        address: Mapped[str]
        text: Mapped[str] = field(default="")
        by_text = Index(row_key="text_{text}_{address}", include="keys")

    await hire(db)
    before = await stored(db)
    mail = Mail(department="Sales", address="e1@x")
    with pytest.raises(EntityExists, match="is a copy of the entity 'empid_000001'"):
        await db.upsert(mail)
    with pytest.raises(WrongKind, match="is a copy of the entity 'empid_000001'"):
        await db.replace(mail, if_match="*")
    with pytest.raises(WrongKind, match="write or delete that entity"):
        await db.delete(mail, if_match="*")
    assert await stored(db) == before


async def test_an_entry_that_was_left_behind_is_refused_until_it_is_repaired(db: Database) -> None:
    """A program that knows no indexes has deleted the entity; it is inserted again after a repair."""
    await hire(db)
    await remove(db, "empid_000001")
    assert ("Sales", "email_e1@x") in await read_table(db, "Staff")
    assert await db.get_or_none(Employee.by_name, department="Sales", last_name="Li", id=1) is None
    assert await db.select(Employee.by_name).where(Employee.department == "Sales").all() == []

    before = await stored(db)
    with pytest.raises(EntityExists, match=r"'email_e1@x' exists already, .* repair it with `tableorm audit --repair`"):
        await db.insert(employee(1, age=50))
    assert await stored(db) == before
    assert (await db.audit(Employee, repair=True)).clean
    await db.insert(employee(1, age=50))
    assert await find_wrong(db) == []


async def test_an_entity_that_lost_its_manifest_is_refused_until_it_is_repaired(db: Database) -> None:
    """A program that knows no indexes has replaced its row; what would write an entry anew says so."""
    await hire(db)
    row = await db.store.get("Staff", "Sales", "empid_000001")
    await replace_row(db, "Staff", {**row, "_ix": None})

    before = await stored(db)
    with pytest.raises(EntityExists, match=r"its manifest does not name it: .* `tableorm audit --repair`"):
        await db.modify(EMPLOYEE, lambda e: e.evolve(age=50))
    assert await stored(db) == before
    assert (await db.audit(Employee, repair=True)).clean
    await db.modify(EMPLOYEE, lambda e: e.evolve(age=50))
    assert await find_wrong(db) == []


async def test_a_unique_value_that_was_left_behind_stays_taken(db: Database) -> None:
    """Nobody can tell it from one that is in use without reading more; the error says whose, and the index."""
    await hire(db)
    await remove(db, "empid_000001")
    taken = "the entity 'empid_000001' of this partition has email='e1@x' already"
    with pytest.raises(UniqueViolation, match=taken) as caught:
        await db.insert(employee(2, email="e1@x"))
    assert (caught.value.index, caught.value.values) == ("Employee.by_email", {"email": "e1@x"})
    assert await db.get_or_none(Employee, department="Sales", id=2) is None


@pytest.mark.parametrize("row_key", ["email_e1@x", "name_Li_000001", "age_030_000001"])
async def test_a_copy_that_is_missing_is_no_obstacle(db: Database, row_key: str) -> None:
    """It was to be replaced or deleted, and is gone: the write does without."""
    await hire(db)
    await remove(db, row_key)
    one = await db.get(EMPLOYEE)
    one.email, one.last_name, one.age = "new@x", "Zed", 31
    await db.save(one)
    assert await find_wrong(db) == []
    await remove(db, "email_new@x")
    await db.delete(one)
    assert await read_table(db, "Staff") == {}


async def test_copies_of_unknown_indexes_are_dropped(db: Database) -> None:
    """An older program cannot keep them right: no copy is better than a stale one. Its next write brings them back."""
    await db.create_tables(More)
    await db.insert(More(department="Sales", id=1, email="e1@x", note="n"))
    one = await db.get(EMPLOYEE)
    one.age = 31
    await db.save(one)
    table = await read_table(db, "Staff")
    assert ("Sales", "note_n_1") not in table
    assert audit(table, KINDS) == []

    more = await db.get(More, department="Sales", id=1)
    more.age = 32
    await db.save(more)
    assert (await db.get(More.by_note, department="Sales", note="n", id=1)).age == 32


@pytest.mark.parametrize("verb", ["save", "merge", "replace", "delete"])
async def test_a_program_without_indexes_leaves_no_stale_copies(db: Database, verb: str) -> None:
    """What it has read says that there are copies: they go with its write."""
    await hire(db)
    plain = await db.get(Plain, department="Sales", id=1)
    plain.last_name = "Zed"
    await getattr(db, verb)(plain)
    rest = set(await read_table(db, "Staff"))
    assert rest == (set() if verb == "delete" else {("Sales", "empid_000001")})
    if verb != "delete":
        one = await db.get(EMPLOYEE)
        one.age = 50
        await db.save(one)
        assert await find_wrong(db) == []


async def test_a_bag_does_not_write_what_has_copies(db: Database) -> None:
    """It cannot keep them right; to delete the entity it needs to know no more than what the row says."""
    await hire(db)
    bag = await bag_of(db, "empid_000001")
    before = await stored(db)
    bag["age"] = 50
    with pytest.raises(NotSupported, match=r"from this one by by_age, by_email, by_name.*write it through its model"):
        await db.save(bag)
    with pytest.raises(NotSupported, match="which a bag cannot keep right"):
        await db.replace(bag)
    assert await stored(db) == before

    await db.delete(bag)
    assert await read_table(db, "Staff") == {}


@pytest.mark.parametrize("verb", ["save", "replace", "transaction"])
async def test_a_field_of_the_key_that_others_store_too_is_kept(db: Database, verb: str) -> None:
    """Copies have it as the model says, which can be of another type; an entity that is read from one keeps it."""
    await hire(db)
    legacy = {"id": "one", "department": "9", "department@odata.type": "Edm.Int64"}
    keys = {"PartitionKey": "Sales", "RowKey": "empid_000001"}
    await merge_row(db, "Staff", {**keys, **legacy})
    one = await db.get(EMPLOYEE)
    one.note = "n"
    await db.save(one)
    assert (await db.audit(Employee)).clean

    copy = await db.get(Employee.by_email, department="Sales", email="e1@x")
    copy.extra["Fax"] = "1"
    for age in (40, 41):
        copy.age = age
        match verb:
            case "transaction":
                async with db.transaction() as tx:
                    tx.save(copy)
            case "save":
                await db.save(copy)
            case _:
                await db.replace(copy)
    assert copy == await db.get(Employee.by_email, department="Sales", email="e1@x")
    bag = await bag_of(db, "empid_000001")
    assert (bag["id"], bag["department"], bag["age"], bag["Fax"]) == ("one", 9, 41, "1")
    assert (await db.audit(Employee)).clean


async def test_what_has_changed_since_the_copy_was_read_is_not_overwritten(db: Database) -> None:
    """Whoever changed it, and however little: the copy has no ETag, so its fields are compared."""
    await hire(db)
    full = await db.get(Employee.by_email, department="Sales", email="e1@x")
    part = await db.get(Employee.by_age, department="Sales", age=30, id=1)
    await db.modify(EMPLOYEE, lambda e: setattr(e, "note", "n"))
    full.age = part.age = 31
    with pytest.raises(PreconditionFailed, match="changed since a copy of it was read"):
        await db.save(full)
    with pytest.raises(PreconditionFailed):
        await db.delete(full)
    await db.save(part)  # of what it holds nothing has changed
    again = await db.get(Employee.by_age, department="Sales", age=31, id=1)
    await db.modify(EMPLOYEE, lambda e: setattr(e, "last_name", "Zed"))
    with pytest.raises(PreconditionFailed):
        await db.delete(again)
    assert await find_wrong(db) == []


async def test_conditions_on_what_copies_lack(db: Database) -> None:
    """Of keys alone the entity is read and asked; of some fields the query is rejected, and says what to do."""
    await db.create_tables(Employee)
    for number in range(4):
        await db.insert(employee(number, note="n" if number % 2 else None))
    by_name = db.select(Employee.by_name).where(Employee.department == "Sales", Employee.note == "n")
    assert [each.id for each in await by_name.all()] == [1, 3]
    assert await by_name.count() == 2
    assert [each.etag is not None for each in await by_name.limit(1).all()] == [True]
    refused = r"entries of Employee\.by_age do not hold it; add the field to its include="
    for note in (Employee.note, AnyEmployee.note):
        with pytest.raises(ModelError, match=refused):
            await db.select(Employee.by_age).where(Employee.department == "Sales", note == "n").all()


async def test_limits_count_copies(db: Database) -> None:
    """Of a single write the error is that of the entity; of a transaction the operation is named."""
    await db.create_tables(Employee)

    class Big(Entity, table="Staff", partition_key="{department}", row_key="big_{id}"):
        department: Mapped[str]
        id: Mapped[int]
        one = Index(row_key="one_{id}")
        two = Index(row_key="two_{id}")
        three = Index(row_key="three_{id}")
        four = Index(row_key="four_{id}")

    big = Big(department="Sales", id=1)
    for number in range(14):
        big.extra[f"x{number}"] = "é" * 32_000
    with pytest.raises(LimitExceeded, match=r"insert of Big .*with all of its rows: .*4194304 are allowed"):
        await db.insert(big)
    with pytest.raises(TransactionFailed, match=r"operation 0: .*4194304 are allowed; nothing was sent"):
        async with db.transaction() as tx:
            tx.insert(big)
    with pytest.raises(TransactionFailed, match="operation 23: the transaction has 120 operations, 100 are allowed"):
        async with db.transaction() as tx:
            for number in range(30):
                tx.insert(employee(number))
    assert await read_table(db, "Staff") == {}


async def test_a_copy_that_is_too_large_names_its_index(db: Database) -> None:
    """It has one property more than the entity, for the field that is in the entity's key."""
    await db.create_tables(Employee)
    one = employee(1, age=30)
    for number in range(252 - 7):
        one.extra[f"P{number}"] = 1
    with pytest.raises(LimitExceeded, match=r"253 properties.*entry in index Employee\.by_email; give that include="):
        await db.insert(one)
    one.email = None
    await db.insert(one)


class Card(Entity, table="Cards", partition_key="{shop}", row_key="card_{id:03d}"):
    shop: Mapped[str]
    id: Mapped[int]
    code: Mapped[str | None] = field(default=None)
    note: Mapped[str] = field(default="")

    by_code = Index(row_key="code_{code}", unique=True)
    by_note = Index(row_key="note_{note}", unique=True, include="keys")


@pytest.mark.parametrize("owner", [{}, {"_of": 7}], ids=str)
async def test_an_entry_that_names_no_entity_is_said_to_be_so(db: Database, owner: dict[str, int]) -> None:
    """Whatever reads by it: the error names the row, its property and the remedy, which helps."""
    await db.create_tables(Card)
    await db.insert(Card(shop="A", id=1, code="c", note="n"))
    for row_key in ("code_c", "note_n"):
        entry = await db.get(PropertyBag.key("Cards", "A", row_key))
        row = {name: value for name, value in entry.row.items() if name not in ("_of", "odata.etag", "Timestamp")}
        await replace_row(db, "Cards", {**row, **owner})
    said = rf"\('A', '(code_c|note_n)'\).*'_of' is {owner.get('_of')}.*delete the row.*audit --repair"

    for read in (
        db.get(Card.by_code, shop="A", code="c"),
        db.get(Card.by_note, shop="A", note="n"),
        db.exists(Card.by_note, shop="A", note="n"),
        db.scope(Card, shop="A").get(Card.by_note, note="n"),
        db.select(Card.by_code).where(Card.shop == "A").all(),
        db.select(Card.by_code).where(Card.shop == "A").only(Card.id).all(),
        db.select(Card.by_note).where(Card.shop == "A").all(),
    ):
        with pytest.raises(DecodeError, match=said):
            await read

    for row_key in ("code_c", "note_n"):
        await db.delete(PropertyBag.key("Cards", "A", row_key), if_match="*")
    assert (await db.audit(Card, repair=True)).clean
    assert (await db.get(Card.by_code, shop="A", code="c")).id == 1
    assert (await db.get(Card.by_note, shop="A", note="n")).id == 1
