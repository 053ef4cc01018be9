"""
Calls of `modify` for one row that come together: few requests, and the same results as one after the other.
"""

import asyncio
import datetime as dt
import operator
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextvars import ContextVar
from functools import partial
from typing import Any

import pytest
from attrs import validators
from hypothesis import example, given
from hypothesis import strategies as st

from tableorm import (
    AccessDenied,
    Database,
    Entity,
    EntityNotFound,
    Index,
    Int32,
    Key,
    LimitExceeded,
    Mapped,
    OutcomeUnknown,
    PreconditionFailed,
    PropertyBag,
    RetryPolicy,
    UniqueViolation,
    field,
    upgrade,
)
from tableorm.connection.connection import connection_of
from tableorm.protocol.codes import Code, Fault
from tableorm.stores import Operation, Row, RowQuery, StoreRequest, Verb
from tests.database.between import Between
from tests.database.conftest import also_in_file
from tests.torture import examples


class Noted(Entity, table="Tallies", partition_key="{team}", abstract=True):
    team: Mapped[str] = field(default="a")
    name: Mapped[str]
    count: Mapped[int] = field(default=0, validator=validators.lt(5_000))
    note: Mapped[str | None] = field(default=None)
    small: Mapped[Int32] = field(default=0)
    rate: Mapped[float] = field(default=0.0)
    at: Mapped[dt.datetime | None] = field(default=None)


class Bare(Noted, row_key="bare_{name}"):
    """Of its fields none is changed in place, or filled in."""


class Kept(Noted, row_key="kept_{name}"):
    total: Mapped[int] = field(default=0, maintained=True)


class Tally(Noted, row_key="tally_{name}"):
    tags: Mapped[list[str]] = field(factory=list)
    writes: Mapped[int | None] = field(default=None, on_write=lambda: 1)

    by_count = Index(row_key="count_{count:08d}_{name}")
    by_small = Index(row_key="small_{small:03d}_{name}")
    by_note = Index(row_key="note_{note}", unique=True)


class Crowd(Entity, table="Crowds", partition_key="{team}", row_key="crowd_{name}"):
    """Of many elements, each of which has a row with the note."""

    team: Mapped[str]
    name: Mapped[str]
    note: Mapped[str] = field(default="")
    numbers: Mapped[list[int]] = field(factory=list)
    others: Mapped[list[int]] = field(factory=list)

    by_number = Index(row_key="number_{numbers:each}_{name}", include=["note"])
    by_other = Index(row_key="other_{others:each}_{name}", include="keys")


KEY = Tally.key(team="a", name="t")


def one_more(tally: Noted) -> None:
    tally.count += 1


@pytest.fixture
async def tallies(db: Database) -> AsyncIterator[Database]:
    await db.create_tables(Tally)
    await db.insert(Tally(name="t"))
    yield db
    connection = connection_of(db)
    assert not connection.lines
    assert not connection.turns.lines


@also_in_file
async def test_calls_that_come_together_send_few_requests(tallies: Database) -> None:
    """400 calls at once: at most 20 requests, and each result is that of its own call."""
    before = tallies.stats.requests
    results = await asyncio.gather(*(tallies.modify(KEY, one_more) for _ in range(400)))

    assert tallies.stats.requests - before <= 20
    assert [each.count for each in results] == list(range(1, 401))
    stored = await tallies.get(KEY)
    assert (stored.count, stored) == (400, results[-1])
    assert (await tallies.audit(Tally)).found == 0


async def test_large_rows_with_indexes_are_written_together(tallies: Database) -> None:
    """Where a transaction surely has room for what one call and its entries are."""
    await tallies.modify(KEY, lambda tally: setattr(tally, "tags", ["x" * 20_000]))
    before = tallies.stats.requests
    await asyncio.gather(*(tallies.modify(KEY, one_more) for _ in range(100)))
    assert tallies.stats.requests - before <= 20


async def test_each_result_is_an_entity_of_its_own(tallies: Database) -> None:
    """What is assigned to one, or done to a value of one, does not show in another."""
    tags: list[str] = ["first"]

    def tag(tally: Tally) -> None:
        tally.tags = tags if not tally.tags else [*tally.tags, "more"]

    results = await asyncio.gather(*(tallies.modify(KEY, tag) for _ in range(5)))
    tags.append("later")
    results[2].tags.append("mine")
    results[2].note = "mine"

    assert results[3].tags == ["first", "more", "more", "more"]
    assert [each.note for each in results] == [None, None, "mine", None, None]


