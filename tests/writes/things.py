"""
Models of plain rows, of which one has an older version, and what tests do with them.
"""

from typing import Any

from tableorm import Database, Entity, Mapped, PropertyBag, field, upgrade
from tests.rows import put_row


class Named(Entity, abstract=True):
    name: Mapped[str]
    text: Mapped[str | None] = field(default=None)
    number: Mapped[int] = field(default=0)


class Grouped(Named, table="Things", partition_key="{group}", row_key="{name}", abstract=True):
    group: Mapped[str] = field(default="g")


class Thing(Named, table="Things", partition_key="g", row_key="{name}"):
    pass


class Second(Named, table="Things", partition_key="s", row_key="{name}", version=2):
    pass


@upgrade(Second, from_version=1)
def old_to_text(bag: PropertyBag) -> PropertyBag:
    bag["text"] = bag.pop("old", None)
    return bag


def more(thing: Named) -> None:
    """Change a thing in place."""
    thing.number += 1


async def put(db: Database, name: str, **properties: Any) -> None:
    """Write the row of a thing in the group `g`, with any other properties, past the mapper."""
    row = {"PartitionKey": "g", "RowKey": name, "EntityType": "Thing", **properties}
    await put_row(db, "Things", row)
