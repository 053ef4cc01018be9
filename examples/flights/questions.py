"""
The questions: each a few lines against the tables, and an answer that is a plain value.
"""

import asyncio
import datetime as dt
from collections import defaultdict
from collections.abc import Sequence
from itertools import product
from statistics import fmean

import attrs

from tableorm import Database, Entity, Int32, Mapped, PropertyBag, field

from .models import Airline, Airport, Flight, Origin, Outcome, Plane, Weather

EST = dt.timezone(dt.timedelta(hours=-5), "EST")
"""Clocks in New York in January, the month that is asked about; this way no time zone database is needed."""

JANUARY_DAYS = tuple(dt.date(2013, 1, day) for day in range(1, 32))

READERS = 4


async def one_flight(db: Database) -> Flight:
    """Did United 1545 leave Newark on New Year's Day? All of its key is known: a point query."""
    return await db.get(
        Flight,
        origin=Origin.EWR,
        day=dt.date(2013, 1, 1),
        at=dt.datetime(2013, 1, 1, 5, 15, tzinfo=EST),
        carrier="UA",
        number=1545,
    )


async def departures(db: Database) -> list[Flight]:
    """What was to leave Kennedy from 7:00 to 7:29 on 8 January? One partition, and a range of its row keys."""
    start = dt.datetime(2013, 1, 8, 7, 0, tzinfo=EST)
    return (
        await db.select(Flight)
        .where(
            Flight.origin == Origin.JFK,
            Flight.day == start.date(),
            Flight.at.between(start, start + dt.timedelta(minutes=29)),
        )
        .all()
    )


async def destinations(db: Database) -> dict[str, str]:
    """Names of all airports by code: a reference table is small enough to fetch whole."""
    return {airport.code: airport.name async for airport in db.select(Airport)}


@attrs.frozen
class FoggyHour:
    """
    An hour of the foggy morning.

    Args:
        at: When it begins.
        visibility: In miles.
        wind: In miles per hour; None if it was not measured.
        flights: That were to leave in this hour.
        cancelled: How many of them did not.
        mean_delay: Of the others, in minutes.
    """

    at: dt.datetime
    visibility: float
    wind: float | None
    flights: int
    cancelled: int
    mean_delay: float


async def foggy_morning(db: Database) -> list[FoggyHour]:
    """
    How did Newark's flights fare in the fog of 30 January, from 6 to 13 o'clock?

    Weather and flights share the partition, in order of time: one range query brings both, and the observation of an
    hour comes just before the flights of that hour.
    """
    start = dt.datetime(2013, 1, 30, 6, 0, tzinfo=EST)
    hours: list[tuple[Weather, list[Flight]]] = []
    query = db.select(Flight, Weather).where(
        Flight.origin == Origin.EWR,
        Flight.day == start.date(),
        Flight.at >= start,
        Flight.at < start + dt.timedelta(hours=7),
    )
    async for row in query:
        if isinstance(row, Weather):
            hours.append((row, []))
        else:
            hours[-1][1].append(row)
    return [_foggy_hour(observed, flights) for observed, flights in hours]


def _foggy_hour(observed: Weather, flights: Sequence[Flight]) -> FoggyHour:
    return FoggyHour(
        at=observed.at.astimezone(EST),
        visibility=observed.visibility,
        wind=observed.wind_speed,
        flights=len(flights),
        cancelled=sum(flight.outcome is Outcome.CANCELLED for flight in flights),
        mean_delay=fmean(flight.departure_delay for flight in flights if flight.departure_delay is not None),
    )


class FlightOfOldProgram(
    Entity,
    table="Flights",
    partition_key="{origin}_{day:%Y%m%d}",
    row_key="{at:ticks}_{carrier}{number:04d}",
    kind="Flight",
):
    """Version 1 of `Flight`, as a program had it that was never updated."""

    origin: Mapped[Origin]
    day: Mapped[dt.date]
    at: Mapped[dt.datetime]
    carrier: Mapped[str]
    number: Mapped[int]
    destination: Mapped[str]
    tail: Mapped[str | None] = field(default=None)
    distance: Mapped[Int32]
    cancelled: Mapped[bool]
    departure_delay: Mapped[Int32 | None] = field(default=None)
    arrival_delay: Mapped[Int32 | None] = field(default=None)
    air_time: Mapped[Int32 | None] = field(default=None)

    @classmethod
    def of(cls, flight: Flight) -> "FlightOfOldProgram":
        """What the old program would have stored for a flight."""
        return cls(
            origin=flight.origin,
            day=flight.day,
            at=flight.at,
            carrier=flight.carrier,
            number=flight.number,
            destination=flight.destination,
            tail=flight.tail,
            distance=flight.distance,
            cancelled=flight.outcome is Outcome.CANCELLED,
            departure_delay=flight.departure_delay,
            arrival_delay=flight.arrival_delay,
            air_time=flight.air_time,
        )


