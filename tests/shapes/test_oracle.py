"""Whatever is done with entities of random models, their row is what plain Python says."""

from contextlib import AsyncExitStack
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tableorm import Encryption, KeyRing, connect
from tableorm_local.server import DEVELOPMENT_ACCOUNT, DEVELOPMENT_KEY, serve
from tests.faults import QUICK
from tests.shapes.oracle import World
from tests.torture import examples

KEYS = Encryption(KeyRing({"k": bytes(32)}, wrap_with="k"))


@examples(5, 1500)
@given(st.integers(0, 47), st.integers(0, 2**32))
async def test_every_verb_leaves_the_row_that_it_ought_to(model: int, seed: int) -> None:
    """Random verbs by several entities of one row, of a random model, also where replies are lost."""
    async with connect("local::memory:", retry=QUICK, encryption=KEYS) as db:
        world = World(db, model, Random(seed))
        await db.create_tables(world.model)
        for _ in range(25):
            await world.step()
        await world.finish()


@pytest.mark.parametrize("there", ["azurite", "served"])
async def test_stores_agree(there: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """The same on the emulator, and through the server of tableorm."""
    async with AsyncExitStack() as stack:
        if there == "azurite":
            where, blobs = request.getfixturevalue("azurite").connection_string, None
        else:
            server = await stack.enter_async_context(serve(tmp_path / "served.tables", port=0))
            where = f"AccountName={DEVELOPMENT_ACCOUNT};AccountKey={DEVELOPMENT_KEY};TableEndpoint={server.url}"
            blobs = f"local:{tmp_path}/blobs.tables"
        db = await stack.enter_async_context(connect(where, retry=QUICK, encryption=KEYS, blobs=blobs))
        for model in (0, 1, 3):
            world = World(db, model, Random(model), number=1_000)
            await db.create_tables(world.model)
            for _ in range(15):
                await world.step()
