"""
From lines of CSV to entities. `NA` becomes None; moments become aware datetimes.

Moments are made of `time_hour`, the scheduled hour in UTC: no time zone database is needed and summer time cannot go
wrong. The clock times in the files (`dep_time`, up to 2400 and past midnight) are not used: the scheduled time and the
delay give the same moment in every row. Arrivals are clock times at the destination; only their delay is kept.
"""

import datetime as dt
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import groupby

from tableorm import Entity

from .models import Airline, Airport, Flight, Origin, Outcome, Plane, Weather
from .source import Source

BATCH = 100
"""Entities in one transaction. Source: Table service REST, "Performing entity group transactions"."""

Line = Mapping[str, str]
Partition = tuple[str, str, str]
Group = tuple[Callable[[Line], Entity], Sequence[Line]]


def _text(text: str) -> str | None:
    return None if text == "NA" else text


def _int(text: str) -> int | None:
    return None if text == "NA" else int(text)


def _float(text: str) -> float | None:
    return None if text == "NA" else float(text)


def _day(line: Line) -> dt.date:
    return dt.date(int(line["year"]), int(line["month"]), int(line["day"]))


def flight(line: Line) -> Flight:
    """A line of flights.csv."""
    departure_delay, arrival_delay = _int(line["dep_delay"]), _int(line["arr_delay"])
    outcome = Outcome.FLOWN
    if departure_delay is None:
        outcome = Outcome.CANCELLED
    elif arrival_delay is None:
        outcome = Outcome.DIVERTED
    return Flight(
        origin=Origin(line["origin"]),
        day=_day(line),
        at=dt.datetime.fromisoformat(line["time_hour"]) + dt.timedelta(minutes=int(line["minute"])),
        carrier=line["carrier"],
        number=int(line["flight"]),
        destination=line["dest"],
        tail=_text(line["tailnum"]),
        distance=int(line["distance"]),
        outcome=outcome,
        departure_delay=departure_delay,
        arrival_delay=arrival_delay,
        air_time=_int(line["air_time"]),
    )


def weather(line: Line) -> Weather:
    """A line of weather.csv."""
    return Weather(
        origin=Origin(line["origin"]),
        day=_day(line),
        at=dt.datetime.fromisoformat(line["time_hour"]),
        temperature=_float(line["temp"]),
        dew_point=_float(line["dewp"]),
        humidity=_float(line["humid"]),
        wind_direction=_int(line["wind_dir"]),
        wind_speed=_float(line["wind_speed"]),
        wind_gust=_float(line["wind_gust"]),
        rain=Decimal(line["precip"]),
        pressure=_float(line["pressure"]),
        visibility=float(line["visib"]),
    )


def airline(line: Line) -> Airline:
    """A line of airlines.csv."""
    return Airline(code=line["carrier"], name=line["name"])


def airport(line: Line) -> Airport:
    """A line of airports.csv; its `dst` is A where clocks change, N where not, U where nobody noted it."""
    return Airport(
        code=line["faa"],
        name=line["name"],
        latitude=float(line["lat"]),
        longitude=float(line["lon"]),
        altitude=int(line["alt"]),
        utc_offset=int(line["tz"]),
        summer_time={"A": True, "N": False, "U": None}[line["dst"]],
        time_zone=_text(line["tzone"]),
    )


def plane(line: Line) -> Plane:
    """A line of planes.csv."""
    return Plane(
        tail=line["tailnum"],
        year=_int(line["year"]),
        type=line["type"],
        manufacturer=line["manufacturer"],
        model=line["model"],
        engines=int(line["engines"]),
        seats=int(line["seats"]),
        cruising_speed=_int(line["speed"]),
        engine=line["engine"],
    )


class Batches:
    """
    All entities of a source, in lists of at most `BATCH` that share a partition. Several tasks of one event loop may
    iterate over it together: each batch goes to one of them.

    Making it reads four of the five files, so make it in a thread; after that each step takes a millisecond or so.
    """

    def __init__(self, source: Source) -> None:
        self.total = sum(source.count(file) for file in source.texts)
        self._weather: defaultdict[Partition, list[Line]] = defaultdict(list)
        for line in source.rows("weather.csv"):
            self._weather[_partition(line)].append(line)
        makers = ((airline, "airlines.csv"), (airport, "airports.csv"), (plane, "planes.csv"))
        self._reference: list[Group] = [(make, list(source.rows(file))) for make, file in makers]
        self._steps = self._all(source)

    def __iter__(self) -> Iterator[list[Entity]]:
        return self._steps

    def _all(self, source: Source) -> Iterator[list[Entity]]:
        for group in self._reference:
            yield from _split([group])
        # flights.csv is in order of days, so a day at a time is held, not the year.
        for _, lines in groupby(source.rows("flights.csv"), key=_day):
            flights: defaultdict[Partition, list[Line]] = defaultdict(list)
            for line in lines:
                flights[_partition(line)].append(line)
            for partition, departures in flights.items():
                yield from _split([(weather, self._weather.pop(partition, [])), (flight, departures)])
        for observations in self._weather.values():
            yield from _split([(weather, observations)])


def _partition(line: Line) -> Partition:
    return line["origin"], line["month"], line["day"]


def _split(groups: list[Group]) -> Iterator[list[Entity]]:
    todo = [(make, line) for make, lines in groups for line in lines]
    for start in range(0, len(todo), BATCH):
        yield [make(line) for make, line in todo[start : start + BATCH]]
