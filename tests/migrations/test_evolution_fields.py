"""
Changes of fields, each judged by its rule, and each shown by two programs that write the same rows in turn.
"""

import datetime as dt
import enum
from typing import Annotated

import attrs
import pytest

from tableorm import (
    Blob,
    Database,
    Encryption,
    EncryptionError,
    EntityNotFound,
    Int32,
    KeyRing,
    Mapped,
    PropertyBag,
    encrypted,
    field,
    upgrade,
)
from tests.faults import FaultyBackend

from .turns import Base, Case, Item, Program, both_work, new_reads_no_old, old_reads_no_new


class Optional(Base, kind="Item"):
    more: Mapped[str | None] = field(default=None)


class Defaulted(Base, kind="Item"):
    more: Mapped[str] = field(default="none")


class Required(Base, kind="Item"):
    more: Mapped[str]


class RequiredTwo(Base, kind="Item", version=2):
    more: Mapped[str]


class Renamed(Base, kind="Item"):
    other: Mapped[str] = field(name="more")


class PropertyRenamed(Base, kind="Item"):
    more: Mapped[str] = field(name="More")


class PropertyRenamedTwo(Base, kind="Item", version=2):
    more: Mapped[str] = field(name="More")


class Replaced(Base, kind="Item"):
    other: Mapped[str] = field(default="none")


class ReplacedTwo(Base, kind="Item", version=2):
    other: Mapped[str] = field(default="none")


class ReplacedByMany(Base, kind="Item"):
    left: Mapped[str | None] = field(default=None)
    right: Mapped[str | None] = field(default=None)


class ReplacedByNumber(Base, kind="Item"):
    other: Mapped[int] = field(default=0)


class Listing(Base, kind="Item"):
    more: Mapped[list[str]]


class LongListing(Base, kind="Item"):
    more: Mapped[list[str]] = field(chunked=True)


class LongScan(Base, kind="Item"):
    more: Mapped[bytes] = field(chunked=True)


class PackedScan(Base, kind="Item"):
    more: Mapped[bytes] = field(chunked=True, compress=True)


class Both(Base, kind="Item"):
    more: Mapped[str] = field(default="none")
    other: Mapped[str] = field(default="none")


class Renewed(Base, kind="Item"):
    newest: Mapped[str] = field(default="none")


class PropertyRenamedNumber(Base, kind="Item"):
    more: Mapped[int] = field(name="More")


class Number(Base, kind="Item"):
    more: Mapped[int]


class NumberTwo(Base, kind="Item", version=2):
    more: Mapped[int]


class Small(Base, kind="Item"):
    more: Mapped[Int32]


class Rank(enum.IntEnum):
    FIRST = 1


class SmallRank(Base, kind="Item"):
    more: Mapped[Annotated[Rank, Int32]]


class WideRank(Base, kind="Item"):
    more: Mapped[Rank]


class Fraction(Base, kind="Item"):
    more: Mapped[float]


class Kept(Base, kind="Item"):
    more: Mapped[str] = field(default="none", maintained=True)


class Moment(Base, kind="Item"):
    more: Mapped[dt.datetime | None] = field(default=None)


class Expiring(Base, kind="Item"):
    more: Mapped[dt.datetime | None] = field(default=None, expiry=True)


class Secret(Base, kind="Item"):
    more: Mapped[str] = encrypted()


class SecretNow(Base, kind="Item"):
    more: Mapped[str] = encrypted(accept_plain=True)


class Pictured(Base, kind="Item"):
    more: Mapped[Blob | None] = field(default=None)


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Painted(Base, kind="Item"):
    more: Mapped[Colour]


class ColourNow(enum.Enum):
    RED = "red"
    BLUE = "blue"
    GREEN = "green"


class PaintedNow(Base, kind="Item"):
    more: Mapped[ColourNow]


class PaintedTwo(Base, kind="Item", version=2):
    more: Mapped[Colour]


@attrs.define
class Line:
    sku: str


@attrs.define(kw_only=True)
class LongLine:
    sku: str
    count: int


class Ordered(Base, kind="Item"):
    more: Mapped[list[Line]]


