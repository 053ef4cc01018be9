"""
Series: what of them is sent, what is read of rows that others wrote, and what is rejected. What each verb leaves is
compared with plain Python in `test_oracle.py`.
"""

import copy
import datetime as dt
import pickle
from typing import Any

import pytest
from pydantic import TypeAdapter

from tableorm import (
    Database,
    DecodeError,
    EncodeError,
    Entity,
    InvalidInput,
    Mapped,
    ModelError,
    NotLoaded,
    Series,
    Slots,
    field,
    from_dict,
    series,
    to_dict,
)
from tableorm.stores import Row
from tableorm_migrations.evolution import compare_snapshots
from tableorm_migrations.snapshot import Snapshot, describe_models
from tests.databases import database_fixture
from tests.rows import put_row

NOON = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)


class Traffic(Entity, table="Series", partition_key="ken", row_key="day_{day}"):
    day: Mapped[int] = field(default=1)
    sent: Series[int] = series(24, name="H{i:02d}", default=0)
    peaks: Series[float | None] = series(12)
    note: Mapped[str] = field(default="")


class Listed(Entity, table="Series", partition_key="ken", row_key="listed_{id}"):
    id: Mapped[int] = field(default=1)
    turns: Series[dt.datetime | None] = series(3)


db = database_fixture(Traffic)


async def stored(db: Database) -> Row:
    row = await db.store.get("Series", "ken", "day_1")
    names = ("odata.etag", "Timestamp", "PartitionKey", "RowKey", "EntityType")
    return {name: value for name, value in row.items() if name not in names and "@" not in name}


async def write(db: Database, **properties: Any) -> None:
    row = {"PartitionKey": "ken", "RowKey": "day_1", "EntityType": "Traffic", **properties}
    await put_row(db, "Series", row)


def body(db: Database, verb: Any, entity: Entity, **arguments: Any) -> bytes | None:
    """Return the body of the only request of a write."""
    (step,) = db.explain_write(verb, entity, **arguments).steps
    return step.body


async def test_what_has_no_value_is_not_stored(db: Database) -> None:
    """An entity without the field has an empty series, which takes no property; a slot is read as the default."""
    traffic = Traffic(note="x")
    assert (len(traffic.sent), [*traffic.sent], [*traffic.peaks]) == (24, [0] * 24, [None] * 12)
    await db.insert(traffic)
    assert await stored(db) == {"note": "x"}
    traffic.sent[9] += 5
    traffic.peaks[-1] = 2
    assert body(db, "save", traffic) == b'{"H09":"5","H09@odata.type":"Edm.Int64","peaks11":2.0}'
    await db.save(traffic)
    assert await stored(db) == {"note": "x", "H09": "5", "peaks11": 2.0}
    read = await db.get(Traffic, day=1)
    assert (read, read.sent[9], read.sent[8:10], read.peaks[11]) == (traffic, 5, [0, 5], 2.0)
    assert repr(read.sent) == "<24 slots {9: 5}>"
    read.sent[9] = 0  # which is a value, and not the absence of one
    await db.save(read)
    assert (await stored(db))["H09"] == "0"


async def test_one_slot_of_an_unread_entity_is_set_by_one_request(db: Database) -> None:
    """A merge of a slot sends nothing else; of a part that does not stand by itself it is rejected."""
    await db.insert(Traffic(sent=[*range(24)]))
    traffic = Traffic()
    traffic.sent[9] = 100
    sent = body(db, "merge", traffic, only=[Traffic.sent[9]], if_match="*")
    assert sent == b'{"H09":"100","H09@odata.type":"Edm.Int64"}'
    await db.merge(traffic, only=[Traffic.sent[9]], if_match="*")
    read = await db.get(Traffic, day=1)
    assert [*read.sent] == [*range(9), 100, *range(10, 24)]
    with pytest.raises(EncodeError, match=r"Traffic\.sent\[8\].*merge cannot remove"):
        await db.merge(traffic, only=[Traffic.sent[8]], if_match="*")
    with pytest.raises(EncodeError, match=r"Traffic\.sent\[0\].*merge cannot remove"):
        await db.merge(traffic, only=[Traffic.sent], if_match="*")
    with pytest.raises(ModelError, match="is not a field"):
        await db.merge(traffic, only=["sent[24]"], if_match="*")


