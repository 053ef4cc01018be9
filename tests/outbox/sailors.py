"""
Models with a count and a sum in an entity of another partition and table, and what must be true of them.
"""

from collections import Counter

from tableorm import Count, Entity, Mapped, Sum, field
from tableorm.stores import TableStore
from tableorm.testing.contract.base import everything

__all__ = ["COUNT_ROWS", "Sailor", "Ship", "wrong_totals"]

COUNT_ROWS = ("#_subtotal", "#_share")
"""The kinds of the rows of counts, which stay."""


class Ship(Entity, table="Fleet", partition_key="ships", row_key="ship_{name}"):
    name: Mapped[str]
    crew: Mapped[int] = field(default=0, maintained=True)
    wages: Mapped[int] = field(default=0, maintained=True)


class Sailor(Entity, table="Sailors", partition_key="{port}", row_key="sailor_{id:03d}"):
    port: Mapped[str]
    id: Mapped[int]
    ship: Mapped[str | None] = field(default=None)
    wage: Mapped[int] = field(default=0)

    counted = Count(lambda: Ship.crew, name="{ship}", create=True, consistency="eventual")
    paid = Sum("wage", lambda: Ship.wages, name="{ship}", create=True, consistency="eventual")


async def wrong_totals(store: TableStore) -> list[str]:
    """Return which ships have other totals than their sailors yield."""
    crews, wages = Counter[str](), Counter[str]()
    for row in await everything(store, "Sailors"):
        if row.get("EntityType") == "Sailor" and "ship" in row:
            crews[row["ship"]] += 1
            wages[row["ship"]] += int(row["wage"])
    stored = {row["RowKey"].removeprefix("ship_"): row for row in await everything(store, "Fleet")}
    problems = list[str]()
    for name in {*crews, *(each for each in stored if not each.startswith("~"))}:
        row = stored.get(name, {})
        found, wanted = (int(row.get("crew", 0)), int(row.get("wages", 0))), (crews[name], wages[name])
        if found != wanted:
            problems.append(f"the ship {name} has the totals {found} instead of {wanted}")
    return problems
