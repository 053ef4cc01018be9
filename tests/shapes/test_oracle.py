"""Whatever is done with entities that have fields of several properties, their row is what plain Python says."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from tableorm import connect
from tests.azurite import Azurite
from tests.shapes.oracle import TABLE, World


@given(st.integers(0, 11), st.integers(0, 2**32))
async def test_every_verb_leaves_the_row_that_it_ought_to(model: int, seed: int) -> None:
    """Random verbs by several entities of one row, of a random model."""
    async with connect("local::memory:") as db:
        await db.create_tables(TABLE)
        world = World(db, model, Random(seed))
        for _ in range(25):
            await world.step()


async def test_azurite_agrees(azurite: Azurite) -> None:
    """The same on the emulator."""
    async with connect(azurite.connection_string) as db:
        await db.create_tables(TABLE)
        for model in range(4):
            world = World(db, model, Random(model), number=1_000)
            for _ in range(25):
                await world.step()
