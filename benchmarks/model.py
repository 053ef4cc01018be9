"""
The entity that the benchmarks store: a flight, with the types that rows of real tables have.
"""

import datetime as dt
from typing import Any

from tableorm import Count, Entity, Index, IndexList, Int32, Mapped, field


class FlightFields(Entity, abstract=True):
    """What is stored of a flight, whatever is derived from it."""

    origin: Mapped[str]
    number: Mapped[int]
    carrier: Mapped[str]
    destination: Mapped[str]
    tail: Mapped[str | None] = field(default=None)
    scheduled: Mapped[dt.datetime]
    departed: Mapped[dt.datetime | None] = field(default=None)
    delay: Mapped[Int32 | None] = field(default=None)
    distance: Mapped[float]
    seats: Mapped[int]
    cancelled: Mapped[bool] = field(default=False)


class Flight(FlightFields, table="Flights", partition_key="{origin}", row_key="{number:07d}"): ...


class Airport(Entity, table="Flights", partition_key="{code}", row_key="airport"):
    code: Mapped[str]
    flights: Mapped[int] = field(default=0, maintained=True)


class DerivingFlight(FlightFields, table="Flights", kind="Flight", partition_key="{origin}", row_key="{number:07d}"):
    """The flight, with an index of which the order is another one, an index of keys alone, a list, and a count."""

    by_tail = Index(row_key="tail_{tail}_{number:07d}")
    by_carrier = Index(row_key="carrier_{carrier}_{number:07d}", include="keys")
    by_seats = IndexList(row_key="seats_{seats}")
    counted = Count(lambda: Airport.flights, code="{origin}")


_START = dt.datetime(2013, 1, 1, 5, tzinfo=dt.UTC)


def flight(origin: str, number: int) -> Flight:
    """The flight of that number; the same each time."""
    return Flight(**_values(origin, number))


def deriving_flight(origin: str, number: int) -> DerivingFlight:
    """The same flight, in a program that derives more from it."""
    return DerivingFlight(**_values(origin, number))


def _values(origin: str, number: int) -> dict[str, Any]:
    scheduled = _START + dt.timedelta(minutes=number % 500_000)
    return {
        "origin": origin,
        "number": number,
        "carrier": ("UA", "AA", "B6", "DL")[number % 4],
        "destination": ("IAH", "MIA", "BQN", "ATL", "ORD")[number % 5],
        "tail": f"N{10_000 + number % 4000}",
        "scheduled": scheduled,
        "departed": scheduled + dt.timedelta(minutes=number % 60 - 5),
        "delay": number % 60 - 5,
        "distance": float(200 + number % 2400),
        "seats": 100 + number % 200,
        "cancelled": number % 100 == 0,
    }