async def test_slots_are_conditions_and_projections(db: Database) -> None:
    """The service compares a slot, and sends the slots alone that were asked for; the others are not loaded."""
    for day in range(4):
        traffic = Traffic(day=day)
        traffic.sent[9] = day * 100
        traffic.sent[10] = 1
        await db.insert(traffic)
    query = db.select(Traffic).where(Traffic.sent[9] > 100)
    assert [each.day for each in await query.all()] == [2, 3]
    assert "H09 gt 100" in str(query.explain())
    one = query.only(Traffic.sent[-15], Traffic.sent[11])
    assert "$select=PartitionKey,RowKey,EntityType,H09,H11" in str(one.explain())
    traffic = (await one.all())[0]
    assert (traffic.sent[9], traffic.sent[11], repr(traffic.sent)) == (200, 0, "<24 slots {9: 200}>")
    with pytest.raises(NotLoaded, match=r"Traffic\.sent\[10\]: this slot was not loaded"):
        _ = traffic.sent[10]
    with pytest.raises(NotLoaded):
        _ = traffic.sent == [0] * 24
    with pytest.raises(NotLoaded, match="note"):
        await db.replace(traffic)
    traffic.note = "n"
    traffic.peaks = [None] * 12
    with pytest.raises(NotLoaded, match=r"sent was loaded in part"):
        await db.replace(traffic)
    with pytest.raises(EncodeError, match=r"compare a part of it: Traffic\.sent\[0\], Traffic\.sent\[1\].*\.\.\."):
        _ = Traffic.sent == [1]
    with pytest.raises(EncodeError, match="a str, not an int"):
        Traffic.sent[3].in_(["a"])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]
    with pytest.raises(IndexError, match=r"Traffic\.sent\[24\]: the series has 24 slots"):
        _ = Traffic.sent[24]


async def test_slots_of_other_programs(db: Database) -> None:
    """An Int32 stays one as long as it fits; a slot of another type is no value, and the error names it."""
    await write(db, note="", H03=7, H04="8", **{"H04@odata.type": "Edm.Int64"}, Other="kept")
    traffic = await db.get(Traffic, day=1)
    assert traffic.sent[2:5] == [0, 7, 8]
    traffic.sent[3] += 1
    assert body(db, "save", traffic) == b'{"H03":8}'
    traffic.sent[3] = 2**40
    await db.save(traffic)
    row = await db.store.get("Series", "ken", "day_1")
    assert (row["H03"], row["H03@odata.type"], row["Other"]) == (str(2**40), "Edm.Int64", "kept")
    await write(db, H03="text")
    with pytest.raises(DecodeError, match=r"Traffic.*sent\[3\].*'text', an Edm.String, where Edm.Int64"):
        await db.get(Traffic, day=1)
    with pytest.raises(DecodeError, match=r"sent\[3\]"):
        await db.select(Traffic).only(Traffic.sent[3]).all()
    assert await db.select(Traffic).only(Traffic.sent[4]).all() != []


def test_a_slot_takes_values_of_its_type_alone() -> None:
    """As every field, when it is set; the error names the slot."""
    traffic = Traffic()
    bad: Any
    for bad, problem in (
        ("a", "a str, not an int"),
        (True, "a bool, not an int"),
        (2**63, "outside the range"),
        (None, r"is None; a slot is int: 0 if not stored"),
    ):
        with pytest.raises(EncodeError, match=rf"Traffic\.sent\[3\].*{problem}"):
            traffic.sent[3] = bad
        with pytest.raises(EncodeError, match=rf"Traffic\.sent\[23\].*{problem}"):
            traffic.sent = [*range(23), bad]
    for bad, problem in (([1, 2], "2 values, and the series 24 slots"), ("abc", "is a str"), (None, "is a NoneType")):
        with pytest.raises(EncodeError, match=rf"Traffic\.sent:.*{problem}"):
            traffic.sent = bad
        with pytest.raises(EncodeError, match=rf"Traffic\.sent:.*{problem}"):
            Traffic(sent=bad)
    for index in (24, -25):
        with pytest.raises(IndexError, match=r"Traffic\.sent\[-?2\d\]: the series has 24 slots"):
            traffic.sent[index] = 1
    with pytest.raises(TypeError, match="a slot has a number"):
        traffic.sent[1:2] = 5  # type: ignore[index]  # pyright: ignore[reportArgumentType, reportCallIssue]
    with pytest.raises(EncodeError, match=r"Listed\.turns\[0\].*time zone"):
        Listed().turns[0] = dt.datetime(2026, 1, 1)  # noqa: DTZ001
    assert [*traffic.sent] == [0] * 24


def test_entities_share_no_slots() -> None:
    """Copies, entities made of another's values, and what pickle and deepcopy make: each has slots of its own."""
    one = Traffic(sent=[*range(24)])
    others = [
        one.evolve(day=1),
        copy.copy(one),
        copy.deepcopy(one),
        pickle.loads(pickle.dumps(one)),
        Traffic(sent=one.sent),
        from_dict(Traffic, to_dict(one)),
        from_dict(Traffic, to_dict(one, "json")),
    ]
    assert all(each == one for each in others)
    one.sent[3] = 99
    assert [each.sent[3] for each in others] == [3] * 7
    assert all(each != one for each in others)
    other = Traffic()
    other.sent = one.sent
    one.sent[4] = 98
    assert (other.sent[3:5], other.sent == [0, 1, 2, 99, *range(4, 24)]) == ([99, 4], True)


