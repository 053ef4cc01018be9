"""
Validators of counts and sums: a write that would break one is rejected, whatever verb it is, and nothing of it is done.

The oracle adds up a dictionary of movements.
"""

from contextlib import nullcontext
from typing import Any, cast

import pytest
from attrs import validators
from hypothesis import example, given
from hypothesis import strategies as st

from tableorm import (
    Count,
    Database,
    Edm,
    Embedded,
    EncodeError,
    Entity,
    Int32,
    Mapped,
    ModelError,
    PropertyBag,
    Sum,
    TransactionFailed,
    field,
)
from tests.databases import memory_database
from tests.torture import examples
from tests.writes.verbs import write

MOST = 4


class Stock(Entity, table="Goods", partition_key="{shop}", row_key="stock"):
    shop: Mapped[str]
    note: Mapped[str] = field(default="")
    level: Mapped[int] = field(default=0, maintained=True, validator=validators.ge(0))
    moves: Mapped[Int32] = field(default=0, maintained=True, validator=validators.le(MOST))


class Movement(Entity, table="Goods", partition_key="{shop}", row_key="move_{id:02d}"):
    shop: Mapped[str] = field(default="a")
    id: Mapped[int]
    amount: Mapped[int]

    summed = Sum("amount", lambda: Stock.level, create=True, shop="{shop}")
    counted = Count(lambda: Stock.moves, create=True, shop="{shop}")


Amounts = dict[int, int]
"""The movements that are stored: the amount of each, by id."""


def is_allowed(amounts: Amounts) -> bool:
    return sum(amounts.values()) >= 0 and len(amounts) <= MOST


FORCED: dict[str, dict[str, Any]] = {
    "replace": {"if_match": "*"},
    "merge": {"only": ["amount"], "if_match": "*"},
    "delete": {"if_match": "*"},
}


async def write_movement(db: Database, verb: str, number: int, amount: int) -> None:
    """Write or delete a movement by a verb. What has to be there is there."""
    movement = Movement(id=number, amount=amount)
    if verb == "modify":
        await db.modify(movement.key, lambda read: read.evolve(amount=amount))
        return
    if verb == "save":
        movement = await db.get(movement.key)
        movement.amount = amount
    await write(db, verb, movement, **FORCED.get(verb, {}))


INSERTS, UPDATES = ("insert", "upsert", "upsert over"), ("upsert", "replace", "merge", "save", "modify", "delete")
STEP = st.tuples(st.integers(0, 5), st.sampled_from([-9, -3, -1, 0, 2, 5]), st.integers(0, 99))


def apply(amounts: Amounts, number: int, amount: int, choice: int) -> tuple[str, Amounts]:
    """Return a verb that fits what is there, and what is there after it."""
    verbs = UPDATES if number in amounts else INSERTS
    verb = verbs[choice % len(verbs)]
    after = {name: value for name, value in amounts.items() if name != number}
    return verb, after if verb == "delete" else {**after, number: amount}


async def check(db: Database, amounts: Amounts) -> None:
    """What is stored is what the oracle has, and an audit finds nothing."""
    found = await db.select(Movement).where(Movement.shop == "a").all()
    assert {each.id: each.amount for each in found} == amounts
    stock = await db.get_or_none(Stock, shop="a")
    if stock is None:
        assert amounts == {}
        return
    assert (stock.level, stock.moves) == (sum(amounts.values()), len(amounts))
    report = await db.audit(Stock, Movement)
    assert [str(each) for each in report.findings] == []


