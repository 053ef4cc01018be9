"""
Models of plain rows: one of them has an older version.
"""

from tableorm import Entity, Mapped, PropertyBag, field, upgrade


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