LongLine.__name__ = LongLine.__qualname__ = "Line"


class OrderedNow(Base, kind="Item"):
    more: Mapped[list[LongLine]]


@upgrade(RequiredTwo, from_version=1)
def _give_more(bag: PropertyBag) -> PropertyBag:
    bag["more"] = str(bag.get("more") or "given")
    return bag


@upgrade(PropertyRenamedTwo, from_version=1)
def _rename(bag: PropertyBag) -> PropertyBag:
    bag["More"] = bag.pop("more")
    return bag


@upgrade(ReplacedTwo, from_version=1)
def _move(bag: PropertyBag) -> PropertyBag:
    bag["other"] = bag.pop("more")
    return bag


@upgrade(PaintedTwo, from_version=1)
def _paint(bag: PropertyBag) -> PropertyBag:
    bag["more"] = "red" if bag["more"] == "green" else bag["more"]
    return bag


@upgrade(NumberTwo, from_version=1)
def _count(bag: PropertyBag) -> PropertyBag:
    bag["more"] = int(str(bag["more"]))
    return bag


async def upgraded(old: Program, new: Program) -> None:
    """The new program reads what the old one wrote, as the upgrade says."""
    await old.insert(1)
    assert (await new.get(1)).more is not None


async def upgraded_away(old: Program, new: Program) -> None:
    """The new program reads what the old one wrote; the old one cannot read what the new one wrote."""
    await upgraded(old, new)
    await new.insert(2)
    with pytest.raises(Exception, match="more"):
        await old.get(2)


async def leaves_the_value_in_extra(old: Program, new: Program) -> None:
    """What the old program wrote stays in the row, and the new field does not get it."""
    await old.insert(1)
    entity = await new.get(1)
    assert [getattr(entity, name) for name in new.values] == [
        getattr(new.model(group="g", id=1), n) for n in new.values
    ]
    assert dict(entity.extra) == dict(old.values)


async def moves_the_value(old: Program, new: Program) -> None:
    """The upgrade gives the new field what the old program wrote, which the old one does not find any more."""
    await old.insert(1)
    assert (await new.get(1)).other == "x"
    await new.change(1, note="y")
    assert (await old.get(1)).more == "none"


async def reads_a_default(old: Program, new: Program) -> None:
    """A None of the new program is another value for the old one."""
    await new.insert(1, more=None)
    assert (await old.get(1)).more == "none"


async def a_none_is_lost(old: Program, new: Program) -> None:
    """A None of the old program is another value for the new one."""
    await old.insert(1, more=None)
    assert (await new.get(1)).more == "none"


async def misses_what_is_older(old: Program, new: Program) -> None:
    """A row that is older than the field cannot be read any more."""
    await old.db.insert(Item(group="g", id=1))
    assert (await old.get(1)).more == "none"
    with pytest.raises(Exception, match="more"):
        await new.get(1)


async def is_written_by_both(old: Program, new: Program) -> None:
    """The old program writes what the new one leaves to others."""
    await new.insert(1)
    await old.change(1, more="mine")
    assert (await new.get(1)).more == "mine"


async def expires_for_one(old: Program, new: Program) -> None:
    """The old program finds an entity that has expired for the new one."""
    await new.insert(1)
    await old.change(1, note="x")
    with pytest.raises(EntityNotFound):
        await new.get(1)


async def refuses_what_is_plain(old: Program, new: Program) -> None:
    """The new program reads no value that is not encrypted, as the old one does."""
    await old.db.insert(Required(group="g", id=1, more="x"))
    assert (await old.get(1)).more == "x"
    with pytest.raises(EncryptionError, match="accept_plain=True"):
        await new.get(1)


async def knows_more_values(old: Program, new: Program) -> None:
    """The old program reads no value that it does not know."""
    await old.insert(1)
    await new.change(1, note="x")
    assert (await old.get(1)).note == "x"
    await new.change(1, **new.values)
    with pytest.raises(Exception, match="more"):
        await old.get(1)


KEYS = Encryption(KeyRing({"k": bytes(32)}, wrap_with="k"))
PAST = dt.datetime(2000, 1, 1, tzinfo=dt.UTC)

