"""
Tracebacks of reads, and of methods that do many things: they are short, and show the functions of the program.
"""

import re
import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tableorm import (
    Database,
    DecodeError,
    Entity,
    Mapped,
    ModelError,
    NotSupported,
    TableNotFound,
    TableOrmError,
    Unavailable,
    connect,
)


class Unmade(Entity, table="Unmade", partition_key="{group}", row_key="x"):
    group: Mapped[str]


class Texts(Entity, table="Values", partition_key="{group}", row_key="x", kind="Value"):
    group: Mapped[str]
    value: Mapped[str]


class Numbers(Entity, table="Values", partition_key="{group}", row_key="x", kind="Value"):
    group: Mapped[str]
    value: Mapped[int]


async def compare(db: Database) -> None:
    async with connect("local::memory:") as other:
        await db.compare_rows(other, "Unmade")


async def copy(db: Database) -> None:
    async with connect("local::memory:") as other:
        await db.copy_rows(other, "Unmade")


async def get_closed(db: Database) -> None:
    await db.close()
    await db.get(Texts, group="g")


async def drop_of_absent_server(_: Database) -> None:
    async with connect("http://127.0.0.1:1/devstoreaccount1") as absent:
        await absent.drop_table("Values")


async def open_another_file(_: Database) -> None:
    async with connect(f"local:{__file__}"):
        raise AssertionError


REFUSED: list[tuple[type[TableOrmError], Callable[[Database], Awaitable[object]], str]] = [
    (TableNotFound, lambda db: db.export_rows("Unmade", Path("never.jsonl")), "export_rows: there is no table"),
    (TableNotFound, lambda db: db.audit(Unmade), "audit: there is no table"),
    (TableNotFound, compare, "compare_rows: there is no table"),
    (TableNotFound, copy, "copy_rows: there is no table"),
    (DecodeError, lambda db: db.get(Numbers, group="g"), "Numbers.value"),
    (DecodeError, lambda db: db.select(Numbers).where(Numbers.group == "g").all(), "Numbers.value"),
    (NotSupported, get_closed, "the database is closed"),
    (Unavailable, drop_of_absent_server, "Nothing answers at"),
    (NotSupported, open_another_file, "is not a database"),
]


@pytest.mark.parametrize(("error", "call", "said"), REFUSED)
async def test_the_traceback_of_a_refusal_is_short(
    error: type[TableOrmError], call: Callable[[Database], Awaitable[object]], said: str
) -> None:
    """It shows one error, and at most five frames of tableorm and of backends."""
    async with connect("local::memory:") as db:
        await db.create_tables(Texts)
        await db.insert(Texts(group="g", value="a"))
        with pytest.raises(error, match=said) as caught:
            await call(db)

    frames = [frame for frame, _ in traceback.walk_tb(caught.value.__traceback__)]
    # Before Python 3.12 a comprehension has a frame of its own.
    modules = [frame.f_globals["__name__"] for frame in frames if frame.f_code.co_name != "<listcomp>"]
    assert sum(name.startswith("tableorm") for name in modules) <= 5
    text = "".join(traceback.format_exception(caught.value))
    assert len(re.findall("^[a-z_.]+[A-Za-z]+: ", text, re.MULTILINE)) == 1


async def test_functions_of_the_program_stay_in_a_traceback() -> None:
    """An error that a function of the program raises shows that function, and where it has called tableorm."""

    def report(_: object) -> None:
        refuse()

    def refuse() -> None:
        raise ModelError("enough")

    async with connect("local::memory:") as db:
        await db.create_tables(Texts)
        await db.insert(Texts(group="g", value="a"))
        with pytest.raises(ModelError, match="enough") as caught:
            await db.audit(Texts, on_progress=report)

    names = [frame.f_code.co_name for frame, _ in traceback.walk_tb(caught.value.__traceback__)]
    assert names[-2:] == ["report", "refuse"]
    assert len(names) <= 6
