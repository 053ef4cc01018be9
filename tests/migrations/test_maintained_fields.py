"""
A field that others keep is added to a model with a covering index: both programs write the same rows in turn.
"""

from tableorm import Count, Database, Entity, Index, Mapped, field
from tableorm_migrations.evolution import compare_snapshots
from tableorm_migrations.snapshot import describe_models
from tests.faults import FaultyBackend


class Base(Entity, table="EvolvedShops", abstract=True, partition_key="{shop}", row_key="customer_{id}"):
    shop: Mapped[str]
    id: Mapped[int]
    name: Mapped[str] = field(default="")


class Old(Base, kind="Customer"):
    by_name = Index(row_key="name_{name}_{id}")


class New(Base, kind="Customer"):
    orders: Mapped[int] = field(default=0, maintained=True)
    by_name = Index(row_key="name_{name}_{id}")


class Order(Entity, table="EvolvedShops", partition_key="{shop}", row_key="order_{id}"):
    shop: Mapped[str]
    id: Mapped[int]
    customer: Mapped[int]
    counted = Count(lambda: New.orders, shop="{shop}", id="{customer}")


async def test_a_maintained_field_is_added_while_older_programs_find_entities_by_a_covering_index() -> None:
    """It is judged safe; the older program writes what it found by the index, and the field stays."""
    differences = compare_snapshots(describe_models([Old]), describe_models([New]))
    backend = FaultyBackend()
    async with Database(backend) as old, Database(backend) as new:
        await old.create_tables(Old)
        await old.insert(Old(shop="a", id=1, name="Jun"))
        for turn in range(1, 4):
            await new.insert(Order(shop="a", id=turn, customer=1))
            found = await old.select(Old.by_name).where(Old.shop == "a", Old.name.startswith("Jun")).one()
            found.name = f"Jun {turn}"
            await old.save(found)
            assert (await new.get(New, shop="a", id=1)).orders == turn
        assert (await new.audit(New, Order)).clean

    assert [each.rule.code for each in differences if each.rule.code != "class-renamed"] == ["field-added"]
