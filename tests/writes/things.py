"""
Models of plain rows: one of them has an older version.
"""

from tableorm import Entity, Mapped, PropertyBag, field, upgrade


class Grouped(Entity, table="Things", partition_key="{group}", row_key="{name}", abstract=True):
    group: Mapped[str] = field(default="g")
    name: Mapped[str]
    text: Mapped[str | None] = field(default=None)
    number: Mapped[int] = field(default=0)


class Thing(Entity, table="Things", partition_key="g", row_key="{name}"):
    name: Mapped[str]
    text: Mapped[str | None] = field(default=None)
    number: Mapped[int] = field(default=0)


class Second(Entity, table="Things", partition_key="s", row_key="{name}", version=2):
    name: Mapped[str]
    text: Mapped[str | None] = field(default=None)
    number: Mapped[int] = field(default=0)


@upgrade(Second, from_version=1)
def old_to_text(bag: PropertyBag) -> PropertyBag:
    bag["text"] = bag.pop("old", None)
    return bag
