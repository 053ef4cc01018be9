"""
Wide entities on the engine, on our server and on Azurite, by tokens and in scopes, which open all rows of an entity.
"""

import datetime as dt
from contextlib import nullcontext

import pytest

from tableorm import AccessDenied, Entity, Mapped, Series, field, series
from tests.access.conftest import World


class Year(Entity, table="Directory", partition_key="{department}", row_key="year_{id:04d}", wide=100):
    department: Mapped[str] = field(default="Sales")
    id: Mapped[int]
    sent: Series[int | None] = series(365, name="D{i:03d}")


def year(number: int, **slots: int) -> Year:
    made = Year(id=number)
    for name, value in {"D0": number, "D364": number, **slots}.items():
        made.sent[int(name[1:])] = value
    return made


async def test_a_token_for_an_entity_opens_all_of_its_rows(world: World) -> None:
    """It is read, found by a query, saved with more parts and fewer, deleted and inserted; its neighbours are not."""
    for number in (1, 2, 3):
        await world.owner.insert(year(number))
    one = {"department": "Sales", "id": 2}
    token = await world.owner.grant(Year, "raud", dt.timedelta(hours=1), start=one, end=one)
    refuses = world.name == "azurite"  # tokens in transactions; there the owner does the same
    async with nullcontext(world.owner) if refuses else world.open(token) as mine:
        two = await mine.get(Year, department="Sales", id=2)
        assert two == year(2)
        two.sent[150] = 5
        await mine.save(two)
        two.sent[364] = None
        await mine.save(two)
        query = mine.select(Year).where(Year.department == "Sales", Year.id == 2, Year.sent[150] == 5)
        assert await query.all() == [two]
        with nullcontext() if refuses else pytest.raises(AccessDenied):
            await mine.get(Year, department="Sales", id=3)
        await mine.delete(two)
        await mine.insert(year(2, D200=7))
    everything = world.owner.select(Year).where(Year.department == "Sales")
    assert await everything.all() == [year(1), year(2, D200=7), year(3)]
    assert (await everything.page(2)).items == [year(1), year(2, D200=7)]
    assert await everything.count() == 3


async def test_a_scope_takes_the_parts_in(world: World) -> None:
    """A scope of a department writes and reads its entities, and grants them; those of others are denied."""
    await world.owner.insert(Year(department="HR", id=1))
    mine = world.owner.scope(department="Sales")
    await mine.insert(year(1))
    got = await mine.get(Year, id=1)
    got.sent[364] = 9
    await mine.save(got)
    assert await mine.select(Year).all() == [year(1, D364=9)]
    token = await mine.grant(Year, "r", dt.timedelta(hours=1), start={"id": 1}, end={"id": 1})
    async with world.open(token) as theirs:
        assert await theirs.get(Year, department="Sales", id=1) == got
    with pytest.raises(AccessDenied):
        await mine.get(Year, department="HR", id=1)
