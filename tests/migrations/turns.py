"""
Two programs that write the same rows in turn: one has the old model, the other the new one.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

import pytest

from tableorm import Database, DecodeError, Entity, Mapped, field
from tableorm_migrations.evolution import Difference, carry_removed, compare_snapshots
from tableorm_migrations.snapshot import describe_models


class Base(Entity, table="EvolvedItems", abstract=True, partition_key="{group}", row_key="item_{id:03d}"):
    """What the models of the programs have in common."""

    group: Mapped[str]
    id: Mapped[int]
    note: Mapped[str] = field(default="")


class Item(Base):
    """The old model of many changes."""


class Program(NamedTuple):
    """One program: its database, its model, and what it gives the fields that only it knows."""

    db: Database
    model: Any
    values: Mapping[str, Any]

    async def insert(self, number: int, **values: Any) -> Any:
        entity = self.model(group="g", id=number, **{**self.values, **values})
        await self.db.insert(entity)
        return entity

    async def get(self, number: int) -> Any:
        return await self.db.get(self.model, group="g", id=number)

    async def change(self, number: int, **values: Any) -> None:
        entity = await self.get(number)
        for name, value in values.items():
            setattr(entity, name, value)
        await self.db.save(entity)


Check = Callable[[Program, Program], Awaitable[None]]


class Case(NamedTuple):
    """
    A change of a model.

    Attributes:
        codes: How it is judged.
        old: The model as it was.
        new: The model as it is; several where others are declared beside it.
        check: Shows with two programs that it is so.
        old_values: What the old program gives its own fields.
        new_values: What the new program gives its own.
        others: Further models of the new program.
        old_others: Further models of the old program.
        between: The model of a program that ran between the old and the new one.
    """

    codes: tuple[str, ...]
    old: type[Entity]
    new: type[Entity]
    check: Check
    old_values: Mapping[str, Any] = {}
    new_values: Mapping[str, Any] = {}
    others: tuple[type[Entity], ...] = ()
    old_others: tuple[type[Entity], ...] = ()
    between: type[Entity] | None = None

    def judge(self) -> list[Difference]:
        before = describe_models([self.old, *self.old_others])
        if self.between is not None:
            before = carry_removed(before, describe_models([self.between]))
        return compare_snapshots(before, describe_models([self.new, *self.others]))


async def both_work(old: Program, new: Program) -> None:
    """Nothing is lost while both write: each reads what the other one wrote, and keeps what it does not know."""
    await old.insert(1)
    await new.change(1, **new.values)
    await new.insert(2)
    for turn, program in enumerate([old, new, old, new]):
        for number in (1, 2):
            await program.change(number, note=f"{number} {turn}")
            for each in (old, new):
                assert (await each.get(number)).note == f"{number} {turn}"
    for program, number in ((old, 1), (new, 1), (new, 2)):
        entity = await program.get(number)
        assert {name: getattr(entity, name) for name in program.values} == dict(program.values)


async def new_reads_no_old(old: Program, new: Program) -> None:
    """The new program cannot read what the old one wrote."""
    await old.insert(1)
    with pytest.raises(DecodeError):
        await new.get(1)


async def old_reads_no_new(old: Program, new: Program) -> None:
    """The old program cannot read what the new one wrote, though the new one reads what the old one wrote."""
    await old.insert(1)
    await new.get(1)
    await new.insert(2)
    with pytest.raises(DecodeError):
        await old.get(2)
