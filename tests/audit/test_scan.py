"""
Pages of an audit: where the last partition of a page begins.
"""

import pytest

from tableorm.audit.scan import partition_start


@pytest.mark.parametrize(
    ("keys", "before", "start"),
    [
        ("aab", None, 2),
        ("abb", None, 1),
        ("abb", "a", 1),
        ("bbb", "a", 0),
        ("bbb", "b", None),
        ("bbb", None, None),
        ("abcc", "a", 2),
    ],
)
def test_the_last_partition_of_a_page(keys: str, before: str | None, start: int | None) -> None:
    """It begins behind the last row of another partition, which may be the row before the page."""
    assert partition_start([{"PartitionKey": key} for key in keys], before) == start