async def test_what_a_function_keeps_is_not_what_the_next_one_gets(tallies: Database) -> None:
    """Whoever changes an entity when its function is done changes neither the row, nor the entities of others."""
    await tallies.insert(Bare(name="t"))
    entities: list[Bare] = []

    def keep(bare: Bare) -> None:
        for each in entities:
            each.note = "late"
        entities.append(bare)
        bare.count += 1

    results = await asyncio.gather(*(tallies.modify(Bare, keep, team="a", name="t") for _ in range(4)))
    assert [each.count for each in results] == [1, 2, 3, 4]
    assert (results[-1].note, await tallies.get(Bare, team="a", name="t")) == (None, results[-1])


async def test_entities_that_expire_are_not_there_for_the_next_call(tallies: Database) -> None:
    """Whether their calls come together or not."""

    class Ticket(Entity, table="Tallies", partition_key="{team}", row_key="ticket_{name}"):
        team: Mapped[str]
        name: Mapped[str]
        until: Mapped[dt.datetime | None] = field(default=None, expiry=True)

    await tallies.insert(Ticket(team="a", name="t"))

    def expire(ticket: Ticket) -> None:
        ticket.until = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)

    calls = (tallies.modify(Ticket, expire, team="a", name="t") for _ in range(4))
    first, second, *rest = await asyncio.gather(*calls, return_exceptions=True)
    assert isinstance(first, Ticket)
    assert {type(each) for each in (second, *rest)} == {EntityNotFound}


async def test_what_an_upgrade_removes_is_gone() -> None:
    """Whatever the functions of the calls that are made together change."""

    class Paper(Entity, table="Tallies", partition_key="{team}", row_key="paper", version=2):
        team: Mapped[str]
        pages: Mapped[int]
        copies: Mapped[int] = field(default=0)

    @upgrade(Paper, from_version=1)
    def sheets_to_pages(bag: PropertyBag) -> PropertyBag:
        bag["pages"] = 2 * bag.pop("sheets")
        return bag

    async with Database(Failing()) as db:
        await db.create_tables(Paper)
        await db.insert(PropertyBag("Tallies", "a", "paper", {"EntityType": "Paper", "sheets": 3}))

        def fail(paper: Paper) -> None:
            raise ZeroDivisionError(paper)

        def copy(paper: Paper) -> None:
            paper.copies += 1

        calls = (db.modify(Paper, function, team="a") for function in (fail, copy, copy))
        _, *papers = await asyncio.gather(*calls, return_exceptions=True)
        assert papers == [Paper(team="a", pages=6, copies=1), Paper(team="a", pages=6, copies=2)]
        stored = await db.get(Paper, team="a")
        assert (stored, dict(stored.extra)) == (papers[1], {})


async def test_by_the_key_of_a_base(tallies: Database) -> None:
    """Each call gets the entity of the class that it is of."""

    class Form(Entity, table="Tallies", partition_key="{team}", abstract=True):
        team: Mapped[str]
        copies: Mapped[int] = field(default=0)

    class Order(Form, row_key="order"):
        pass

    def print_one(form: Form) -> None:
        form.copies += 1

    await tallies.insert(Order(team="a"))
    key = Key(Form, "Tallies", "a", "order")
    results = await asyncio.gather(*(tallies.modify(key, print_one) for _ in range(4)))
    assert results == [Order(team="a", copies=number) for number in range(1, 5)]


async def test_only_the_newest_result_can_be_saved(tallies: Database) -> None:
    """Whoever has an older one has not seen what came after; also where the functions change nothing in the end."""

    def flip(tally: Tally) -> None:
        tally.note = None if tally.note else "x"

    for function in (one_more, flip):
        results = await asyncio.gather(*(tallies.modify(KEY, function) for _ in range(5)))
        for old in results[:-1]:
            old.small += 1
            with pytest.raises(PreconditionFailed):
                await tallies.save(old)
            with pytest.raises(PreconditionFailed):
                await tallies.delete(old)
        assert results[-1].etag == (await tallies.get(KEY)).etag
        results[-1].small += 1
        await tallies.save(results[-1])