TEXT, ONE, LARGE, NONE = {"more": "x"}, {"more": 1}, {"more": 2**40}, {"more": None}
FIRST, RED, GREEN = {"more": Rank.FIRST}, {"more": Colour.RED}, {"more": ColourNow.GREEN}
CASES = {
    "optional": Case(("field-added",), Item, Optional, both_work, new_values=TEXT),
    "default": Case(("field-added",), Item, Defaulted, both_work, new_values=TEXT),
    "required": Case(("field-added-required",), Item, Required, new_reads_no_old, new_values=TEXT),
    "required, upgraded": Case(
        ("version-raised", "field-added-upgraded"), Item, RequiredTwo, upgraded, new_values=TEXT
    ),
    "optional removed": Case(("field-removed",), Optional, Item, both_work, old_values=TEXT),
    "default removed": Case(("field-removed",), Defaulted, Item, both_work, old_values=TEXT),
    "required removed": Case(("field-removed-required",), Required, Item, old_reads_no_new, old_values=TEXT),
    "renamed": Case(("field-renamed",), Required, Renamed, both_work, old_values=TEXT, new_values={"other": "x"}),
    "property renamed": Case(("property-renamed",), Required, PropertyRenamed, new_reads_no_old, TEXT, TEXT),
    "property renamed, upgraded": Case(
        ("version-raised", "property-renamed-upgraded"), Required, PropertyRenamedTwo, upgraded_away, TEXT, TEXT
    ),
    "renamed with its property": Case(
        ("field-replaced",), Defaulted, Replaced, leaves_the_value_in_extra, TEXT, {"other": "y"}
    ),
    "renamed with its property, upgraded": Case(
        ("version-raised", "field-replaced-upgraded"), Defaulted, ReplacedTwo, moves_the_value, TEXT
    ),
    "one field becomes two": Case(
        ("field-replaced", "field-replaced"),
        Defaulted,
        ReplacedByMany,
        leaves_the_value_in_extra,
        TEXT,
        {"left": "y", "right": "z"},
    ),
    "one field added, then the other removed": Case(("field-removed",), Both, Replaced, both_work),
    "renamed with its property and its type": Case(
        ("field-replaced",), Defaulted, ReplacedByNumber, leaves_the_value_in_extra, TEXT, {"other": 1}
    ),
    "property renamed with its type": Case(
        ("property-renamed",), Required, PropertyRenamedNumber, new_reads_no_old, TEXT, ONE
    ),
    "type": Case(("type-changed",), Required, Number, new_reads_no_old, TEXT, ONE),
    "type, upgraded": Case(("version-raised", "type-changed"), Required, NumberTwo, upgraded_away, {"more": "7"}, ONE),
    "Int64 to Double": Case(("type-changed",), Number, Fraction, new_reads_no_old, ONE, {"more": 1.5}),
    "Int64 to Int32": Case(("type-changed",), Number, Small, new_reads_no_old, LARGE, ONE),
    "Int32 to Int64": Case(("int-widened",), Small, Number, old_reads_no_new, ONE, LARGE),
    "Int32 to an enum of Int64": Case(("type-changed",), Small, WideRank, new_reads_no_old, {"more": 2}, FIRST),
    "an enum of Int64 to Int32": Case(("type-changed",), WideRank, SmallRank, new_reads_no_old, FIRST, FIRST),
    "chunked": Case(("made-long",), Listing, LongListing, old_reads_no_new, {"more": ["x"]}, {"more": ["y" * 40_000]}),
    "not chunked": Case(
        ("form-changed",), LongListing, Listing, new_reads_no_old, {"more": ["y" * 40_000]}, {"more": ["x"]}
    ),
    "compressed": Case(("form-changed",), LongScan, PackedScan, new_reads_no_old, {"more": b"x"}, {"more": b"x"}),
    "an enum of Int32 to Int64": Case(("int-widened",), SmallRank, WideRank, old_reads_no_new, FIRST, FIRST),
    "enum to text": Case(("enum-widened",), Painted, Required, old_reads_no_new, RED, {"more": "pink"}),
    "text to enum": Case(("type-changed",), Required, Painted, new_reads_no_old, TEXT, RED),
    "enum with more": Case(("enum-value-added",), Painted, PaintedNow, knows_more_values, RED, GREEN),
    "enum with less": Case(("enum-value-removed",), PaintedNow, Painted, new_reads_no_old, GREEN, RED),
    "enum with less, upgraded": Case(
        ("version-raised", "required-upgraded"), PaintedNow, PaintedTwo, upgraded, GREEN, RED
    ),
    "made optional": Case(("made-optional", "default-added"), Required, Optional, old_reads_no_new, TEXT, NONE),
    "made optional beside a default": Case(("made-optional",), Defaulted, Optional, reads_a_default, {}, {}),
    "made required": Case(("made-required", "default-removed"), Optional, Required, new_reads_no_old, NONE, TEXT),
    "made required with a default": Case(("made-required",), Optional, Defaulted, a_none_is_lost, {}, {}),
    "made required, upgraded": Case(
        ("version-raised", "required-upgraded", "required-upgraded"), Optional, RequiredTwo, upgraded, NONE, TEXT
    ),
    "no default": Case(("default-removed",), Defaulted, Required, misses_what_is_older, {}, TEXT),
    "a default": Case(("default-added",), Required, Defaulted, both_work, TEXT, TEXT),
    "maintained": Case(("maintained-changed",), Defaulted, Kept, is_written_by_both),
    "expiry added": Case(("field-added", "expiry-changed"), Item, Expiring, expires_for_one, new_values={"more": PAST}),
    "expiry": Case(("expiry-changed",), Moment, Expiring, expires_for_one, {"more": PAST}, {"more": PAST}),
    "encrypted": Case(("encrypted-at-once",), Required, Secret, refuses_what_is_plain),
    "encrypted in steps": Case(("made-encrypted",), Required, SecretNow, old_reads_no_new, TEXT, {"more": "y"}),
    "no plain values": Case(("plain-refused",), SecretNow, Secret, refuses_what_is_plain),
    "plain values": Case(("plain-accepted",), Secret, SecretNow, both_work, TEXT, TEXT),
    "not encrypted": Case(("encryption-removed",), Secret, Required, new_reads_no_old, TEXT),
    "blob": Case(("field-renamed", "type-changed", *("field-added",) * 3), Optional, Pictured, new_reads_no_old, TEXT),
    "nested": Case(
        ("class-changed",),
        OrderedNow,
        Ordered,
        old_reads_no_new,
        {"more": [LongLine(sku="a", count=1)]},
        {"more": [Line("a")]},
    ),
}


