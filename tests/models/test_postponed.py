"""
Postponed annotations: a model's types are found where the class statement stands, as Python would find them.
"""

from __future__ import annotations

import enum
import typing
from typing import ClassVar

import attrs
import pytest

import tableorm
from tableorm import Edm, Entity, Int32, Mapped, ModelError, field


class Color(enum.Enum):
    """In the module; some functions below have a Color of their own."""

    RED = "red"


class Pixel(Entity, table="Pixels", partition_key="p", row_key="{n:03d}"):
    SIZE: ClassVar[int] = 3
    names: typing.ClassVar[dict[str, int]] = {}

    n: Mapped[Int32]
    color: Mapped[Color | None] = field(default=None)
    qualified: tableorm.Mapped[int] = field(default=0)


def test_names_of_the_module() -> None:
    """Annotations that are text are resolved in the module; ClassVar is not a field."""
    pixel = Pixel(n=1, color=Color.RED)

    assert pixel.color is Color.RED
    assert Pixel.__schema__.by_property["color"].type.annotation is Color
    assert (pixel.SIZE, pixel.names, pixel.qualified) == (3, {}, 0)
    assert list(Pixel.__schema__.fields) == ["n", "color", "qualified"]


def test_names_of_a_function() -> None:
    """A class in a function sees the function's names before the module's, and mixed with them."""

    class Color(enum.Enum):
        DARK = 7

    @attrs.define
    class Place:
        x: int = 0

    class Local(Entity, table="Pixels", partition_key="p", row_key="r"):
        color: Mapped[Color]
        place: Mapped[Place | None] = field(default=None)
        number: Mapped[Int32 | None] = field(default=None)

    types = Local.__schema__.by_property
    assert types["color"].type.annotation is Color
    assert types["color"].type.edm is Edm.INT64
    assert types["place"].type.annotation is Place
    assert types["number"].type.edm is Edm.INT32


def _make_pixel() -> type[Entity]:
    class Made(Entity, table="Pixels", partition_key="p", row_key="r"):
        color: Mapped[Color]

    return Made


def test_names_of_a_caller_do_not_hide_the_module() -> None:
    """The function that calls the one with the class statement may use a name otherwise; that does not matter."""
    Color = int  # noqa: N806

    assert _make_pixel().__schema__.by_property["color"].type.annotation is globals()["Color"]
    assert Color is int


def test_names_of_enclosing_functions() -> None:
    """A class in a function in a function sees the names of both."""

    class Outer(enum.Enum):
        A = "a"

    def inner() -> type[Entity]:
        class Nested(Entity, table="Pixels", partition_key="p", row_key="r"):
            outer: Mapped[Outer]

        return Nested

    assert inner().__schema__.by_property["outer"].type.annotation is Outer


def test_names_of_an_enclosing_class() -> None:
    """A class in a class sees the names of the body around it."""

    class Space:
        class Kind(enum.Enum):
            A = "a"

        class Inside(Entity, table="Pixels", partition_key="p", row_key="r"):
            it: Mapped[Kind]  # type: ignore[name-defined]  # noqa: F821  # pyright: ignore[reportUndefinedVariable]

    assert Space.Inside.__schema__.by_property["it"].type.annotation is Space.Kind


def test_a_base_resolves_where_it_stands() -> None:
    """An inherited field keeps the type that its name meant in the base's module or function."""

    class Child(Pixel, table="Children"): ...

    assert Child.__schema__.by_property["color"].type.annotation is Color


def test_unknown_names() -> None:
    """A name that nothing defines, or not yet, is rejected with the field and the name."""

    def unknown() -> object:
        class Odd(Entity, abstract=True):
            a: Mapped[Nonsense]  # type: ignore[name-defined]  # noqa: F821  # pyright: ignore[reportUndefinedVariable]

        return Odd

    def broken() -> object:
        return type("Odd", (Entity,), {"__annotations__": {"a": "Mapped[int"}, "__module__": __name__}, abstract=True)

    def later() -> object:
        class Odd(Entity, abstract=True):
            a: Mapped[Later]

        class Later(enum.Enum):
            A = 1

        return Odd

    for declare, words in ((unknown, "Nonsense"), (broken, "Mapped"), (later, "Later")):
        with pytest.raises(ModelError, match=rf"Odd\.a.*{words}"):
            declare()


def test_plain_annotations_are_seen_through() -> None:
    """What is not a field is rejected also when its annotation is text, and so is a mixin's field."""

    def own() -> object:
        class Odd(Entity, abstract=True):
            a: int

        return Odd

    class Mixin:
        note: tableorm.Mapped[str]

    def mixed() -> object:
        class Odd(Mixin, Entity, abstract=True): ...

        return Odd

    with pytest.raises(ModelError, match=r"Odd\.a is annotated int"):
        own()
    with pytest.raises(ModelError, match=r"'note' from Mixin"):
        mixed()