class Failing(Between):
    """A store that waits as a network does, and whose writes fail, or lose a race, from some time on."""

    fault: Fault | None = None
    races = 0
    writes = 0

    async def send(self, request: StoreRequest) -> Any:
        await asyncio.sleep(0)
        if request.operations:
            self.writes += 1
            if self.fault is not None:
                raise self.fault
            if self.races:
                self.races -= 1
                keys = {name: request.operations[0].row[name] for name in ("PartitionKey", "RowKey")}
                operation = Operation(Verb.MERGE, {**keys, "small": self.races}, "*")
                await self.inner.tables.write(request.table, operation)
        return await super().send(request)


_OF_WRITES = ("odata.etag", "Timestamp", "_w")

KINDS = [
    *(
        "add",
        "note",
        "forget",
        "nothing",
        "raise",
        "wrong",
        "late",
        "far",
        "huge",
        "copy",
        "back",
        "tag",
        "look",
        "rate",
        "at",
    ),
    *("extra", "key", "total", "anew", "again"),
]
ZONES = [dt.UTC, dt.timezone(dt.timedelta(hours=2))]

Deed = tuple[str, int]
DEEDS = st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 3)), max_size=14)


def function_of(deed: Deed) -> Callable[[Any], Any]:
    kind, number = deed

    def change(noted: Any) -> Any:
        match kind:
            case "add":
                noted.count += number
            case "note":
                noted.note = f"n{number}"
            case "forget":
                noted.note = None
            case "raise":
                noted.count = 77
                raise ZeroDivisionError(number)
            case "wrong":
                noted.small = 2**40
            case "late":
                noted.count = 5_000
            case "far":
                noted.small = 1_000
            case "huge":
                noted.note = "x" * 40_000
            case "copy":
                return noted.evolve(small=number)
            case "back":
                noted.count = noted.small = 0
                noted.note = noted.at = None
                noted.rate = 0.0
            case "tag" if isinstance(noted, Tally):
                noted.tags.append(str(number))
            case "look":  # what is read, to the type
                raise LookupError(repr((noted, dict(noted.extra), noted.key)))
            case "rate":
                noted.rate = [1, 1.0, 0.0, -0.0][number]
            case "at":
                noted.at = dt.datetime(2026, 1, 1, 12, number // 2, tzinfo=ZONES[number % 2])
            case "extra":
                noted.extra["more"] = number
            case "key":
                noted.name = "other"
            case "total" if isinstance(noted, Kept):
                noted.total = number
            case "anew":
                return type(noted)(team="a", name="t", count=number)
            case "again" if noted.note:
                noted.note = noted.note[:1] + noted.note[1:]
            case _:
                pass
        return None

    return change


async def act(db: Database, model: type[Noted], deed: Deed, *, create: bool) -> object:
    new = model(team="a", name="t") if create else None
    try:
        result = await db.modify(model, function_of(deed), team="a", name="t", create=new)
    except (ZeroDivisionError, ValueError, LimitExceeded, LookupError, UniqueViolation) as error:
        return type(error), str(error)
    return result.evolve(), dict(result.extra)


async def run_all(
    calls: Iterable[Callable[[Database], Awaitable[object]]], model: type[Entity], *there: Entity, together: bool
) -> tuple[list[object], list[Row]]:
    """Return what calls give, made together or in turn, and the rows that they leave."""
    async with Database(Failing()) as db:
        await db.create_tables(model)
        for each in there:
            await db.insert(each)
        acts = [call(db) for call in calls]
        found = list(await asyncio.gather(*acts)) if together else [await each for each in acts]
        rows = (await db.store.query(model.__schema__.table_name(), RowQuery())).rows
        return found, [{n: v for n, v in row.items() if n not in _OF_WRITES} for row in rows]


@examples(16, 1500)
@example(model=Bare, deeds=[("raise", 0), ("raise", 1), ("add", 1), ("add", 2)], there=False, create=True)
@example(model=Tally, deeds=[("add", 1), ("far", 0), ("copy", 1)], there=True, create=False)
@example(model=Kept, deeds=[("add", 1), ("total", 1), ("total", 0)], there=False, create=True)
@given(model=st.sampled_from([Bare, Kept, Tally]), deeds=DEEDS, there=st.booleans(), create=st.booleans())
async def test_results_and_errors_are_as_one_after_the_other(
    model: type[Noted], deeds: list[Deed], there: bool, create: bool
) -> None:
    """Whatever the functions do: what raises, or cannot be stored, is left out; the rest has its effect."""
    calls = [partial(act, model=model, deed=deed, create=create) for deed in deeds]
    rows = [Tally(name="other", note="n1"), *([model(team="a", name="t")] if there else [])]

    assert await run_all(calls, Tally, *rows, together=True) == await run_all(calls, Tally, *rows, together=False)


@examples(12, 400)
@example(deeds=[("numbers", 0, 0, 0), ("numbers", 0, 120, 0), ("numbers", 0, 0, 0)], there=True)
@example(deeds=[("numbers", 0, 50, 0), ("numbers", 50, 110, 0), ("numbers", 0, 50, 0)], there=True)
@example(deeds=[("numbers", 0, 0, 0), ("numbers", 0, 80, 30_000), ("numbers", 0, 1, 0)], there=True)
@given(
    deeds=st.lists(
        st.tuples(
            st.sampled_from(["numbers", "others", "neither"]),
            st.integers(0, 60),
            st.sampled_from([0, 3, 60, 97, 98, 120]),
            st.sampled_from([0, 1, 30_000]),
        ),
        max_size=7,
    ),
    there=st.booleans(),
)
async def test_a_write_that_is_too_large_is_refused_though_the_next_would_undo_it(
    deeds: list[tuple[str, int, int, int]], there: bool
) -> None:
    """The calls get what they would get one after the other: results, and errors of a transaction's limits."""

    async def grow(db: Database, deed: tuple[str, int, int, int]) -> object:
        name, first, last, letters = deed

        def change(crowd: Crowd) -> None:
            crowd.note = "x" * letters
            if name != "neither":
                setattr(crowd, name, list(range(first, last)))

        try:
            return (await db.modify(Crowd, change, team="a", name="t")).evolve()
        except (LimitExceeded, EntityNotFound) as error:
            return type(error), str(error)

    async def compared(*, together: bool) -> object:
        calls = [partial(grow, deed=deed) for deed in deeds]
        found, rows = await run_all(calls, Crowd, *([Crowd(team="a", name="t")] if there else []), together=together)
        # A manifest without entries stays empty only where it was written before.
        return found, [{n: v for n, v in row.items() if v != "{}"} for row in rows]

    assert await compared(together=True) == await compared(together=False)


@also_in_file
async def test_whoever_is_cancelled_others_go_on(tallies: Database) -> None:
    """Also if it is the one whose call is being made; what was told done is done, once."""
    for round_ in range(12):
        before = (await tallies.get(KEY)).count
        tasks = [asyncio.create_task(tallies.modify(KEY, one_more)) for _ in range(12)]
        for _ in range(round_):
            await asyncio.sleep(0)
        for number in {0, 1, round_}:
            tasks[number].cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)

        done = [each for each in results if isinstance(each, Tally)]
        assert len(done) >= 9
        assert len({each.count for each in done}) == len(done)
        await asyncio.sleep(0.01)  # a write that was given up may still come
        after = (await tallies.modify(KEY, one_more)).count - 1
        assert before + len(done) <= after <= before + 12


