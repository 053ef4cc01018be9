"""
`moved_from=`: what a model says of the older one whose entities it takes over.
"""

import datetime as dt
from collections.abc import Callable
from typing import Any

import pytest

from tableorm import Count, Entity, Index, Mapped, ModelError, MovedFrom, field
from tableorm.models.state import state_of
from tableorm.rekey.rekeying import entity_of_old, old_place_of
from tests.rekeys import rekeying_of


class Flight(Entity, table="MovedFrom", tracked=True, partition_key="{origin}_{day}", row_key="{carrier}_{number}"):
    origin: Mapped[str]
    day: Mapped[int]
    carrier: Mapped[str]
    number: Mapped[int]
    tail: Mapped[str | None] = field(default=None)


def fields_of(flight: Entity, tail: str | None) -> dict[str, Any]:
    fields = {name: value for name, value in flight.__dict__.items() if name in Flight.__schema__.fields}
    return {**fields, "tail": tail}


def to_new(flight: Flight) -> "ByPlane | None":
    return None if flight.number == 0 else ByPlane(**fields_of(flight, flight.tail or "unknown"))


def to_old(flight: "ByPlane") -> Flight:
    return Flight(**fields_of(flight, None if flight.tail == "unknown" else flight.tail))


def old_keys(tail: str, day: int, carrier: str, number: int) -> list[dict[str, Any]]:
    return [
        {"origin": origin, "day": day, "carrier": carrier, "number": number} for origin in ("EWR", "JFK", "LGA", "JFK")
    ]


class ByPlane(
    Entity,
    table="MovedFrom",
    partition_key="{tail}",
    row_key="{day:03d}_{carrier}_{number}",
    moved_from=MovedFrom(Flight, to_new=to_new, to_old=to_old, old_keys=old_keys),
):
    origin: Mapped[str]
    day: Mapped[int]
    carrier: Mapped[str]
    number: Mapped[int]
    tail: Mapped[str]


def test_an_entity_there_and_back() -> None:
    """The functions make entities of each model; unknown properties go along, and `old_keys` names each key once."""
    rekeying = rekeying_of(ByPlane)
    flight = Flight(origin="JFK", day=7, carrier="AA", number=12)
    flight.extra["Gate"] = "B4"
    made = rekeying.to_new(flight)

    assert made == ByPlane(origin="JFK", day=7, carrier="AA", number=12, tail="unknown")
    assert dict(made.extra) == {"Gate": "B4"}
    assert rekeying.to_old(made) == flight and dict(rekeying.to_old(made).extra) == {"Gate": "B4"}
    assert rekeying.old_key(made) == flight.key
    assert [key.partition_key for key in rekeying.old_keys(made.__dict__)] == ["EWR_7", "JFK_7", "LGA_7"]
    assert rekeying.to_new(flight.evolve(number=0)) is None
    assert str(rekeying) == "re-key of Flight to ByPlane"


def test_an_entity_that_was_read_at_its_older_key() -> None:
    """It has the ETag of the older row and the key of the newer one, and remembers where it was read."""
    row = {
        "PartitionKey": "JFK_7",
        "RowKey": "AA_12",
        "Timestamp": "2026-01-01T00:00:00.0000000Z",
        "odata.etag": "W/\"datetime'2026-01-01T00%3A00%3A00.0000000Z'\"",
        "EntityType": "Flight",
        "Gate": "B4",
    }
    found = entity_of_old(rekeying_of(ByPlane), row)

    assert isinstance(found, ByPlane)
    assert found == ByPlane(origin="JFK", day=7, carrier="AA", number=12, tail="unknown")
    assert found.etag == row["odata.etag"] and found.timestamp == dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    assert found.key.partition_key == "unknown" and dict(found.extra) == {"Gate": "B4"}
    mark = old_place_of(state_of(found).row)
    assert mark is not None and mark.etag == row["odata.etag"] and mark.other.partition_key == "JFK_7"
    assert entity_of_old(rekeying_of(ByPlane), {**row, "EntityType": "Other"}) is None
    assert entity_of_old(rekeying_of(ByPlane), {**row, "RowKey": "AA_0"}) is None


class InPairs(Entity, abstract=True, partition_key="{a}"):
    a: Mapped[str]
    b: Mapped[str]


class Plain(InPairs, table="MovedFromPlain", tracked=True, row_key="p_{b}"):
    c: Mapped[int] = field(default=0)


def test_it_shows_the_older_model() -> None:
    """So does one that names no model, in the message that rejects it."""
    wrong: Any = 5

    assert repr(MovedFrom(Flight, old_keys=old_keys)) == "<MovedFrom Flight>"
    assert repr(MovedFrom(wrong)) == "<MovedFrom 5>"


def test_a_model_alone_copies_fields() -> None:
    """Fields of the same name are copied; a new one gets its default. The newer model is tracked without saying so."""

    class More(InPairs, table="MovedFromPlain", partition_key="{b}", row_key="m_{a}", moved_from=MovedFrom(Plain)):
        c: Mapped[int] = field(default=0)

    rekeying = rekeying_of(More)
    assert rekeying.to_new(Plain(a="x", b="y", c=3)) == More(a="x", b="y", c=3)
    assert rekeying.to_old(More(a="x", b="y", c=3)) == Plain(a="x", b="y", c=3)
    assert rekeying.old_keys({"a": "x", "b": "y"}) == (Plain.key(a="x", b="y"),)
    assert More.__schema__.tracked