def test_a_renamed_property_of_another_type_is_told_with_both_types() -> None:
    """The report names the types, since an upgrade has to convert the values as well."""
    (found,) = Case((), Required, PropertyRenamedNumber, both_work).judge()[1:]

    assert "property 'more' becomes 'More', and str becomes int (property-renamed): is rejected" in str(found)


def test_a_text_in_place_of_a_blob_is_another_type() -> None:
    """It would be read as the address of the blob."""
    (found,) = [each for each in Case((), Pictured, Optional, both_work).judge() if each.rule.code == "type-changed"]

    assert "Blob becomes str" in str(found)


def test_all_removed_fields_that_may_be_the_new_one_are_named() -> None:
    """Nobody guesses which of them it was: the person who reads the report knows."""
    (found,) = Case((), Both, Renewed, both_work).judge()[1:]

    assert "property 'newest' is new, and 'more', 'other' are gone (field-replaced): is rejected" in str(found)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
async def test_changes_of_fields(case: Case) -> None:
    """The judgement, and what two programs see."""
    assert [each.rule.code for each in case.judge() if each.rule.code != "class-renamed"] == list(case.codes)
    backend = FaultyBackend()
    async with Database(backend, encryption=KEYS) as old, Database(backend, encryption=KEYS) as new:
        await old.create_tables(case.old)
        await case.check(Program(old, case.old, case.old_values), Program(new, case.new, case.new_values))
