"""
What `~` is of an order, and what a condition compares where a key holds a part of a field.
"""

from decimal import Decimal

from tableorm import Entity, Index, Mapped, PropertyBag, RowKey, connect
from tests.databases import memory_database
from tests.queries.foreign_worlds import Sample


class Client(Entity, table="Clients", partition_key="{group}", row_key="client_{name:lower}"):
    group: Mapped[str]
    name: Mapped[str]
    email: Mapped[str]

    by_email = Index(row_key="email_{email:lower}", unique=True)


async def test_an_order_of_declared_integers_has_an_opposite() -> None:
    """Where rows are of one kind that declares an integer, `~` stays one comparison."""
    async with connect("local::memory:") as db:
        query = db.select(Sample).where(Sample.group == "g", ~(Sample.number <= 5))
        assert "number gt 5" in str(query.explain())
        both = db.select(Sample, PropertyBag).where(Sample.group == "g", ~(Sample.number <= 5))
        assert "not (number le 5)" in str(both.explain())


async def test_decimals_have_their_order_here() -> None:
    """They are stored as text, which no service compares so; what is no number has no order."""
    async with memory_database(Sample) as db:
        for number, price in enumerate(["5", "10", "NaN", "cheap"]):
            await db.insert(PropertyBag("Samples", "g", str(number), {"EntityType": "Sample", "price": price}))
        query = db.select(Sample).where(Sample.group == "g")

        assert [each.name for each in await query.where(Sample.price > Decimal(9)).all()] == ["1"]
        assert [each.name for each in await query.where(Sample.price <= Decimal(9)).all()] == ["0"]


async def test_a_key_that_holds_a_part_is_got_by_it_and_a_condition_compares_the_whole() -> None:
    """Whichever way a query finds the row: no condition depends on the keys. RowKey is compared as stored."""
    async with memory_database(Client) as db:
        ann = Client(group="a", name="Ann", email="Ann@x.org")
        await db.insert(ann)
        clients, entries = (db.select(kind).where(Client.group == "a") for kind in (Client, Client.by_email))

        assert await db.get(Client, group="a", name="ANN") == ann
        assert await db.get(Client.by_email, group="a", email="ANN@X.ORG") == ann
        for query in (clients, entries):
            assert await query.where(Client.email == "Ann@x.org").all() == [ann]
            assert await query.where(Client.email == "ann@x.org").all() == []
            assert await query.where(Client.name == "ann").all() == []
        assert await entries.where(RowKey == "email_ann@x.org").all() == [ann]