@pytest.fixture
async def failing() -> AsyncIterator[tuple[Database, Failing]]:
    store = Failing()
    async with Database(store, retry=RetryPolicy(base=0, attempts=3)) as db:
        await db.create_tables(Tally)
        await db.insert(Tally(name="t"))
        yield db, store


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (Fault(Code.AUTHORIZATION_FAILURE, "No."), AccessDenied),
        (Fault(Code.NO_ANSWER, "Nobody answers.", doubt=True), OutcomeUnknown),
    ],
)
async def test_an_error_of_the_store_is_raised_in_each_caller(
    failing: tuple[Database, Failing], fault: Fault, error: type[Exception]
) -> None:
    """Each has an exception of its own, and nothing is sent once more for each of them, nor what may have happened."""
    db, store = failing
    store.fault, store.writes = fault, 0
    results = await asyncio.gather(*(db.modify(KEY, one_more) for _ in range(20)), return_exceptions=True)

    assert {type(each) for each in results} == {error}
    assert len({id(each) for each in results}) == 20
    assert store.writes == (2 if error is AccessDenied else 6)
    store.fault = None
    assert (await db.modify(KEY, one_more)).count == 1


async def test_an_error_for_what_was_never_stored_is_not_raised(failing: tuple[Database, Failing]) -> None:
    """If another program is faster, each function is asked again, also one that has raised."""
    db, store = failing

    taken = 0

    def take(tally: Tally) -> None:
        nonlocal taken
        taken += 1
        if taken == 1:
            tally.note = "taken"
            store.races = 1

    def need(tally: Tally) -> None:
        if tally.note == "taken":
            raise ZeroDivisionError
        tally.count += 1

    results = await asyncio.gather(db.modify(KEY, one_more), db.modify(KEY, take), db.modify(KEY, need))
    assert (taken, results[2].count) == (2, 2)


