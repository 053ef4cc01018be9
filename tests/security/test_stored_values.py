"""
Values that one client has stored under a key, and that break the writes of another one which go there.
"""

from decimal import Decimal
from typing import Any

import pytest

from tableorm import Database, Entity, Index, Mapped, TableOrmError, field
from tableorm.stores import Verb
from tests.security.world import write_row


class Offer(Entity, table="Offers", partition_key="{country}", row_key="offer_{tenant}_{id}"):
    country: Mapped[str]
    tenant: Mapped[str]
    id: Mapped[int]
    price: Mapped[Decimal | None] = field(default=None)
    details: Mapped[dict[str, Any] | None] = field(default=None)
    name: Mapped[str | None] = field(default=None)

    by_name = Index(row_key="name_{name}_{tenant}_{id}")


KEY: dict[str, Any] = {"country": "SE", "tenant": "acme", "id": 9}

STORED: list[dict[str, Any]] = [
    {"price": "sNaN"},
    {"details": "[" * 15_000 + "]" * 15_000},
    {"details": '{"a":' * 4_000 + "1" + "}" * 4_000},
]


def fresh() -> Offer:
    return Offer(**KEY, price=Decimal(1), details={"a": 1}, name="new")


@pytest.fixture
async def db(db: Database) -> Database:
    await db.create_tables(Offer)
    return db


async def plant(db: Database, stored: dict[str, Any]) -> None:
    await write_row(db, "Offers", "SE", "offer_acme_9", Verb.INSERT_OR_REPLACE, EntityType="Offer", **stored)


@pytest.mark.parametrize("stored", STORED, ids=["a signaling NaN", "lists in lists", "objects in objects"])
async def test_others_are_written_in_bulk(db: Database, stored: dict[str, Any]) -> None:
    """An entity that is upserted over it is written, or fails alone; all others of the bulk are written."""
    await plant(db, stored)
    async with db.bulk() as bulk:
        for number in range(1, 5):
            await bulk.upsert(Offer(country="SE", tenant="other", id=number, name="x"))
        await bulk.upsert(fresh())
    assert bulk.report.written >= 4


@pytest.mark.parametrize("stored", STORED, ids=["a signaling NaN", "lists in lists", "objects in objects"])
async def test_a_write_fails_with_an_error_of_this_package(db: Database, stored: dict[str, Any]) -> None:
    """Whichever verb writes over it."""
    for verb in ("upsert", "replace", "merge", "transaction"):
        await plant(db, stored)
        try:
            if verb == "transaction":
                async with db.transaction() as tx:
                    tx.upsert(fresh())
            elif verb == "upsert":
                await db.upsert(fresh())
            else:
                await getattr(db, verb)(fresh(), if_match="*")
        except TableOrmError:
            pass