def test_json_has_a_list_of_all_slots() -> None:
    """Its schema says how many; what does not fit is rejected with its place."""
    traffic = Traffic(peaks=[1.5, float("inf"), *[None] * 10])
    assert to_dict(traffic, "json")["peaks"] == [1.5, "Infinity", *[None] * 10]
    adapter = TypeAdapter(Traffic)
    assert b'"sent":[0,0,' in adapter.dump_json(traffic)
    sent, peaks = (adapter.json_schema()["properties"][name] for name in ("sent", "peaks"))
    assert sent == {"type": "array", "items": {"type": "integer"}, "minItems": 24, "maxItems": 24}
    assert peaks["items"] == {"anyOf": [{"type": "number"}, {"type": "null"}]}
    turns = TypeAdapter(Listed).validate_json(b'{"turns": ["2026-03-01T12:00:00Z", null, null]}').turns
    assert [*turns] == [NOON, None, None]
    for bad in ([0] * 23, ["a"] * 24, 5, [None] * 24):
        with pytest.raises(InvalidInput, match=r"Traffic\.sent"):
            from_dict(Traffic, {"sent": bad})


def test_a_snapshot_has_the_slots() -> None:
    """So that a change of their number, names or type is one of fields."""
    (layout,) = describe_models([Traffic]).models
    found = {name: (each.type, each.edm, each.property) for name, each in layout.fields.items() if "[" in name}
    assert found["sent[9]"] == ("int", "Edm.Int64", "H09")
    assert found["peaks[11]"] == ("float", "Edm.Double", "peaks11")
    assert len(found) == 36


def test_a_snapshot_is_compared_by_slots() -> None:
    """More slots are new fields with a default; fewer, or ones with other names, are fields that readers miss."""

    def layout(length: int, name: str | None = None) -> Snapshot:
        class Hourly(Entity, table="Series", partition_key="p", row_key="hourly_{id}"):
            id: Mapped[int]
            sent: Series[int] = series(length, name=name, default=0)

        return describe_models([Hourly])

    def codes(old: Snapshot, new: Snapshot) -> set[tuple[str, str]]:
        return {(each.member, each.rule.code) for each in compare_snapshots(old, new)}

    assert codes(layout(3), layout(3, "sent{i}")) == set()
    assert codes(layout(2), layout(3)) == {("sent[2]", "field-added")}
    assert codes(layout(3), layout(2)) == {("sent[2]", "field-removed")}
    assert codes(layout(1), layout(1, "S{i}")) == {("sent[0]", "property-renamed")}


def test_what_is_declared_wrongly_is_refused() -> None:
    """When the class is made, with the remedy."""
    declared: list[tuple[Any, Any, str]] = [
        (Series[int], series(300, default=0), "sent in 300 of its 301 properties; a row holds 252.*wide=True"),
        (Series[int], series(3), r"what is not stored is None in a Series\[int \| None\] without a default"),
        (Series[int | None], series(3, default=0), r"or the default of a Series\[int\]"),
        (Series[int], series(3, default="a"), r"'a' is a str, not an int"),
        (Series[dict[str, int] | None], series(3), "a slot is a number"),
        (Series[Any], series(3), "a slot is a number"),
        (Series[int], field(), r"without its length; write series\(24\)"),
        (Mapped[int], series(3, default=0), r"is annotated Mapped\[...\]; write sent: Series\[int\]$"),
        (Mapped[Series[int]], series(3, default=0), r"is annotated Mapped\[...\]; write sent: Series\[int\]$"),
        (Series[int], series(3, name="{x}", default=0), "write the number of a slot as"),
        (Series[int], series(3, name="{{A}}", default=0), "both stored as|is not a name|property name"),
        (Series[int], series(3, name="I{i}d", default=0), r"'more' and 'sent\[1\]' are both stored as 'I1d'"),
    ]
    for annotation, declaration, problem in declared:
        with pytest.raises((ModelError, EncodeError), match=problem):
            make_model(annotation, declaration)
    with pytest.raises(ModelError, match=r"series\(0\) is rejected: give the number of slots"):
        series(0)
    shared: Any = series(3, default=0)
    make_model(Series[int], shared)
    with pytest.raises(ModelError, match="is the same series"):
        make_model(Series[int], shared)


def make_model(annotation: Any, declaration: Any) -> None:
    class Bad(Entity, table="Series2", partition_key="p", row_key="{id}"):  # pyright: ignore[reportUnusedClass]
        id: Mapped[int]
        more: Mapped[int] = field(name="I1d", default=0)
        sent: annotation = declaration  # pyright: ignore[reportInvalidTypeForm]


def test_slots_are_a_sequence() -> None:
    """They are iterated, counted and compared as lists are, and have no methods that change their number."""
    sent: Slots[int] = Traffic(sent=[5, *[0] * 22, 5]).sent
    assert (5 in sent, sent.count(5), sent.index(0), next(reversed(sent)), sum(sent)) == (True, 2, 1, 5, 10)
    assert not hasattr(sent, "append")
    with pytest.raises(TypeError, match="unhashable"):
        hash(sent)
