"""
Models whose partitions are spread over hash buckets, for queries that are compared with filtering in Python.
"""

import datetime as dt
from typing import Any

from hypothesis import strategies as st

from tableorm import Entity, Index, Mapped, PartitionKey, RowKey, field
from tests.queries.worlds import (
    COUNTS,
    GROUPS,
    MOMENTS,
    NUMBERS,
    TEXTS,
    World,
    comparison,
    in_key,
    key_order,
    keys,
    maybe,
    stored,
    system,
)


class Reading(
    Entity, table="SpreadReadings", partition_key="{station}_{sensor:spread(4)}", row_key="at_{at:ticks_desc}_{sensor}"
):
    """The bucket stands behind a field; an index that queries choose has the same order."""

    station: Mapped[str]
    sensor: Mapped[str]
    at: Mapped[dt.datetime]
    level: Mapped[int] = field(default=0)
    by_level = Index(row_key="level_{level}_at_{at:ticks_desc}_{sensor}")


class Crossing(Entity, table="SpreadCrossings", partition_key="{a:spread(3)}{group}-{b:spread(2)}", row_key="{a}_{b}"):
    """Two buckets, in front of a field and behind it, which no property holds."""

    group: Mapped[str]
    a: Mapped[str]
    b: Mapped[int]
    count: Mapped[int | None] = field(default=None)


class Parcel(Entity, table="SpreadParcels", partition_key="{id:spread(5)}", row_key="{kind}_{id}", abstract=True):
    """A base of kinds that have the same partitions, and one that has others."""

    id: Mapped[str]
    weight: Mapped[int | None] = field(default=None)


class Letter(Parcel, kind="letter"): ...


class Box(Parcel, kind="box"):
    height: Mapped[int] = field(default=1)


class Crate(Parcel, kind="crate", partition_key="crates-{id:spread(2)}"): ...


STATION, GROUP = in_key(Reading, "station", GROUPS, "_"), in_key(Crossing, "group", GROUPS, "-")
SPREAD_WORLDS = [
    World(
        (Reading,),
        st.builds(Reading, station=GROUPS, sensor=TEXTS, at=MOMENTS, level=COUNTS),
        (
            STATION,
            in_key(Reading, "sensor", TEXTS),
            in_key(Reading, "at", MOMENTS),
            stored(Reading, "level", COUNTS),
            system(PartitionKey, keys("a_1", "b_")),
            system(RowKey, keys("at_25", "at_2516930928000000000")),
        ),
        st.sampled_from(["a", "b"]).map(lambda value: [comparison(STATION, "==", value)]),
    ),
    World(
        (Crossing,),
        st.builds(Crossing, group=GROUPS, a=TEXTS, b=NUMBERS, count=maybe(COUNTS)),
        (
            GROUP,
            in_key(Crossing, "a", TEXTS, "_"),
            stored(Crossing, "b", NUMBERS),
            stored(Crossing, "count", COUNTS),
        ),
        st.sampled_from(["a", "b"]).map(lambda value: [comparison(GROUP, "==", value)]),
    ),
    World(
        (Parcel,),
        st.builds(Letter, id=TEXTS, weight=maybe(COUNTS))
        | st.builds(Box, id=TEXTS, weight=maybe(COUNTS), height=NUMBERS)
        | st.builds(Crate, id=TEXTS, weight=maybe(COUNTS)),
        (
            in_key(Parcel, "id", TEXTS),
            stored(Parcel, "weight", COUNTS),
            system(PartitionKey, keys("1", "crates-0")),
            system(RowKey, keys("box_a", "letter_", "crate")),
        ),
    ),
]
"""Queries of them that begin with the first term of their world never need `allow_scan`."""

MOST_BUCKETS = 5 + 5 + 2
"""Hash buckets of all kinds of a world together, at most: those of letters, boxes and crates."""


def merged(entities: list[Any]) -> list[Any]:
    """The same entities in the order in which those of several partitions are merged."""
    return sorted(entities, key=lambda entity: key_order(entity)[::-1])
