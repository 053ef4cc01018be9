"""
How much of a filter goes into a request: so much that the request line stays short.
"""

import datetime as dt
from typing import Any
from urllib.parse import quote
from uuid import UUID

import pytest

from tableorm.protocol.edm import Edm, ticks_from_datetime
from tableorm.protocol.filters import Compare, Constant, Filter, Op, to_odata
from tableorm.queries.planning import planner

NOON = dt.datetime(2024, 2, 29, 12, 0, 0, 123456, tzinfo=dt.UTC)
CONSTANTS: list[tuple[Edm, Any]] = [
    (Edm.STRING, ""),
    (Edm.STRING, "a" * 50),
    (Edm.STRING, "%/+ &" * 10),
    (Edm.STRING, "\xe4\u20ac" * 10),
    (Edm.STRING, "\U0001f600" * 10),
    (Edm.INT32, -(2**31)),
    (Edm.INT64, -(2**63)),
    (Edm.DOUBLE, -1.7976931348623157e308),
    (Edm.BOOLEAN, False),
    (Edm.GUID, UUID(int=2**128 - 1)),
    (Edm.DATETIME, ticks_from_datetime(NOON)),
    (Edm.BINARY, b"\xff" * 100),
]


def room(node: Filter) -> int:
    """How many characters the planner takes it for."""
    return planner._count_characters(node)  # pyright: ignore[reportPrivateUsage]


@pytest.mark.parametrize(("kind", "value"), CONSTANTS, ids=lambda each: repr(each)[:30])
def test_a_comparison_needs_about_the_room_that_is_counted(kind: Edm, value: Any) -> None:
    """Of text nearly all, whatever characters it has; of all else not much more than the line gets."""
    node = Compare("Property", Op.EQ, Constant(kind, value))
    sent = len(quote(to_odata(node), safe=""))

    assert sent - 40 <= room(node) <= 2 * sent + 40
