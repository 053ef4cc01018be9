"""
Messages that name what the program has called and declared, and not a request or a class that it has never heard of.
"""

import datetime as dt
import logging
from typing import Any

import pytest

from tableorm import (
    Count,
    Database,
    EncodeError,
    Entity,
    Index,
    Mapped,
    ModelError,
    NotSupported,
    TableNotFound,
    WrongKind,
    field,
)
from tests.databases import database_fixture

db = database_fixture()


class Shop(Entity, table="ShopsOfMessages", partition_key="{shop}", row_key="shop"):
    shop: Mapped[str]
    orders: Mapped[int] = field(default=0, maintained=True)


class Order(Entity, table="ShopsOfMessages", partition_key="{shop}", row_key="order_{id:04d}"):
    shop: Mapped[str]
    id: Mapped[int]

    counted = Count(lambda: Shop.orders, shop="{shop}")


class Coin(Entity, table="CoinsOfMessages", partition_key="{land}", row_key="{year:04d}"):
    land: Mapped[str]
    year: Mapped[int]


async def test_a_missing_table_of_a_counted_entity(db: Database) -> None:
    """The error is that of the insert, although the row that keeps the count is asked for first."""
    with pytest.raises(TableNotFound) as caught:
        await db.insert(Order(shop="tea", id=1))

    assert str(caught.value) == (
        "insert of Order ('tea', 'order_0001'), which reads ('tea', 'shop'): there is no table 'ShopsOfMessages'; "
        "create it with db.create_tables()"
    )


@pytest.mark.parametrize(
    ("key", "message"),
    [
        (
            {},
            r"Count\(...\) needs the key fields of the model that has the field.*: name=\"{department}\"",
        ),
        ({"id": 1}, r"Count\(..., id=1\) is rejected: a key field is given as a text, which is a template"),
    ],
)
def test_the_key_of_a_count(key: dict[str, Any], message: str) -> None:
    """The values are texts, which are templates."""
    with pytest.raises(ModelError, match=message):
        Count(lambda: Shop.orders, **key)


def test_an_index_of_a_model_with_periods() -> None:
    """The message says what `building=` decides."""
    with pytest.raises(ModelError, match=r"else building=True until the tables that had rows before it are dropped"):

        class Visit(Entity, table="VisitsOfMessages{at:%Y}", partition_key="{user}", row_key="{at:ticks}"):  # pyright: ignore[reportUnusedClass]
            user: Mapped[str]
            at: Mapped[dt.datetime]

            by_user = Index(row_key="user_{user}_{at:ticks}")


async def test_a_block_that_was_not_begun_is_a_mistake_of_the_call(db: Database) -> None:
    """It is no lack of the backend, so it is not NotSupported."""
    calls: list[Any] = [
        lambda: db.transaction().insert(Coin(land="dk", year=1)),
        lambda: db.transaction().get(Coin, land="dk", year=1),
        lambda: db.bulk().insert(Coin(land="dk", year=1)),
        lambda: anext(aiter(db.select(Coin).allow_scan().stream())),
    ]
    for call in calls:
        with pytest.raises(ModelError, match=r"use (it inside )?`async with"):
            await call()


@pytest.mark.parametrize(
    ("model", "level", "message"),
    [
        (Coin, logging.WARNING, "the worker has nothing to do for Coin"),
        (Order, logging.INFO, "the worker carries out: moves of Order"),
    ],
)
async def test_a_worker_says_what_it_is_for(
    db: Database, model: type[Entity], level: int, message: str, caplog: pytest.LogCaptureFixture
) -> None:
    """One that has nothing to do looks like one that waits."""
    caplog.set_level(logging.INFO, "tableorm.worker")
    db.worker(model)
    assert [each.levelno for each in caplog.records if each.getMessage().startswith(message)] == [level]


class Unkind(Entity, table="MistakenKinds", partition_key="{land}", row_key="coin_{year:04d}", kind=None):
    land: Mapped[str]
    year: Mapped[int]


class Kind(Entity, table="MistakenKinds", partition_key="{land}", row_key="coin_{year:04d}"):
    land: Mapped[str]
    year: Mapped[int]
    by_year = Index(row_key="year_{year:04d}")


async def test_rows_without_a_kind_and_an_index_without_a_table_of_ours(db: Database) -> None:
    """Each says what to declare, or to call; a copy under another key is offered an insert beside a move."""
    await db.create_tables("MistakenKinds")
    await db.insert(Unkind(land="dk", year=1900))
    with pytest.raises(WrongKind, match=r"it has no kind; .*, or declare the model with kind=None if its rows have no"):
        await db.get(Kind, land="dk", year=1900)
    with pytest.raises(
        NotSupported, match=r"For a new table, db\.create_tables\(Kind\) records that; for an existing one"
    ):
        await db.select(Kind.by_year).where(Kind.land == "dk").all()
    coin = await db.get(Unkind, land="dk", year=1900)
    copy = coin.evolve(year=1901)
    with pytest.raises(
        EncodeError, match=r"an upsert cannot move a row; .*another entity .*`await db\.insert\(entity\)`"
    ):
        await db.upsert(copy)
    await db.insert(copy)
    assert await db.select(Unkind).where(Unkind.land == "dk").count() == 2
