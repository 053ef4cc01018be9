"""
Flights, which two models know: by where they start, and by the tail number of their plane.
"""

import datetime as dt
from collections.abc import Sequence
from typing import Any

from tableorm import Database, Entity, Index, Int32, Mapped, field

DAY = dt.date(2024, 1, 1)
ORIGINS = ("EWR", "JFK", "LGA")
ROW_KEY = "{day:%Y-%m-%d}_{number:06d}"


class Flight(Entity, abstract=True, partition_key="{origin}", row_key=ROW_KEY):
    origin: Mapped[str]
    day: Mapped[dt.date]
    number: Mapped[int]
    tail: Mapped[str | None] = field(default=None)
    seats: Mapped[Int32] = field(default=100)


class TailFlight(Entity, abstract=True, partition_key="{tail}", row_key=ROW_KEY):
    tail: Mapped[str]
    day: Mapped[dt.date]
    number: Mapped[int]
    origin: Mapped[str]
    seats: Mapped[Int32] = field(default=100)
    by_origin = Index(row_key="origin_{origin}_" + ROW_KEY)


def other_fields(flight: Flight | TailFlight) -> dict[str, Any]:
    """Return the fields of a flight in the other model. Where one has no tail, the tail of the other is "unknown"."""
    tail = {None: "unknown", "unknown": None}.get(flight.tail, flight.tail)
    return {"tail": tail, **{name: getattr(flight, name) for name in ("day", "number", "origin", "seats")}}


def old_keys(tail: str, **others: Any) -> list[dict[str, Any]]:
    """Return the keys that a flight may have by where it starts."""
    return [{"origin": origin, **others} for origin in ORIGINS]


def flights(model: type[Flight], count: int) -> list[Flight]:
    return [
        model(
            origin=ORIGINS[number % 3],
            day=DAY + dt.timedelta(days=number // 7),
            number=number,
            tail=None if number % 11 == 0 else f"N{number % 5}",
            seats=number,
        )
        for number in range(count)
    ]


async def fill(db: Database, model: type[Flight], count: int) -> None:
    """Insert flights into a new table."""
    await db.create_tables(model)
    async with db.bulk(errors="report") as bulk:
        for each in flights(model, count):
            await bulk.insert(each)
    assert not bulk.report.failures


async def rows_of(db: Database, table: str, kind: str = "") -> dict[tuple[str, str], dict[str, Any]]:
    """Return what rows say, those of a kind or all, but for their keys and what store and mapper note of them."""
    notes = {"odata.etag", "Timestamp", "PartitionKey", "RowKey", "EntityType", "_w", "_ix", "_mv"}
    return {
        (bag.partition_key, bag.row_key): {name: bag.row[name] for name in bag.row if name not in notes}
        async for bag in db.select_raw(table).allow_scan()
        if bag.get("EntityType") == kind or not kind
    }


def expected_rows(given: Sequence[Flight]) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the rows that flights become by their tails, written out by hand."""
    return {
        (each.tail or "unknown", f"{each.day:%Y-%m-%d}_{each.number:06d}"): {"origin": each.origin, "seats": each.seats}
        for each in given
    }