@attrs.frozen
class Upgraded:
    """
    One flight that an old program wrote.

    Args:
        loaded: As it was loaded.
        stored_before: Kind and version in the table after the old program had written it.
        read: As the model reads it now.
        stored_after: Kind and version in the table after it was saved.
    """

    loaded: Flight
    stored_before: str
    read: Flight
    stored_after: str


async def upgrade_old_rows(db: Database) -> list[Upgraded]:
    """
    What if an old program still writes version 1? Three flights are put back in its form, one of each outcome, then
    read and saved. Reading upgrades in memory; the next write stores the new version.
    """
    day = await db.select(Flight).where(Flight.origin == Origin.LGA, Flight.day == dt.date(2013, 1, 30)).all()
    chosen = [next(flight for flight in day if flight.outcome is outcome) for outcome in Outcome]
    done: list[Upgraded] = []
    for flight in chosen:
        await db.delete(flight)
        await db.insert(FlightOfOldProgram.of(flight))
        before = await _stored_kind(db, flight)
        read = await db.get(flight.key)
        await db.save(read)
        done.append(Upgraded(flight, before, read, await _stored_kind(db, flight)))
    return done


async def _stored_kind(db: Database, flight: Flight) -> str:
    key = flight.key
    bag = await db.get(PropertyBag.key(key.table, key.partition_key, key.row_key))
    return str(bag["EntityType"])


@attrs.frozen
class AirlineMonth:
    """
    How an airline did in January.

    Args:
        name: Of the airline.
        flights: Scheduled.
        cancelled: Share of them, from 0 to 1.
        mean_delay: At departure, in minutes.
        mean_age: Of the aircraft of those flights, in years; None if the register has less than half of them.
    """

    name: str
    flights: int
    cancelled: float
    mean_delay: float
    mean_age: float | None


@attrs.define
class _Tally:
    flights: int = 0
    cancelled: int = 0
    delays: list[int] = attrs.Factory(list[int])
    ages: list[int] = attrs.Factory(list[int])


async def best_airlines(db: Database) -> list[AirlineMonth]:
    """
    Which airlines kept to the schedule in January, and how old were their aircraft? The most punctual first.

    Airlines and planes take a query each, and the join is a dictionary. The 93 partitions are shared out among a few
    tasks that count as they read: more tasks would not be faster, and would keep others waiting for their turn.
    """
    airlines, planes = await asyncio.gather(db.select(Airline).all(), db.select(Plane).all())
    built = {plane.tail: plane.year for plane in planes}
    tallies: defaultdict[str, _Tally] = defaultdict(_Tally)
    partitions = product(Origin, JANUARY_DAYS)

    async def read() -> None:
        for origin, day in partitions:  # each goes to one of the tasks
            async for flight in db.select(Flight).where(Flight.origin == origin, Flight.day == day):
                tally = tallies[flight.carrier]
                tally.flights += 1
                tally.cancelled += flight.outcome is Outcome.CANCELLED
                if flight.departure_delay is not None:
                    tally.delays.append(flight.departure_delay)
                year = None if flight.tail is None else built.get(flight.tail)
                if year is not None:
                    tally.ages.append(flight.day.year - year)

    await asyncio.gather(*(read() for _ in range(READERS)))
    names = {airline.code: airline.name for airline in airlines}
    return sorted(
        (_airline_month(names[code], tally) for code, tally in tallies.items()), key=lambda month: month.mean_delay
    )


def _airline_month(name: str, tally: _Tally) -> AirlineMonth:
    return AirlineMonth(
        name=name,
        flights=tally.flights,
        cancelled=tally.cancelled / tally.flights,
        mean_delay=fmean(tally.delays),
        mean_age=fmean(tally.ages) if 2 * len(tally.ages) >= tally.flights else None,
    )


async def where_it_flew(db: Database, tail: str, *, scan: bool) -> list[Flight]:
    """
    Where did one aircraft fly? No key knows that, so every partition would have to be read.

    Args:
        db: The database.
        tail: Number of the aircraft.
        scan: Whether to ask for that; without, the query is rejected.

    Raises:
        ScanRefused: `scan` is False.
    """
    query = db.select(Flight).where(Flight.tail == tail)
    return await (query.allow_scan() if scan else query).all()
