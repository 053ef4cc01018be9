"""
Targets: what a planner knows of the kinds that a query asks for.
"""

import datetime as dt
from typing import Any

import pytest

from tableorm import Count, Entity, Index, Mapped, PropertyBag, RowKey, field
from tableorm.models.kinds import KindSet
from tableorm.queries.planning.index_following import conditions_on_entries
from tableorm.queries.planning.target import QueryTarget


class Crew(Entity, table="TargetedShips", partition_key="{port}", row_key="crew_{ship}"):
    port: Mapped[str]
    ship: Mapped[str]
    size: Mapped[int] = field(default=0, maintained=True)


class Sailor(Entity, table="TargetedShips", partition_key="{port}", row_key="sailor_{id}"):
    port: Mapped[str]
    id: Mapped[str]
    ship: Mapped[str | None] = field(default=None)

    by_ship = Index(row_key="ship_{ship}_{id}")
    by_id = Index(row_key="id_{id}", include="keys")
    anywhere = Index(partition_key="{ship}", row_key="any_{port}_{id}", consistency="eventual")
    building = Index(row_key="new_{id}", building=True)
    counted = Count(Crew.size, port="{port}", ship="{ship}")


class Buoy(Entity, table="TargetedBuoys", partition_key="{port}", row_key="{id}", kind=None):
    port: Mapped[str]
    id: Mapped[str]


class Pass(Entity, table="TargetedPasses", partition_key="{port}", row_key="{id}"):
    port: Mapped[str]
    id: Mapped[str]
    until: Mapped[dt.datetime | None] = field(default=None, expiry=True)


class Diver(Entity, table="TargetedDivers", partition_key="{port}", row_key="diver_{id}"):
    port: Mapped[str]
    id: Mapped[str]
    name: Mapped[str]

    by_name = Index(row_key="name_{name:lower}_{id}", include="keys")


Expected = tuple[str, list[str], list[str]]


CASES: list[tuple[list[Any], Expected]] = [
    ([Sailor], ("Sailor", ["id", "port"], ["Sailor.building", "Sailor.by_id", "Sailor.by_ship"])),
    ([Sailor, PropertyBag], ("Sailor, PropertyBag", [], [])),
    ([Sailor, Crew], ("Sailor, Crew", [], [])),
    ([Sailor.by_ship], ("Sailor.by_ship", ["id", "port", "ship"], [])),
]


@pytest.mark.parametrize(("kinds", "expected"), CASES, ids=str)
def test_only_a_single_kind_has_key_fields_and_indexes(kinds: list[Any], expected: Expected) -> None:
    """Of several kinds no field is that of all; no index answers for rows of any kind, nor one kept up later."""
    target = QueryTarget(KindSet.of(kinds))
    keys, indexes = sorted(target.key_fields.values()), sorted(each.label for each in target.indexes)

    assert (target.name, keys, indexes) == expected


def test_some_rows_are_no_results() -> None:
    """Index entries whose primaries say no more, expired rows, and those of other kinds, which no property tells."""
    single: list[Any] = [Sailor, Buoy, Pass, Sailor.by_ship, Sailor.by_id, Sailor.anywhere]
    targets = [QueryTarget(KindSet.of([each])) for each in single]
    any_kind = [QueryTarget(KindSet.of([each, PropertyBag])) for each in (Sailor, Buoy)]

    assert [bool(each.drops_rows) for each in targets] == [False, True, True, False, True, True]
    assert [bool(each.drops_rows) for each in any_kind] == [False, False]
    assert [each.fetches_primaries for each in targets] == [False, False, False, False, True, True]
    assert [each.asks_addresses for each in targets] == [False, False, False, False, False, True]
    assert [len(each.undecided) for each in targets] == [0, 0, 0, 1, 1, 1]


def test_entries_are_asked_what_they_hold_beside_their_keys() -> None:
    """An entry that is written with its entity is as new as that, so that it can be asked for both at once."""
    either = (RowKey == "x") | (Diver.name == "Li")

    assert conditions_on_entries(QueryTarget(KindSet.of([Diver.by_name])), [either]) == (either,)
