"""
Ranges of keys, against Python's own comparison of tuples of UTF-16 text.
"""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tableorm.protocol.filters import matcher
from tableorm.protocol.key_range import KeyRange

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


@given(ranges, keys, keys)
def test_all_forms_say_the_same(keys_of: KeyRange, partition: str, row: str) -> None:
    """A row is within the range and satisfies its condition, or neither."""
    pair = (units(partition), units(row))
    start, end = keys_of.start_partition, keys_of.end_partition
    expected = (start is None or pair >= (units(start), units(keys_of.start_row or ""))) and (
        end is None or pair <= (units(end), b"\xff\xff\xff" if keys_of.end_row is None else units(keys_of.end_row))
    )
    condition = keys_of.condition()
    stored: dict[str, Any] = {"PartitionKey": partition, "RowKey": row}

    assert keys_of.contains(partition, row) is expected
    assert (condition is None or matcher(condition)(stored)) is expected
    assert not (keys_of.empty and expected)


@pytest.mark.parametrize("bounds", [{"start_row": "1"}, {"end_row": "1"}, {"start_partition": "a", "end_row": ""}])
def test_a_row_key_needs_its_partition_key(bounds: dict[str, str]) -> None:
    """A RowKey means nothing as a bound without its PartitionKey."""
    with pytest.raises(ValueError, match="without a PartitionKey"):
        KeyRange(**bounds)