class Periods(InPairs, table="Moved{day:%Y%m}", row_key="{b}_{day}"):
    day: Mapped[dt.date]


class Expiring(InPairs, table="MovedFromExpiring", row_key="e_{b}"):
    until: Mapped[dt.datetime | None] = field(default=None, expiry=True)


class Kept(Entity, table="MovedFromKept", partition_key="{a}", row_key="k"):
    a: Mapped[str]
    size: Mapped[int] = field(default=0, maintained=True)


class Counted(InPairs, table="MovedFromKept", row_key="c_{b}"):
    counts = Count(lambda: Kept.size, a="{a}")


class Eventual(InPairs, table="MovedFromEventual", row_key="e_{b}"):
    by_b = Index(partition_key="{b}", row_key="by_b_{a}", consistency="eventual")


class Kindless(InPairs, table="MovedFromKindless", row_key="{b}", kind=None): ...


class Untracked(InPairs, table="MovedFromUntracked", row_key="u_{b}"): ...


class Abstract(InPairs, table="MovedFromAbstract", row_key="{b}", abstract=True): ...


FLIGHT = Flight(origin="JFK", day=7, carrier="AA", number=12)


def declared(moved_from: Any, **keywords: Any) -> type[Entity]:
    """Declare a model that takes over entities."""
    chosen = {"table": "MovedFromPlain", "row_key": "d_{b}", **keywords}

    class Wrong(InPairs, moved_from=moved_from, **chosen):
        c: Mapped[int] = field(default=0)

    return Wrong


MISTAKES: list[tuple[Callable[[], Any], str]] = [
    (lambda: declared("Plain"), r"Wrong: moved_from='Plain' is rejected: write moved_from=MovedFrom\(OldModel\)"),
    (lambda: declared(Plain), r"Wrong: moved_from=.*Plain.* is rejected: write moved_from=MovedFrom\(Plain\)"),
    (lambda: declared(MovedFrom(Entity)), r"Wrong: moved_from=MovedFrom\(.*Entity.*\) is rejected: give a model"),
    (
        lambda: declared(MovedFrom(Abstract)),
        r"Wrong: moved_from=Abstract is rejected: Abstract is abstract; name a model",
    ),
    (
        lambda: declared(MovedFrom(Kindless)),
        r"a row of Kindless that is about to be moved could be read as an entity; give Kin",
    ),
    (
        lambda: declared(MovedFrom(Plain), kind="Plain"),
        r"both have the kind 'Plain' in table MovedFromPlain, so their rows can't be distinguished",
    ),
    (
        lambda: declared(MovedFrom(Untracked)),
        r"Untracked is not tracked, so that an upsert of it would .* class Untracked\(\.\.\., tracked=True\)",
    ),
    (lambda: declared(MovedFrom(Periods)), r"moved_from=Periods is rejected: Periods has a table for each period"),
    (lambda: declared(MovedFrom(Expiring)), r"moved_from=Expiring is rejected: Expiring has entities that expire"),
    (lambda: declared(MovedFrom(Kept)), r"moved_from=Kept is rejected: Kept has fields that other entities keep"),
    (
        lambda: declared(MovedFrom(Counted)),
        r"Counted has Counted.counts, and only an Index in the partition of its entities fol",
    ),
    (lambda: declared(MovedFrom(Eventual)), r"Eventual has Eventual.by_b, and only an Index in the partition"),
    (lambda: declared(MovedFrom(ByPlane)), r"ByPlane has moved_from= itself; finish that re-key first"),
    (
        lambda: declared(MovedFrom(Flight)),
        r"Wrong has no field 'origin', so that its value would be lost; declare the field, or",
    ),
    (
        lambda: declared(MovedFrom(Flight, to_new=lambda _: None)),
        r"Wrong: moved_from=Flight is rejected: Flight has no field 'a', so that its value .* or give to_old=",
    ),
    (
        lambda: declared(MovedFrom(Flight, to_new=lambda _: None, to_old=lambda _: FLIGHT)),
        r"the key of Wrong lacks 'origin', so that it does not tell the key by Flight; give old_keys=",
    ),
]


@pytest.mark.parametrize(("declare", "message"), MISTAKES)
def test_what_cannot_be_taken_over(declare: Callable[[], Any], message: str) -> None:
    """The message names the two models, what is wrong, and what to do."""
    with pytest.raises(ModelError, match=message):
        declare()


def test_functions_that_return_something_else() -> None:
    """They are named, with what they returned."""

    def keys(**fields: Any) -> list[dict[str, Any]]:
        return [{"a": fields["a"], "b": str(n)} for n in range(17)] if fields["b"] == "many" else [{"x": 1}]

    wrong: Any = MovedFrom(Plain, to_new=lambda e: e, to_old=lambda e: e, old_keys=keys)
    rekeying = rekeying_of(declared(wrong))
    with pytest.raises(ModelError, match=r"moved_from=Plain: to_new returned Plain\(.*which is not a Wrong"):
        rekeying.to_new(Plain(a="x", b="y"))
    with pytest.raises(ModelError, match=r"to_old returned Wrong\(.*which is not a Plain"):
        rekeying.to_old(rekeying.new.model(a="x", b="y"))  # type: ignore[call-arg]
    with pytest.raises(ModelError, match=r"old_keys returned 17 keys for .*; return one to 16"):
        rekeying.old_keys({"a": "x", "b": "many"})
    with pytest.raises(ModelError, match=r"old_keys returned fields that make no key: .*'x'"):
        rekeying.old_keys({"a": "x", "b": "y"})
