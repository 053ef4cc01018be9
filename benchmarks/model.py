"""
The entity that the benchmarks store: a flight, with the types that rows of real tables have.
"""

import datetime as dt

from tableorm import Entity, Int32, Mapped, field


class Flight(Entity, table="Flights", partition_key="{origin}", row_key="{number:07d}"):
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


_START = dt.datetime(2013, 1, 1, 5, tzinfo=dt.UTC)


def flight(origin: str, number: int) -> Flight:
    """The flight of that number; the same each time."""
    scheduled = _START + dt.timedelta(minutes=number % 500_000)
    return Flight(
        origin=origin,
        number=number,
        carrier=("UA", "AA", "B6", "DL")[number % 4],
        destination=("IAH", "MIA", "BQN", "ATL", "ORD")[number % 5],
        tail=f"N{10_000 + number % 4000}",
        scheduled=scheduled,
        departed=scheduled + dt.timedelta(minutes=number % 60 - 5),
        delay=number % 60 - 5,
        distance=float(200 + number % 2400),
        seats=100 + number % 200,
        cancelled=number % 100 == 0,
    )
