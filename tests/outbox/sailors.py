"""
Models with a count and a sum in an entity of another partition and table, and with copies of one; and what must be true
of them.
"""

from collections import Counter

from tableorm import Count, Embedded, Entity, Index, Mapped, Sum, field, many
from tableorm.stores import TableStore
from tableorm.testing.contract.base import everything

COUNT_ROWS = ("#_subtotal", "#_share")
"""The kinds of the rows of counts, which stay."""


class Ship(Entity, table="Fleet", partition_key="ships", row_key="ship_{name}"):
    name: Mapped[str]
    flag: Mapped[str] = field(default="white")
    crew: Mapped[int] = field(default=0, maintained=True)
    wages: Mapped[int] = field(default=0, maintained=True)


class Sailor(Entity, table="Sailors", partition_key="{port}", row_key="sailor_{id:03d}"):
    port: Mapped[str]
    id: Mapped[int]
    ship: Mapped[str | None] = field(default=None)
    wage: Mapped[int] = field(default=0)

    counted = Count(lambda: Ship.crew, name="{ship}", create=True, consistency="eventual")
    paid = Sum("wage", lambda: Ship.wages, name="{ship}", create=True, consistency="eventual")


class Passenger(Entity, table="Sailors", partition_key="{port}", row_key="passenger_{id:03d}"):
    port: Mapped[str]
    id: Mapped[int]
    ship: Mapped[str | None] = field(default=None)
    flag: Mapped[str | None] = field(default=None, maintained=True)

    by_ship = Index(
        table="Crews", partition_key="{ship}", row_key="in_{port}_{id:03d}", include="keys", consistency="eventual"
    )
    sails = Embedded(lambda: Ship, {"flag": "flag"}, name="{ship}", consistency="eventual", via=by_ship)


class Harbour(Entity, table="Fleet", partition_key="harbours", row_key="harbour_{name}", tracked=True):
    """Deleted after those who are there."""

    name: Mapped[str]

    sailors = many(lambda: Sailor, port="{name}", on_delete="cascade")
    passengers = many(lambda: Passenger, port="{name}", on_delete="cascade")


async def wrong_copies(store: TableStore) -> list[str]:
    """Return which passengers have another flag than their ship."""
    flags = {row["RowKey"].removeprefix("ship_"): row.get("flag") for row in await everything(store, "Fleet")}
    passengers = [row for row in await everything(store, "Sailors") if row.get("EntityType") == "Passenger"]
    return [
        f"the passenger {row['RowKey']} of {row.get('ship')} has the flag {row.get('flag')}"
        for row in passengers
        if row.get("flag") != flags.get(row.get("ship", ""))
    ]


async def wrong_totals(store: TableStore) -> list[str]:
    """Return which ships have other totals than their sailors yield."""
    crews, wages = Counter[str](), Counter[str]()
    for row in await everything(store, "Sailors"):
        if row.get("EntityType") == "Sailor" and "ship" in row:
            crews[row["ship"]] += 1
            wages[row["ship"]] += int(row["wage"])
    stored = {row["RowKey"].removeprefix("ship_"): row for row in await everything(store, "Fleet")}
    problems = list[str]()
    for name in {*crews, *(each for each in stored if not each.startswith(("~", "harbour_")))}:
        row = stored.get(name, {})
        found, wanted = (int(row.get("crew", 0)), int(row.get("wages", 0))), (crews[name], wages[name])
        if found != wanted:
            problems.append(f"the ship {name} has the totals {found} instead of {wanted}")
    return problems
