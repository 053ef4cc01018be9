"""
Classes and their keywords: bases, mixins, what is inherited, and what a class statement is rejected with.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import attrs
import pytest

from tableorm import Edm, Entity, Int32, Mapped, ModelError, PropertyBag, field
from tableorm.models.schema import concrete
from tests.models.test_declaration import refused

T = TypeVar("T")


class Employee(Entity, table="Directory", partition_key="{department}", row_key="empid_{id:06d}", version=2):
    department: Mapped[str]
    id: Mapped[int]
    first_name: Mapped[str]
    age: Mapped[int | None] = field(default=None)


def test_plain_mixins() -> None:
    """Fields on a class that is no entity are rejected by name; a plain class without fields may be mixed in."""

    class Marked:
        note: Mapped[str]

    class Declared:
        note = field(default="")

    @attrs.define
    class Attrs:
        note: str = ""

    @dataclass
    class Data:
        note: str = ""

    class Shouting:
        volume = 11

        def shout(self) -> str:
            return "hey"

    def declare(base: type) -> Callable[[], object]:
        return lambda: type(
            "Odd", (base, Entity), {"__module__": __name__}, table="Odd", partition_key="p", row_key="r"
        )

    for base in (Marked, Declared, Attrs, Data):
        with refused("Odd", "'note'", base.__name__, f"class {base.__name__}(Entity, abstract=True)"):
            declare(base)()

    class Loud(Shouting, Entity, table="Loud", partition_key="p", row_key="r"): ...

    assert (Loud().shout(), Loud().volume) == ("hey", 11)


def test_generic_models() -> None:
    """A generic model is rejected: a row has known types."""
    with refused("Odd", "generic"):

        class Odd(Entity, Generic[T], table="Odd", partition_key="p", row_key="r"):  # pyright: ignore[reportUnusedClass]
            a: Mapped[T]


def test_abstract_bases() -> None:
    """An abstract base gives fields, keys, table and naming, and makes no entities."""

    class Stamped(Entity, abstract=True):
        created: Mapped[int] = field(default=0)

    class Base(Stamped, table="Things", partition_key="{owner}", row_key="{kind}_{n:03d}", abstract=True):
        owner: Mapped[str]
        n: Mapped[int]

    class Box(Base, kind="BOX"):
        size: Mapped[int] = field(default=1)

    assert Box(owner="jun", n=5).key.row_key == "BOX_005"
    assert list(Box.__schema__.fields) == ["created", "owner", "n", "size"]
    assert Box.__schema__.table == "Things"
    make: Any = Base
    with pytest.raises(ModelError, match=r"Base is abstract.*concrete"):
        make(owner="jun", n=5)


def test_multiple_inheritance() -> None:
    """Fields come from every base; where bases meet, the nearest declaration wins, as Python resolves it."""

    class Root(Entity, abstract=True, naming="pascal"):
        the_note: Mapped[str] = field(default="root")

    class Left(Root, abstract=True):
        left_side: Mapped[int] = field(default=1)

    class Right(Root, abstract=True):
        the_note: Mapped[str] = field(default="right", name="RightNote")
        right_side: Mapped[int] = field(default=2)

    class Both(Left, Right, table="Both", partition_key="p", row_key="{the_note}_{n}"):
        n: Mapped[int]

    class Stored(Both, row_key="{n}"): ...

    both = Both(n=3)
    assert (both.the_note, both.left_side, both.right_side, both.n) == ("right", 1, 2, 3)
    assert both.key.row_key == "right_3"
    assert set(Stored.__schema__.by_property) == {"RightNote", "LeftSide", "RightSide"}


def test_redeclared_fields() -> None:
    """A subclass may declare a field anew: its type, default and name are the subclass's."""

    class Narrow(Employee, table="Narrow"):
        age: Mapped[Int32] = field(default=7, name="Age")  # pyright: ignore[reportIncompatibleVariableOverride]

    assert Narrow.__schema__.by_property["Age"].type.edm is Edm.INT32
    assert Narrow(department="x", id=1, first_name="y").age == 7
    assert Employee.__schema__.by_property["age"].type.edm is Edm.INT64


def test_kind_and_version_are_not_inherited() -> None:
    """A subclass is a kind of its own, from version 1; table and keys are inherited."""

    class Manager(Employee): ...

    schema = Manager.__schema__
    assert (schema.kind, schema.version, schema.table) == ("Manager", 1, "Directory")
    assert Manager.key(department="Sales", id=1).row_key == "empid_000001"


# Class keywords


# KindSet told by a key


def test_heads_that_can_meet() -> None:
    """KindSet of a family that a key tells apart must begin differently; the message shows both templates."""

    class Person(
        Entity, table="People", partition_key="p", row_key="{kind}_{n}", abstract=True, discriminator="row_key"
    ):
        n: Mapped[str]

    class Customer(Person, kind="C"): ...

    class Staff(Person, kind="S"): ...

    with refused("Crook", "Customer", "'C_x_'", "'C_'", "row_key"):

        class Crook(Person, kind="C_x"): ...  # pyright: ignore[reportUnusedClass]

    with refused("Anything", "literal text", "{kind}_"):

        class Anything(Person, row_key="{n}"): ...  # pyright: ignore[reportUnusedClass]

    assert [schema.model for schema in concrete(Person.__schema__)] == [Customer, Staff]


def test_heads_below_a_concrete_base() -> None:
    """Siblings are compared with each other too where their base has entities of its own."""

    class Person(Entity, table="People", partition_key="p", row_key="{kind}_{n}", discriminator="row_key"):
        n: Mapped[str]

    class Staff(Person, kind="S"): ...

    with refused("Crew", "Staff"):

        class Crew(Person, kind="S_x"): ...  # pyright: ignore[reportUnusedClass]

    assert Staff.kind == "S"


def test_a_partition_key_tells_kinds_too() -> None:
    """The same holds for `discriminator="partition_key"`; a function as discriminator needs no heads."""

    class Base(
        Entity, table="People", partition_key="{kind}-{n}", row_key="r", abstract=True, discriminator="partition_key"
    ):
        n: Mapped[str]

    class One(Base): ...

    def choose(bag: PropertyBag) -> type[Entity]:
        return Free if "free" in bag else One

    class Free(Entity, table="People", partition_key="{n}", row_key="r", discriminator=choose):
        n: Mapped[str]

    with refused("Two", "One", "partition_key"):

        class Two(Base, kind="One-1"): ...  # pyright: ignore[reportUnusedClass]

    assert Free.__schema__.discriminator is choose
