"""
Flights of a year from three airports, of the same shape as those of New York in 2013, made from a seed: by origin and
day, and as a re-key makes them, by aircraft.
"""

import datetime as dt
import random
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tableorm import Database, Entity, Int32, Mapped, MovedFrom, field

ALL = 336_776
"""How many there were in that year."""

_ORIGINS = ("EWR", "JFK", "LGA")
_CARRIERS = ("UA", "B6", "EV", "DL", "AA", "MQ", "US", "9E", "WN", "VX", "FL", "AS", "F9", "YV", "HA", "OO")
_TAILS = 4_043
_WITHOUT_TAIL = 2_512
_FIRST_DAY = dt.date(2013, 1, 1)


class DayFlight(
    Entity,
    table="DayFlights",
    tracked=True,
    partition_key="{origin}_{day:%Y-%m-%d}",
    row_key="{minute:04d}_{carrier}_{flight:04d}",
):
    origin: Mapped[str]
    day: Mapped[dt.date]
    minute: Mapped[int]
    carrier: Mapped[str]
    flight: Mapped[int]
    tail: Mapped[str | None] = field(default=None)
    distance: Mapped[Int32] = field(default=0)
    delay: Mapped[Int32] = field(default=0)


def to_tail(flight: DayFlight) -> "TailFlight":
    """Return the flight under its newer key."""
    return TailFlight(**_values_of(flight, flight.tail or "unknown"))


def _to_day(flight: "TailFlight") -> DayFlight:
    return DayFlight(**_values_of(flight, None if flight.tail == "unknown" else flight.tail))


def _values_of(flight: Any, tail: str | None) -> dict[str, Any]:
    return {name: getattr(flight, name) for name in DayFlight.__schema__.fields} | {"tail": tail}


def _day_keys(tail: str, **others: Any) -> Iterable[Mapping[str, Any]]:
    del tail
    return [{**others, "origin": origin} for origin in _ORIGINS]


class TailFlight(
    Entity,
    table="TailFlights",
    tracked=True,
    moved_from=MovedFrom(DayFlight, to_new=to_tail, to_old=_to_day, old_keys=_day_keys),
    partition_key="{tail}",
    row_key="{day:%Y-%m-%d}_{minute:04d}_{carrier}_{flight:04d}",
):
    tail: Mapped[str]
    day: Mapped[dt.date]
    minute: Mapped[int]
    carrier: Mapped[str]
    flight: Mapped[int]
    origin: Mapped[str]
    distance: Mapped[Int32] = field(default=0)
    delay: Mapped[Int32] = field(default=0)


def make_flights(count: int, seed: int = 2013, *, some_aircraft: bool = False) -> Iterator[DayFlight]:
    """
    Return some flights of the year, in the order of their departures.

    Args:
        count: How many.
        seed: Of chance.
        some_aircraft: Return the flights of some aircraft, each of which has as many as in the whole year; otherwise
            the first flights of the year.
    """
    chance = random.Random(seed)
    without = _WITHOUT_TAIL / ALL
    of, tails = (count, max(1, _TAILS * count // ALL)) if some_aircraft else (ALL, _TAILS)
    for number in range(count):
        day, share = divmod(number * 365, of)
        tail = int(tails * chance.random() ** 1.6)  # some aircraft fly more often than others
        carrier = _CARRIERS[int(len(_CARRIERS) * chance.random() ** 2.5)]
        yield DayFlight(
            origin=_ORIGINS[int(chance.random() * 3)],
            day=_FIRST_DAY + dt.timedelta(days=day),
            minute=5 * 60 + share * 18 * 60 // of,
            carrier=carrier,
            flight=number % 9_000 + 1,
            tail=None if chance.random() < without else f"N{10_000 + tail}",
            distance=chance.randrange(100, 5000),
        )


async def fill_flights(db: Database, count: int, *, some_aircraft: bool = False) -> None:
    """Insert flights by origin and day, as `make_flights` makes them."""
    await db.create_tables(DayFlight, TailFlight)
    async with db.bulk(errors="report") as bulk:
        for each in make_flights(count, some_aircraft=some_aircraft):
            await bulk.insert(each)
    assert not bulk.report.failures, bulk.report
