"""
Ranges of keys, against Python's own comparison of tuples of UTF-16 text.
"""

from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tableorm.protocol.filters import matcher, to_odata
from tableorm.protocol.key_range import Interval, KeyInterval, KeyRange
from tableorm.stores import Bounds

# Few keys, so that bounds are met; U+E000 sorts after the surrogates of the other one.
keys = st.sampled_from(["", "a", "ab", "b", "\ue000", "\U0001f600"])


def make_range(start: str | None, start_row: str | None, end: str | None, end_row: str | None) -> KeyRange:
    """A range whose RowKeys count only with their PartitionKeys."""
    return KeyRange(
        start_partition=start,
        start_row=start_row if start is not None else None,
        end_partition=end,
        end_row=end_row if end is not None else None,
    )


ranges = st.builds(make_range, *[st.none() | keys] * 4)


def units(key: str) -> bytes:
    return key.encode("utf-16-be")


def within(interval: Interval, key: str) -> bool:
    lower, upper = interval.lower, interval.upper
    above = lower is None or units(key) > units(lower) or (not interval.lower_open and key == lower)
    below = upper is None or units(key) < units(upper) or (not interval.upper_open and key == upper)
    return above and below


@given(ranges, keys, keys)
def test_all_forms_say_the_same(keys_of: KeyRange, partition: str, row: str) -> None:
    """A row is within the range, in one of its intervals, and satisfies its condition, or none of the three."""
    pair = (units(partition), units(row))
    start, end = keys_of.start_partition, keys_of.end_partition
    expected = (start is None or pair >= (units(start), units(keys_of.start_row or ""))) and (
        end is None or pair <= (units(end), b"\xff\xff\xff" if keys_of.end_row is None else units(keys_of.end_row))
    )
    found = [each for each in keys_of.intervals() if within(each.partition, partition) and within(each.row, row)]
    condition = keys_of.condition()
    stored: dict[str, Any] = {"PartitionKey": partition, "RowKey": row}

    assert keys_of.contains(partition, row) is expected
    assert len(found) == expected
    assert (condition is None or matcher(condition)(stored)) is expected
    assert not (keys_of.empty and expected)


@given(ranges, keys, keys, keys, keys)
def test_intervals_are_in_order(keys_of: KeyRange, partition: str, row: str, partition2: str, row2: str) -> None:
    """Rows of an earlier interval come before those of a later one, so that queries one after another stay sorted."""
    rows = sorted([(units(partition), units(row), partition, row), (units(partition2), units(row2), partition2, row2)])
    places = [
        number
        for _, _, *pair in rows
        for number, each in enumerate(keys_of.intervals())
        if within(each.partition, pair[0]) and within(each.row, pair[1])
    ]

    assert places == sorted(places)


def test_intervals() -> None:
    """A range within a partition is one interval; one over several has the ends of the outer ones apart."""
    everything = KeyRange()
    partitions = KeyRange(start_partition="a", end_partition="c")
    from_the_first_row = KeyRange(start_partition="a", start_row="", end_partition="c")
    within_one = KeyRange(start_partition="a", start_row="1", end_partition="a", end_row="5")
    across = KeyRange(start_partition="a", start_row="1", end_partition="c", end_row="5")

    assert everything.intervals() == (KeyInterval(),)
    assert partitions.intervals() == (KeyInterval(Interval("a", "c")),)
    assert from_the_first_row.intervals() == partitions.intervals()
    assert within_one.intervals() == (KeyInterval(Interval("a", "a"), Interval("1", "5")),)
    assert across.intervals() == (
        KeyInterval(Interval("a", "a"), Interval("1")),
        KeyInterval(Interval("a", "c", lower_open=True, upper_open=True)),
        KeyInterval(Interval("c", "c"), Interval(None, "5")),
    )
    assert KeyRange(start_partition="b", end_partition="a").intervals() == ()
    assert KeyRange(start_partition="a", start_row="2", end_partition="a", end_row="1").intervals() == ()


def test_an_interval_is_a_store_s_bounds() -> None:
    """An interval has the fields of a query's bounds, so that it makes one."""
    interval = Interval("a", "b", lower_open=True)

    assert Bounds(**attrs.asdict(interval)) == Bounds("a", "b", lower_open=True)


def test_conditions() -> None:
    """A range without a bound has no condition; the others are written as the service reads them."""
    across = KeyRange(start_partition="a", start_row="1", end_partition="c")
    condition = across.condition()

    assert KeyRange().condition() is None
    assert condition is not None
    assert to_odata(condition) == (
        "(PartitionKey gt 'a' or PartitionKey eq 'a' and RowKey ge '1') and PartitionKey le 'c'"
    )


@pytest.mark.parametrize("bounds", [{"start_row": "1"}, {"end_row": "1"}, {"start_partition": "a", "end_row": ""}])
def test_a_row_key_needs_its_partition_key(bounds: dict[str, str]) -> None:
    """A RowKey means nothing as a bound without its PartitionKey."""
    with pytest.raises(ValueError, match="without a PartitionKey"):
        KeyRange(**bounds)
