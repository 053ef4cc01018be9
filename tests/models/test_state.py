"""
What an entity remembers of its row: all of it, in little memory.
"""

import copy
import datetime as dt
import pickle
import tracemalloc
from typing import Any
from uuid import UUID

import msgspec
import pytest

from tableorm import Entity, Int32, Mapped, field
from tableorm.models.state import state_of
from tableorm.stores import Row


class Worker(Entity, table="Workers", partition_key="{department}", row_key="empid_{id:06d}", write_token=True):
    department: Mapped[str]
    id: Mapped[int]
    name: Mapped[str]
    level: Mapped[Int32] = field(default=1)
    age: Mapped[int | None] = field(default=None)
    salary: Mapped[float] = field(default=0.0)
    hired: Mapped[dt.datetime | None] = field(default=None)
    active: Mapped[bool] = field(default=True)
    badge: Mapped[UUID | None] = field(default=None)
    photo: Mapped[bytes | None] = field(default=None)
    tags: Mapped[list[str]] = field(factory=list)


def worker_row(**members: Any) -> Row:
    """A row as a store gives it; None leaves a member out."""
    row = {
        "odata.etag": "W/\"datetime'2026-01-01T00%3A00%3A00.1234567Z'\"",
        "Timestamp": "2026-01-01T00:00:00.1234567Z",
        "PartitionKey": "Sales",
        "RowKey": "empid_000007",
        "EntityType": "Worker",
        "name": "Ken",
        "level": 3,
        "age": "41",
        "age@odata.type": "Edm.Int64",
        "salary": 10.5,
        "hired": "2020-01-01T00:00:00.1234567Z",
        "hired@odata.type": "Edm.DateTime",
        "active": False,
        "badge": "00000000-0000-0000-0000-000000000001",
        "badge@odata.type": "Edm.Guid",
        "photo": "AAE=",
        "photo@odata.type": "Edm.Binary",
        "tags": '[ "a" ]',
    } | members
    return {name: value for name, value in row.items() if value is not None}


NOTHING: Row = {"age": None, "age@odata.type": None}
PLAIN: list[Row] = [
    {},
    NOTHING,
    {"level": None, "salary": None, "active": None, "tags": None},
    {"photo": None, "photo@odata.type": None},
    {"_w": "abc,def", "_ix": "{}"},
]
"""Rows that have nothing but what the model declares and writes make."""
ODD: list[Row] = [
    {"Unknown": 1},
    {**NOTHING, "Unknown": "as many members as without it"},
    {"name@odata.type": "Edm.String"},
    {"age": 41, "age@odata.type": None},
    {"salary": "NaN", "salary@odata.type": "Edm.Double"},
    {"salary@odata.type": "Edm.Double"},
    {"EntityType": "Worker:1"},
    {"Timestamp": None},
    {"odata.etag": None},
    {"Timestamp": None, "Unknown": 1},
]
"""Rows that are spelled otherwise, or have more or less."""


@pytest.mark.parametrize("members", [*PLAIN, *ODD])
def test_copies_and_pickles_remember_the_row(members: Row) -> None:
    """So do copies of an entity of which somebody has changed the unknown properties."""
    row = worker_row(**members)
    entity = Worker.__schema__.decode(row.copy())
    entity.extra["More"] = 1
    for each in (copy.copy(entity), copy.deepcopy(entity), pickle.loads(pickle.dumps(entity)), entity.evolve(name="x")):
        assert state_of(each).row == row
        assert each.extra["More"] == 1
        each.extra["More"] = 2
    assert entity.extra["More"] == 1


def test_what_an_entity_takes() -> None:
    """With its values and all that it remembers of its row, less than the row alone as a dictionary."""
    text = msgspec.json.encode(worker_row())
    decode, count = Worker.__schema__.decode, 500

    def measure(make: Any) -> float:
        tracemalloc.start()
        kept = [make(msgspec.json.decode(text)) for _ in range(count)]
        taken = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        return taken / len(kept)

    rows, entities = measure(Row), measure(decode)
    assert entities < rows
