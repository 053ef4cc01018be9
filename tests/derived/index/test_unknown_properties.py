"""
Properties of a row that a program does not know, and that its index entries do not have: an older program still runs
while a newer one lets other entities keep a field.
"""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tableorm import Database, Entity, Index, Mapped, NotLoaded, PreconditionFailed, Sum, connect, field
from tests.writes.verbs import write


class AnyCustomer(Entity, table="RolledOut", partition_key="{shop}", row_key="customer_{id}", abstract=True):
    shop: Mapped[str]
    id: Mapped[int]
    name: Mapped[str]
    email: Mapped[str]
    note: Mapped[str | None] = field(default=None)
    by_email = Index(row_key="email_{email}", unique=True)


class OldCustomer(AnyCustomer, kind="Customer"): ...


KEY = OldCustomer.key(shop="a", id=1)


class Customer(AnyCustomer):
    spent: Mapped[int] = field(default=0, maintained=True)


class Order(Entity, table="RolledOut", partition_key="{shop}", row_key="order_{id}"):
    shop: Mapped[str]
    id: Mapped[int]
    customer: Mapped[int]
    cents: Mapped[int]
    total = Sum("cents", lambda: Customer.spent, shop="{shop}", id="{customer}")


class Programs(NamedTuple):
    """The databases of two programs on one file, and how many orders the newer one has inserted."""

    old: Database
    new: Database

    async def order(self, number: int) -> None:
        await self.new.insert(Order(shop="a", id=number, customer=1, cents=100))

    async def find(self) -> OldCustomer:
        return await self.old.get(OldCustomer.by_email, shop="a", email="j@x")

    async def spent(self) -> int:
        return (await self.new.get(Customer, shop="a", id=1)).spent


@pytest.fixture
async def programs(tmp_path: Path) -> AsyncIterator[Programs]:
    url = f"local:{tmp_path}/shop.tables"
    async with connect(url) as old, connect(url) as new:
        await old.create_tables(OldCustomer)
        await old.insert(OldCustomer(shop="a", id=1, name="Jun", email="j@x", note="new"))
        yield Programs(old, new)


async def save_by_key(db: Database) -> None:
    """What an older program writes puts the property into the entry."""
    customer = await db.get(KEY)
    customer.name = "June"
    await db.save(customer)


WRITES = [
    *(
        ("save", "new"),
        ("replace", "new"),
        ("merge", "new"),
        ("save in a bulk", "new"),
        ("save in a transaction", "new"),
    ),
    ("save", None),  # which replaces the whole row
]
"""How the name is written, and the note with it."""


@pytest.mark.parametrize("asked", [False, True], ids=["", "extra"])
@pytest.mark.parametrize(("verb", "note"), WRITES)
async def test_an_older_program_writes_what_it_found_by_an_index(
    programs: Programs, verb: str, note: str | None, *, asked: bool
) -> None:
    """The entry lacks a property that the row has; the write keeps it, and so do the next ones of the same entity."""
    await programs.order(1)
    customer = await programs.find()
    if asked:
        assert dict(customer.extra) == {}

    customer.name, customer.note = "Juno", note
    await write(programs.old, verb, customer)

    assert dict(customer.extra) == {"spent": 100}
    customer.name, customer.note = "Jun", None
    await programs.old.save(customer)
    customer = await programs.old.get(KEY)
    assert (customer.name, customer.note) == ("Jun", None)
    assert await programs.spent() == 100


@pytest.mark.parametrize(("verb", "note"), WRITES)
async def test_an_outdated_entry_does_not_stop_an_older_program(
    programs: Programs, verb: str, note: str | None
) -> None:
    """The property stays in the entry as it was when it was put there; the write keeps what the row has."""
    await programs.order(1)
    await save_by_key(programs.old)
    await programs.order(2)
    customer = await programs.find()
    assert dict(customer.extra) == {"spent": 100}

    customer.name, customer.note = "Juno", note
    await write(programs.old, verb, customer)

    assert dict(customer.extra) == {"spent": 200}
    assert await programs.spent() == 200


async def test_an_older_program_deletes_what_it_found_by_an_index(programs: Programs) -> None:
    """What it does not know keeps it from nothing."""
    await programs.order(1)

    await programs.old.delete(await programs.find())

    assert await programs.old.get_or_none(KEY) is None


async def test_a_changed_unknown_property_is_written(programs: Programs) -> None:
    """What the entity's own program has put into `extra` is written besides what others have put into the row."""
    await programs.order(1)
    customer = await programs.find()
    customer.extra["colour"] = "red"

    await programs.old.save(customer)

    assert dict(customer.extra) == {"spent": 100, "colour": "red"}
    found = await programs.old.get(KEY)
    assert dict(found.extra) == {"spent": 100, "colour": "red"}


async def test_an_unknown_property_of_others_is_not_written_over(programs: Programs) -> None:
    """Who changes an unknown property that has another value in the row than in the entry is told to read again."""
    await programs.order(1)
    customer = await programs.find()
    customer.extra["spent"] = 5

    with pytest.raises(PreconditionFailed, match="the row has changed since a copy of it was read"):
        await programs.old.save(customer)
    assert await programs.spent() == 100


@pytest.mark.parametrize("verb", ["merge", "upsert"])
async def test_an_unknown_property_that_others_have_removed_too(programs: Programs, verb: str) -> None:
    """A merge cannot remove a property; where the row that was read for it has none any more, nothing is to remove."""
    customer = await programs.old.get(KEY)
    customer.extra["odd"] = 1
    await programs.old.save(customer)
    customers = [await programs.old.get(KEY) for _ in range(2)]
    for customer in customers:
        del customer.extra["odd"]
    await programs.old.save(customers[0])
    customers[1].email = "k@x"
    await (programs.old.merge(customers[1], if_match="*") if verb == "merge" else programs.old.upsert(customers[1]))

    assert (await programs.old.get(OldCustomer.by_email, shop="a", email="k@x")).id == 1
    assert not (await programs.new.audit(Customer)).findings


async def test_an_unknown_property_in_an_entry_is_no_damage_to_who_knows_it(programs: Programs) -> None:
    """Entries hold no field that others keep, so what an older program has put there is neither read nor reported."""
    await programs.order(1)
    await save_by_key(programs.old)
    await programs.order(2)

    report = await programs.new.audit(Customer, Order)

    assert report.clean, report.findings
    customer = await programs.new.get(Customer.by_email, shop="a", email="j@x")
    with pytest.raises(NotLoaded):
        _ = customer.spent
    customer.name = "Jun"
    await programs.new.save(customer)
    assert (customer.spent, await programs.spent()) == (200, 200)