async def test_who_modifies_a_row_within_a_write_of_it_does_not_wait_for_that() -> None:
    """As what is put around a store may do; alone, and where several calls are made together."""
    nested = 3

    class Nesting(Failing):
        async def send(self, request: StoreRequest) -> Any:
            nonlocal nested
            if request.operations and nested < 3:
                nested += 1
                await db.modify(KEY, one_more)
            return await super().send(request)

    async with Database(Nesting()) as db:
        await db.create_tables(Tally)
        await db.insert(Tally(name="t"))
        nested = 0
        await asyncio.gather(*(db.modify(KEY, one_more) for _ in range(5)))
        assert (nested, (await db.get(KEY)).count) == (3, 8)


async def test_a_function_has_the_context_of_its_caller(tallies: Database) -> None:
    """As for log records that name the request of the web that they are about."""
    name: ContextVar[str] = ContextVar("name")

    async def call(number: int) -> None:
        name.set(str(number))

        def note(tally: Tally) -> None:
            tally.note = name.get()

        assert (await tallies.modify(KEY, note)).note == str(number)

    await asyncio.gather(*map(call, range(10)))


async def test_scopes_write_for_themselves(tallies: Database) -> None:
    """What a scope may not write is rejected for its call alone; what two may write they write one after another."""
    inside, other, outside = tallies.scope(team="a"), tallies.scope(team="a"), tallies.scope(team="b")
    callers = [tallies, inside, other, outside] * 4
    results = await asyncio.gather(*(each.modify(KEY, one_more) for each in callers), return_exceptions=True)

    assert [isinstance(each, AccessDenied) for each in results] == [each is outside for each in callers]
    assert sorted(each.count for each in results if isinstance(each, Tally)) == list(range(1, 13))


async def test_conditions_are_those_of_their_calls(tallies: Database) -> None:
    """Of calls under one ETag the first succeeds, wherever it is among the others."""
    etag = (await tallies.get(KEY)).etag
    calls = [tallies.modify(KEY, one_more, if_match=etag) for _ in range(3)]
    calls += [tallies.modify(KEY, one_more, if_match="*") for _ in range(3)]
    results = await asyncio.gather(*calls, return_exceptions=True)

    assert [isinstance(each, PreconditionFailed) for each in results] == [False, True, True, False, False, False]
    assert (await tallies.get(KEY)).count == 4


async def test_instances_become_what_their_calls_have_made(tallies: Database) -> None:
    """Bags too."""
    instances = [await tallies.get(KEY) for _ in range(4)]
    results = await asyncio.gather(*(tallies.modify(each, one_more) for each in instances))
    assert [each.count for each in results] == [each.count for each in instances] == [1, 2, 3, 4]
    assert all(map(operator.is_, results, instances))
    instances[3].count = 10
    await tallies.save(instances[3])

    bag_key = PropertyBag.key("Tallies", "a", "plain")
    await tallies.insert(PropertyBag("Tallies", "a", "plain", {"count": 0}))

    def add(bag: PropertyBag) -> None:
        bag["count"] += 1

    bags = await asyncio.gather(*(tallies.modify(bag_key, add) for _ in range(6)))
    assert [each["count"] for each in bags] == [1, 2, 3, 4, 5, 6]
    bags[2]["count"] = 9
    with pytest.raises(PreconditionFailed):
        await tallies.save(bags[2])
    assert (await tallies.get(bag_key))["count"] == 6


async def test_slow_functions_leave_time_for_other_tasks(tallies: Database) -> None:
    """Between two of them other tasks run."""
    turns = 0

    async def tick() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    seen: list[int] = []

    def slow(tally: Tally) -> None:
        tally.count += 1
        seen.append(turns)
        time.sleep(0.004)

    ticking = asyncio.create_task(tick())
    await asyncio.gather(*(tallies.modify(KEY, slow) for _ in range(12)))
    ticking.cancel()
    assert len(set(seen)) >= 11
