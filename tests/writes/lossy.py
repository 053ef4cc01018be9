"""
Clients of a network that loses things, and rows with and without write tokens.
"""

from collections.abc import AsyncIterator

import pytest

from tableorm import Database, Entity, Mapped, PropertyBag, field
from tests.faults import QUICK, FaultyBackend, FaultyStore


class AnyRow(Entity, table="Rows", partition_key="p", abstract=True):
    id: Mapped[str] = field(default="a")
    count: Mapped[int] = field(default=0)
    owner: Mapped[str | None] = field(default=None)


class Plain(AnyRow, row_key="plain_{id}"): ...


class Known(AnyRow, row_key="known_{id}", write_token=True): ...


KEY = Known.key(id="a")
KNOWN = PropertyBag.key("Rows", "p", "known_a")


def add(entity: Plain | Known) -> None:
    entity.count += 1


@pytest.fixture
async def db(network: FaultyStore) -> AsyncIterator[Database]:
    async with Database(FaultyBackend(network), retry=QUICK) as database:
        await database.create_tables(Plain)
        yield database


@pytest.fixture
async def other(network: FaultyStore) -> AsyncIterator[Database]:
    """Another client, whose own network is sound."""
    async with Database(FaultyBackend(network.store), retry=QUICK) as database:
        yield database
