"""
Snapshots see into the classes that are stored as JSON text, also where their annotations are texts, as all are here.
"""

from __future__ import annotations

import datetime as dt
import enum
import typing
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import attrs
import msgspec
import pytest
from pydantic import BaseModel, Field

from tableorm import Entity, Mapped, ModelError
from tableorm_migrations import compare_snapshots, describe_models, read_snapshot, write_snapshot

if typing.TYPE_CHECKING:
    from decimal import Decimal


@dataclass
class Size:
    width: int


@dataclass
class Part:
    size: Size
    others: list[Size]


@attrs.define
class Box:
    size: Size


class Label(msgspec.Struct, rename="upper"):
    text: str


class Price(typing.TypedDict):
    amount: int


class Place(typing.NamedTuple):
    box: Box | None


class Priced(msgspec.Struct):
    price: Price


class Unknown(msgspec.Struct):
    size: Lost


class Lost(msgspec.Struct):
    number: int


class Wrong(msgspec.Struct):
    amount: Decimal


class Stored(Entity, table="JsonClasses", partition_key="{group}", row_key="x"):
    group: Mapped[str]
    dataclass: Mapped[Part]
    boxes: Mapped[list[Box]]
    structs: Mapped[dict[str, Label]]
    typed: Mapped[list[Priced]]
    named: Mapped[list[Place]]
    numbers: Mapped[list[int]]


@pytest.mark.parametrize(
    ("field", "classes"),
    [
        ("dataclass", {"Part": {"size": "Size", "others": "list[Size]"}, "Size": {"width": "int"}}),
        ("boxes", {"Box": {"size": "Size"}, "Size": {"width": "int"}}),
        ("structs", {"Label": {"TEXT": "str"}}),
        ("typed", {"Priced": {"price": "Price"}, "Price": {"amount": "int"}}),
        ("named", {"Place": {"box": "Box | None"}, "Box": {"size": "Size"}, "Size": {"width": "int"}}),
        ("numbers", {}),
    ],
)
def test_members_of_classes_are_described(field: str, classes: dict[str, dict[str, str]]) -> None:
    """Dataclasses, attrs classes, structs, typed dictionaries and named tuples, by their names in JSON."""
    assert describe_models([Stored]).models[0].fields[field].classes == classes


class Sort(enum.Enum):
    ONE = UUID(int=1)
    TWO = UUID(int=2)


class Since(enum.Enum):
    BEGIN = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


class Code(enum.Enum):
    RED = b"red"


class Sorted(Entity, table="JsonSorts", partition_key="{group}", row_key="x"):
    group: Mapped[str]
    sort: Mapped[Sort]
    since: Mapped[Since]
    code: Mapped[Code]


def test_enums_of_any_stored_type_are_described(tmp_path: Path) -> None:
    """Their values are as rows have them, so that a snapshot that was written and read has no differences."""
    snapshot = describe_models([Sorted])
    write_snapshot(tmp_path / "kept.json", snapshot)

    assert snapshot.models[0].fields["code"].values == ("cmVk",)
    assert read_snapshot(tmp_path / "kept.json") == snapshot
    assert compare_snapshots(read_snapshot(tmp_path / "kept.json"), describe_models([Sorted])) == []


class First(Entity, table="JsonParts", kind="Part", partition_key="{group}", row_key="x"):
    group: Mapped[str]
    part: Mapped[Part]


def test_a_change_inside_of_a_dataclass_is_noticed() -> None:
    """Annotations that are texts say as much as types."""
    before = describe_models([First])
    now = msgspec.json.decode(
        msgspec.json.encode(before).replace(b'"width":"int"', b'"width":"float"'), type=type(before)
    )
    assert [each.rule.code for each in compare_snapshots(before, now)] == ["class-changed"]


class Wheel(BaseModel):
    size: int = Field(default=1, alias="Size")


class Cart(BaseModel):
    wheels: list[Wheel]


class Carts(Entity, table="JsonCarts", partition_key="{group}", row_key="x"):
    group: Mapped[str]
    carts: Mapped[dict[str, Cart]]


def test_a_change_inside_of_a_pydantic_model_is_noticed() -> None:
    """Members count by their names in JSON, in models within models too."""
    before = describe_models([Carts])
    assert before.models[0].fields["carts"].classes == {"Cart": {"wheels": "list[Wheel]"}, "Wheel": {"Size": "int"}}
    now = msgspec.json.decode(msgspec.json.encode(before).replace(b'"Size"', b'"size"'), type=type(before))
    assert [each.rule.code for each in compare_snapshots(before, now)] == ["class-changed"]


def test_a_member_of_a_type_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """The model is rejected, and if the type is gone afterwards, the snapshot; both name it, and the class."""
    with pytest.raises(ModelError, match=r"Never\.it is declared as .*Wrong.*, which has no JSON form: .*'Decimal'"):

        class Never(Entity, table="JsonNever", partition_key="{group}", row_key="x"):  # pyright: ignore[reportUnusedClass]
            group: Mapped[str]
            it: Mapped[list[Wrong]]

    class Later(Entity, table="JsonLater", partition_key="{group}", row_key="x"):
        group: Mapped[str]
        it: Mapped[list[Unknown]]

    monkeypatch.delitem(globals(), "Lost")
    with pytest.raises(ModelError, match="the types of the members of Unknown cannot be resolved: name 'Lost' is not"):
        describe_models([Later])