@examples(4, 500)
@given(steps=st.lists(STEP, max_size=8))
@example(steps=[(0, 5, 0), (1, -3, 1), (0, 2, 3), (0, 0, 5)])
async def test_each_verb_is_refused_where_it_breaks_a_bound(steps: list[tuple[int, int, int]]) -> None:
    """Alone: the error names the field and the value, and neither the entity nor its sum is written."""
    async with memory_database(Stock) as db:
        amounts: Amounts = {}
        for number, amount, choice in steps:
            verb, after = apply(amounts, number, amount, choice)
            if is_allowed(after):
                await write_movement(db, verb, number, amount)
                amounts = after
                continue
            with pytest.raises(EncodeError, match=r"Stock\.(level|moves): -?\d+ breaks the validator") as refused:
                await write_movement(db, verb, number, amount)
            assert (refused.value.model, refused.value.value in (sum(after.values()), len(after))) == ("Stock", True)
        await check(db, amounts)


PAIRS = st.tuples(st.integers(0, 5), st.sampled_from([-9, -3, -1, 0, 2, 5]))


@examples(4, 500)
@given(blocks=st.lists(st.lists(PAIRS, min_size=1, max_size=5), max_size=4))
@example(blocks=[[(0, -3), (1, 5)], [(2, -3), (3, -1)], [(2, -1), (3, -1)]])
async def test_a_transaction_is_judged_by_its_end(blocks: list[list[tuple[int, int]]]) -> None:
    """All of its writes together must not break a bound; otherwise none of them is done."""
    async with memory_database(Stock) as db:
        amounts: Amounts = {}
        for block in blocks:
            after = {**amounts, **dict(block)}
            expected = nullcontext() if is_allowed(after) else pytest.raises(TransactionFailed, match="breaks")
            with expected as refused:
                async with db.transaction() as tx:
                    for number, amount in dict(block).items():
                        tx.upsert(Movement(id=number, amount=amount))
            if refused is None:
                amounts = after
            else:
                assert isinstance(refused.value.__cause__, EncodeError)
        await check(db, amounts)


@examples(4, 500)
@given(before=st.integers(0, 6), given=st.lists(st.sampled_from([-3, -1, 2]), max_size=7))
@example(before=3, given=[-1, -3, 2])
async def test_a_bulk_fails_only_what_breaks_a_bound(before: int, given: list[int]) -> None:
    """The others are written, and the report says of each of those that fail why."""
    async with memory_database(Stock) as db:
        await db.insert(Movement(id=99, amount=before))
        async with db.bulk(errors="report") as bulk:
            for number, amount in enumerate(given):
                await bulk.insert(Movement(id=number, amount=amount))
        refused = [each for each in range(len(given)) if await db.get_or_none(Movement, shop="a", id=each) is None]
        assert bulk.report.failures == len(refused)
        assert all(isinstance(each.error, EncodeError) for each in bulk.report.failed)
        done = {99: before, **{number: amount for number, amount in enumerate(given) if number not in refused}}
        assert is_allowed(done)
        for number in refused:
            assert not is_allowed({**done, number: given[number]}) or given[number] < 0
        if is_allowed({99: before, **dict(enumerate(given))}):
            assert refused == []
        await check(db, done)


@pytest.fixture(name="goods")
async def _goods() -> Any:
    async with memory_database(Stock) as db:
        await db.insert(Movement(id=1, amount=5))
        yield db


async def test_the_refusal_says_what_where_and_by_what(goods: Database) -> None:
    """The entity, the field, both values, and the write."""
    with pytest.raises(EncodeError) as refused:
        await goods.insert(Movement(id=2, amount=-7))

    assert str(refused.value) == (
        "Stock.level: -2 breaks the validator of the field ('level' must be >= 0: -2): insert of Movement "
        "('a', 'move_02') would change the Stock 'stock' of this partition from 5 to that"
    )
    assert isinstance(refused.value.__cause__, ValueError)


async def break_the_level(db: Database, level: int) -> None:
    """As a program did that declares no bound."""
    bag = await db.get(PropertyBag.key("Goods", "a", "stock"))
    bag.set("level", level, Edm.INT64)
    await db.merge(bag, only=["level"])


