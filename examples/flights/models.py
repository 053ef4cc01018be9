"""
The tables: what is stored together, and under which keys, so that each question is a point or a short range.

Table Flights has a partition per airport and New York day: at most a few hundred rows, written in a handful of entity
group transactions. Row keys begin with the moment, and the weather observed in an hour shares the partition with the
flights of that hour, so one range query brings both, in order of time:

    EWR_20130130   0634951404000000000           Weather   visibility 0.25 miles
    EWR_20130130   0634951404000000000_B60380    Flight    6:00 to Boston
    EWR_20130130   0634951404000000000_B60507    Flight    6:00 to Fort Lauderdale

Table Reference has a partition per kind, so that one query brings all airlines, airports or planes; joins with them
are made in the client.
"""

import datetime as dt
from decimal import Decimal
from enum import StrEnum

from tableorm import Entity, Int32, Mapped, PropertyBag, field, upgrade


class Origin(StrEnum):
    """The airports of New York."""

    EWR = "EWR"
    JFK = "JFK"
    LGA = "LGA"


class Outcome(StrEnum):
    """What became of a flight."""

    FLOWN = "flown"
    DIVERTED = "diverted"
    CANCELLED = "cancelled"


class AtAirport(Entity, table="Flights", partition_key="{origin}_{day:%Y%m%d}", abstract=True):
    """What flights and weather share: where, on which day in New York, and when."""

    origin: Mapped[Origin]
    day: Mapped[dt.date]
    at: Mapped[dt.datetime]


class Flight(AtAirport, row_key="{at:ticks}_{carrier}{number:04d}", version=2):
    """
    A scheduled departure; `at` is when it was to leave.

    Delays and the time in the air are in minutes, negative delays are early; each is None where there is none: a
    cancelled flight has no delays, a diverted one no arrival delay. The distance is in miles.
    """

    carrier: Mapped[str]
    number: Mapped[int]
    destination: Mapped[str]
    tail: Mapped[str | None] = field(default=None)
    distance: Mapped[Int32]
    outcome: Mapped[Outcome]
    departure_delay: Mapped[Int32 | None] = field(default=None)
    arrival_delay: Mapped[Int32 | None] = field(default=None)
    air_time: Mapped[Int32 | None] = field(default=None)

    @property
    def departed(self) -> dt.datetime | None:
        """When it really left."""
        return None if self.departure_delay is None else self.at + dt.timedelta(minutes=self.departure_delay)


@upgrade(Flight, from_version=1)
def outcome_of_flag(bag: PropertyBag) -> PropertyBag:
    """Version 1 only knew whether a flight was cancelled; a diverted one is told by its missing arrival."""
    cancelled = bag.pop("cancelled", False)
    diverted = not cancelled and "arrival_delay" not in bag
    outcome = Outcome.CANCELLED if cancelled else Outcome.DIVERTED if diverted else Outcome.FLOWN
    bag["outcome"] = outcome.value
    return bag


class Weather(AtAirport, row_key="{at:ticks}"):
    """
    What the airport's station observed in the hour that begins `at`.

    Temperatures in degrees Fahrenheit, humidity in percent, the direction that the wind blows from in degrees, speeds
    in miles per hour, rain in inches (decimal, so that sums are exact), pressure in millibars, visibility in miles.
    """

    temperature: Mapped[float | None] = field(default=None)
    dew_point: Mapped[float | None] = field(default=None)
    humidity: Mapped[float | None] = field(default=None)
    wind_direction: Mapped[Int32 | None] = field(default=None)
    wind_speed: Mapped[float | None] = field(default=None)
    wind_gust: Mapped[float | None] = field(default=None)
    rain: Mapped[Decimal]
    pressure: Mapped[float | None] = field(default=None)
    visibility: Mapped[float]


class Airline(Entity, table="Reference", partition_key="airline", row_key="{code}"):
    """An airline and its two-letter code."""

    code: Mapped[str]
    name: Mapped[str]


class Airport(Entity, table="Reference", partition_key="airport", row_key="{code}"):
    """An airport of the United States; altitude in feet, `utc_offset` of its winter in hours."""

    code: Mapped[str]
    name: Mapped[str]
    latitude: Mapped[float]
    longitude: Mapped[float]
    altitude: Mapped[Int32]
    utc_offset: Mapped[Int32]
    summer_time: Mapped[bool | None] = field(default=None)
    time_zone: Mapped[str | None] = field(default=None)


class Plane(Entity, table="Reference", partition_key="plane", row_key="{tail}"):
    """An aircraft of the register, by tail number; the cruising speed is in miles per hour."""

    tail: Mapped[str]
    year: Mapped[Int32 | None] = field(default=None)
    type: Mapped[str]
    manufacturer: Mapped[str]
    model: Mapped[str]
    engines: Mapped[Int32]
    seats: Mapped[Int32]
    cruising_speed: Mapped[Int32 | None] = field(default=None)
    engine: Mapped[str]


class Load(Entity, table="Reference", partition_key="load", row_key="{period}"):
    """That a period, 2013-01 or 2013, was loaded; while `finished` is None it was not loaded in full."""

    period: Mapped[str]
    source_sha256: Mapped[str]
    started: Mapped[dt.datetime]
    finished: Mapped[dt.datetime | None] = field(default=None)
    rows: Mapped[int] = field(default=0)


MODELS = (Flight, Weather, Airline, Airport, Plane, Load)
