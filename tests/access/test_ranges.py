"""
Ranges in fields open exactly the rows whose fields are in the range, whatever the keys are made of.
"""

import datetime as dt
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tableorm import Entity, Mapped, ModelError
from tableorm.access.key_ranges import keys_between
from tableorm.models.schema import Schema
from tableorm.protocol.edm import utf16_key


class Note(Entity, table="Notes", partition_key="{tenant}_{topic}", row_key="n_{year:04d}_{name}"):
    tenant: Mapped[str]
    topic: Mapped[str]
    year: Mapped[int]
    name: Mapped[str]


class Log(Entity, table="Logs", partition_key="{host}", row_key="{at:ticks_desc}"):
    host: Mapped[str]
    at: Mapped[dt.datetime]


NOTE: Schema = Note.__schema__
LOG: Schema = Log.__schema__

# Characters that separate, escape, and sort the other way in UTF-16; not the last one, beyond which a prefix ends.
texts = st.text(st.sampled_from("aAz_-^ 0é\ud7ff\uffee\U00010000"), max_size=4)
notes = st.fixed_dictionaries({"tenant": texts, "topic": texts, "year": st.integers(0, 9999), "name": texts})
logs = st.fixed_dictionaries(
    {"host": texts, "at": st.datetimes(dt.datetime(2000, 1, 1), dt.datetime(2030, 1, 1), timezones=st.just(dt.UTC))}  # noqa: DTZ001
)


def is_open(schema: Schema, start: Any, end: Any, fields: dict[str, Any]) -> bool:
    return keys_between(schema, start, end).contains(*schema.make_keys(fields))


@given(st.integers(0, 4), notes, notes)
def test_a_prefix_opens_what_begins_so(count: int, chosen: dict[str, Any], other: dict[str, Any]) -> None:
    """Equal first fields in start and end open the rows that have them, and no other of the model."""
    first = {name: chosen[name] for name in NOTE.key_fields[:count]}

    assert is_open(NOTE, first, first, chosen)
    assert is_open(NOTE, first, first, other) is (first.items() <= other.items())


@given(texts, st.integers(0, 9999), st.integers(0, 9999), texts, notes)
def test_a_range_of_the_last_field(tenant: str, one: int, two: int, topic: str, other: dict[str, Any]) -> None:
    """From one value to another of a field that keeps its order, below equal first fields."""
    same = {"tenant": tenant, "topic": topic}
    low, high = sorted((one, two))
    start, end = {**same, "year": low}, {**same, "year": high}

    for year in {low, high, (low + high) // 2, other["year"]}:
        fields = {**other, **same, "year": year}
        assert is_open(NOTE, start, end, fields) is (low <= year <= high)
    assert not is_open(NOTE, start, end, other) or same.items() <= other.items()


@given(texts, logs, logs, logs)
def test_time_that_runs_backwards(host: str, one: dict[str, Any], two: dict[str, Any], other: dict[str, Any]) -> None:
    """Of descending ticks the range begins with the newest; the other way round it is rejected."""
    new, old = max(one["at"], two["at"]), min(one["at"], two["at"])
    start, end = {"host": host, "at": new}, {"host": host, "at": old}

    assert is_open(LOG, start, end, {"host": host, "at": other["at"]}) is (old <= other["at"] <= new)
    if old != new:
        try:
            keys_between(LOG, end, start)
        except ModelError as error:
            assert "the end comes before the start" in str(error)  # noqa: PT017 - hypothesis
        else:
            raise AssertionError("a range of no row")


@given(logs, logs, logs)
def test_ranges_over_partitions(one: dict[str, Any], two: dict[str, Any], other: dict[str, Any]) -> None:
    """Bounds are pairs of keys: the row bounds count in the first and in the last partition alone."""

    def order(fields: dict[str, Any]) -> tuple[bytes, float]:
        return utf16_key(fields["host"].replace("^", "^5E")), -fields["at"].timestamp()

    start, end = sorted((one, two), key=order)

    assert is_open(LOG, start, end, other) is (order(start) <= order(other) <= order(end))