async def test_a_value_that_is_broken_already_locks_nothing(goods: Database) -> None:
    """The entity is saved, and movements may bring the value nearer to the default, and not farther away."""
    await break_the_level(goods, -5)
    stock = await goods.get(Stock, shop="a")
    stock.note = "x"
    await goods.save(stock)
    await goods.insert(Movement(id=2, amount=3))
    with pytest.raises(EncodeError, match="from -2 to that"):
        await goods.insert(Movement(id=3, amount=-1))

    found = await goods.get(Stock, shop="a")
    assert (found.level, found.note) == (-2, "x")


async def test_an_audit_repairs_whatever_the_bound_says(goods: Database) -> None:
    """The entities are there: their sum is what it is."""
    await break_the_level(goods, 9)
    await goods.insert(Movement(id=2, amount=-7))  # 2, by what is stored
    report = await goods.audit(Stock, Movement, repair=True)

    assert (len(report.findings), (await goods.get(Stock, shop="a")).level) == (1, -2)
    await goods.delete(Movement, shop="a", id=2, if_match="*")


async def test_moves_to_another_partition(goods: Database) -> None:
    """A move is rejected before it is begun, at the partition that it goes to and at the one that it leaves."""
    await goods.insert(Movement(id=2, amount=-5))
    with pytest.raises(EncodeError, match="'stock' of this partition from 0 to that"):
        await goods.move(await goods.get(Movement, shop="a", id=2), shop="b")
    with pytest.raises(EncodeError, match="'stock' of this partition from 0 to that"):
        await goods.move(await goods.get(Movement, shop="a", id=1), shop="b")
    await check(goods, {1: 5, 2: -5})
    assert await goods.select(Movement).where(Movement.shop == "b").all() == []

    await goods.insert(Movement(shop="b", id=9, amount=5))
    await goods.move(await goods.get(Movement, shop="a", id=2), shop="b")
    await check(goods, {1: 5})
    assert (await goods.get(Stock, shop="b")).level == 0


async def test_a_sum_outgrows_an_int32_that_another_program_stored(goods: Database) -> None:
    """It stays an Int32 while it fits, as its field is declared int; a field of Int32 refuses what does not fit."""
    bag = await goods.get(PropertyBag.key("Goods", "a", "stock"))
    bag.set("level", 5, Edm.INT32)
    await goods.merge(bag, only=["level"])
    await goods.insert(Movement(id=2, amount=1))
    small = await goods.get(PropertyBag.key("Goods", "a", "stock"))
    await goods.insert(Movement(id=3, amount=2**31))
    large = await goods.get(PropertyBag.key("Goods", "a", "stock"))

    assert (small["level"], small.type_of("level")) == (6, Edm.INT32)
    assert (large["level"], large.type_of("level")) == (2**31 + 6, Edm.INT64)


def test_a_copy_has_no_validator() -> None:
    """A copy takes any value that its source has: the validator belongs there."""
    with pytest.raises(ModelError, match=r"'boss' has a validator.*give the validator to the field that is copied"):

        class Team(Entity, table="Goods", partition_key="{shop}", row_key="team"):  # pyright: ignore[reportUnusedClass]
            shop: Mapped[str]
            boss: Mapped[str | None] = field(
                default=None, maintained=True, validator=validators.optional(validators.max_len(3))
            )

            led = Embedded(lambda: Movement, {"boss": "shop"}, shop="{shop}", id="1")


def test_a_count_is_a_whole_number_and_never_missing() -> None:
    """An optional field is rejected: nobody could tell none from zero."""
    with pytest.raises(ModelError, match="is not a maintained field of whole numbers"):

        class Hall(Entity, table="Halls", partition_key="{hall}", row_key="hall"):
            hall: Mapped[str]
            seats: Mapped[int | None] = field(default=0, maintained=True)

        class Seat(Entity, table="Halls", partition_key="{hall}", row_key="seat_{id}"):  # pyright: ignore[reportUnusedClass]
            hall: Mapped[str]
            id: Mapped[str]

            counted = Count(lambda: cast(Any, Hall.seats), hall="{hall}")
