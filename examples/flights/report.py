"""
Printing: each question, its answer, and what it cost.
"""

import textwrap
import time
from collections.abc import Generator
from contextlib import contextmanager

import attrs

from tableorm import Database, ScanRefused

from .models import Flight
from .questions import (
    EST,
    best_airlines,
    departures,
    destinations,
    foggy_morning,
    one_flight,
    upgrade_old_rows,
    where_it_flew,
)

TAIL = "N14228"


async def report(db: Database) -> None:
    """Ask every question of a loaded database and print the answers."""
    for number, question in enumerate((_point, _range, _mixed_partition, _old_version, _join, _scan), 1):
        print(f"\n{number}. {question.__doc__}")
        await question(db)


@attrs.define
class Cost:
    """What a question cost, once its `with` block has ended."""

    what: str
    text: str = ""

    def __str__(self) -> str:
        return f"   {self.what}: {self.text}"


@contextmanager
def _costing(db: Database, what: str = "cost") -> Generator[Cost, None, None]:
    cost, before, started = Cost(what), db.stats.snapshot(), time.perf_counter()
    yield cost
    took, after = time.perf_counter() - started, db.stats.snapshot()
    requests, rows = after.requests - before.requests, after.rows - before.rows
    cost.text = f"{_count(requests, 'request')}, {_count(rows, 'row')} received, {took * 1000:,.1f} ms"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _wrapped(text: str) -> str:
    return textwrap.fill(text, 110, initial_indent="   ", subsequent_indent="   ")


def _name(flight: Flight) -> str:
    return f"{flight.carrier}{flight.number}"


def _late(minutes: int | None) -> str:
    if minutes is None:
        return "did not leave"
    return "on time" if minutes == 0 else f"{abs(minutes)} min {'late' if minutes > 0 else 'early'}"


async def _point(db: Database) -> None:
    """Did United 1545 leave Newark on New Year's Day? (a point query: all of the key is known)"""
    with _costing(db) as cost:
        flight = await one_flight(db)
    left = "" if flight.departed is None else f"left at {flight.departed.astimezone(EST):%H:%M}, "
    print(f"   {_name(flight)} to {flight.destination}: {flight.outcome}, {left}{_late(flight.departure_delay)}")
    print(cost)


async def _range(db: Database) -> None:
    """What was to leave Kennedy from 7:00 to 7:29 on 8 January? (a range of row keys in one partition)"""
    with _costing(db) as cost:
        flights = await departures(db)
    with _costing(db, "names of all airports") as cost_of_names:
        names = await destinations(db)
    for flight in flights:
        place = names.get(flight.destination, "(not in the list of airports)")
        print(f"   {flight.at.astimezone(EST):%H:%M}  {_name(flight):<7} {flight.destination} {place:<32} ", end="")
        print(_late(flight.departure_delay))
    print(cost, cost_of_names, sep="\n")


async def _mixed_partition(db: Database) -> None:
    """How did Newark's flights fare in the fog of 30 January? (weather and flights: one partition, one query)"""
    with _costing(db) as cost:
        hours = await foggy_morning(db)
    print("   hour    visibility      wind   flights   cancelled   mean delay")
    for hour in hours:
        wind = "-" if hour.wind is None else f"{hour.wind:.0f} mph"
        print(
            f"   {hour.at:%H:%M} {hour.visibility:>8.2f} miles {wind:>9} {hour.flights:>9} {hour.cancelled:>11}", end=""
        )
        print(f" {hour.mean_delay:>8.0f} min")
    print(cost)


async def _old_version(db: Database) -> None:
    """What if an old program still writes version 1 of Flight? (upgraded when read, stored when saved)"""
    with _costing(db) as cost:
        rows = await upgrade_old_rows(db)
    for row in rows:
        same = "as loaded" if row.read == row.loaded else "NOT as loaded"
        print(
            f"   {_name(row.read):<7} stored as {row.stored_before!r}, read as {row.read.outcome.value!r} ({same}),",
            end="",
        )
        print(f" saved as {row.stored_after!r}")
    print(cost)


async def _join(db: Database) -> None:
    """Which airlines kept to the schedule in January? (93 partitions, joined with airlines and planes in the client)"""
    with _costing(db) as cost:
        airlines = await best_airlines(db)
    print("   airline                      flights   cancelled   mean delay   age of aircraft")
    for airline in airlines:
        age = "not known" if airline.mean_age is None else f"{airline.mean_age:.0f} years"
        print(f"   {airline.name:<27} {airline.flights:>8,} {airline.cancelled:>11.1%}", end="")
        print(f" {airline.mean_delay:>8.1f} min {age:>17}")
    print(cost)


async def _scan(db: Database) -> None:
    """Where did one aircraft fly? (no key tells: refused, unless a scan of all partitions is asked for)"""
    try:
        await where_it_flew(db, TAIL, scan=False)
    except ScanRefused as refused:
        print(_wrapped(f"refused: {refused}"))
    with _costing(db, "cost with allow_scan()") as cost:
        flights = await where_it_flew(db, TAIL, scan=True)
    places = sorted({flight.destination for flight in flights})
    print(_wrapped(f"{TAIL} left New York {_count(len(flights), 'time')}, for {', '.join(places)}"))
    print(cost)
