"""
Queries against filtering everything in Python: for models of many shapes, any data and any conditions.
"""

import asyncio
import pickle
from collections.abc import AsyncGenerator
from contextlib import ExitStack, asynccontextmanager
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tableorm import Database, Entity, EntityNotFound, MultipleEntitiesFound, Select, connect
from tableorm.models.entity import schema_of
from tableorm.queries.cursors import MAX_CURSOR
from tests.database.between import Awkward, Shuffled
from tests.queries.foreign_worlds import FOREIGN_WORLDS
from tests.queries.random_worlds import random_worlds
from tests.queries.spread_worlds import SPREAD_WORLDS, merged
from tests.queries.worlds import WORLDS, World, conditions, key_of, results


class Case:
    """A world, its entities, a query of them, and what it must give."""

    def __init__(self, world: World, entities: list[Any], query: Select[Any], wanted: list[Any]) -> None:
        self.world, self.entities, self.query, self.wanted = world, entities, query, wanted

    def __repr__(self) -> str:
        return f"{self.query} of {self.entities}, wanted {self.wanted}"


def keys(entities: list[Any]) -> list[Any]:
    return [key_of(entity) for entity in entities]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    world = draw(st.sampled_from(WORLDS + SPREAD_WORLDS) | st.sampled_from(FOREIGN_WORLDS) | random_worlds())
    entities = draw(st.lists(world.entities, max_size=20, unique_by=key_of))
    terms = draw(conditions(world))
    unbound: Any = Database(Awkward(0))
    query = unbound.select(*world.models).where(*(expression for expression, _ in terms)).allow_scan()
    wanted = results(entities, terms)
    return Case(world, entities, query, merged(wanted) if query.explain().merged_partitions else wanted)


Ready = tuple[Database, Select[Any], list[Any]]


@asynccontextmanager
async def ready(case: Case, db: Database, limit: int | None = None) -> AsyncGenerator[Ready]:
    """Fill a database with the entities of a case; yield it, the query, limited if need be, and the results."""
    async with asyncio.timeout(30), db:
        await db.create_tables(*case.world.entity_models)
        for entity in case.entities:
            await db.insert(entity)
        query = case.query.bind(db)
        yield db, query if limit is None else query.limit(limit), case.wanted[:limit]


async def paged(db: Database, query: Select[Any], size: int) -> list[Any]:
    """All results, page by page, each by a query that comes from another process."""
    found: list[Any] = []
    cursor: str | None = None
    again = pickle.dumps(query)
    for _ in range(1000):
        page = await pickle.loads(again).bind(db).page(size, cursor)
        assert len(page.items) <= size
        found += page.items
        cursor = page.cursor
        if cursor is None:
            return found
        assert len(cursor) <= MAX_CURSOR
    raise AssertionError(f"{query} has no last page")


@given(cases())
async def test_a_query_gives_what_filtering_in_python_gives(case: Case) -> None:
    """In key order; the explanation bounds the requests that it takes."""
    async with ready(case, connect("local::memory:")) as (db, query, wanted):
        explained, before = query.explain(), db.stats.requests
        assert keys(await query.all()) == keys(wanted)
        sent = db.stats.requests - before
        assert explained.min_transactions <= sent
        assert explained.max_transactions is None or sent <= explained.max_transactions


@given(cases(), st.integers(1, 7), st.integers(0, 2**32), st.none() | st.integers(0, 12))
async def test_pages_and_cursors_lose_and_repeat_nothing(case: Case, size: int, seed: int, limit: int | None) -> None:
    """Of every size, with and without a limit, where the store gives short and empty pages."""
    async with ready(case, Database(Awkward(seed)), limit) as (db, query, wanted):
        assert keys(await query.all()) == keys(wanted)
        assert keys(await paged(db, query, size)) == keys(wanted)
        assert keys(await paged(db, query.allow_scan(parallel=3), size)) == keys(wanted)


@given(cases(), st.integers(0, 8), st.integers(0, 2**32), st.none() | st.integers(0, 12))
async def test_a_stream_goes_on_from_any_cursor(case: Case, stop: int, seed: int, limit: int | None) -> None:
    """After any entity, in another process; what is left of a limit is in the cursor."""
    async with ready(case, Database(Awkward(seed)), limit) as (db, query, wanted):
        found: list[Any] = []
        async with query.stream() as stream:
            if stop:
                async for entity in stream:
                    found.append(entity)
                    if len(found) == stop:
                        break
        cursor = stream.cursor
        again: Select[Any] = pickle.loads(pickle.dumps(query)).bind(db)
        async with again.stream(cursor) as stream:
            found += [entity async for entity in stream]
        assert keys(found) == keys(wanted)
        if cursor is not None:
            page = await query.page(1000, cursor)
            assert keys(page.items) == keys(wanted[stop : stop + len(page.items)])


@given(cases(), st.integers(1, 9), st.integers(1, 4))
async def test_every_way_to_run_a_query_agrees(case: Case, parts: int, concurrency: int) -> None:
    """Unordered, divided, in parallel; counted, and by its first result."""
    async with ready(case, connect("local::memory:")) as (db, plain, wanted):
        query = plain.concurrency(concurrency)
        assert set(keys(await query.unordered().all())) == set(keys(wanted))
        assert len(await query.unordered().all()) == len(wanted)
        assert len(await query.unordered().limit(3).all()) == min(3, len(wanted))
        shares: list[Select[Any]] = pickle.loads(pickle.dumps(query.split(parts)))
        assert 1 <= len(shares) <= parts
        found = [entity for share in shares for entity in await share.bind(db).all()]
        last = shares[-1].bind(db)
        again = [entity for part in last.split(parts) for entity in await part.all()]
        assert sorted(keys(again)) == sorted(keys(await last.all()))
        in_parts = merged(found) if query.explain().merged_partitions else found
        assert keys(in_parts) == keys(wanted)
        assert keys(await query.allow_scan(parallel=parts).all()) == keys(wanted)
        assert await query.count() == len(wanted)
        assert await query.limit(2).count() == min(2, len(wanted))
        assert await query.exists() is bool(wanted)
        first = await query.first()
        assert keys([] if first is None else [first]) == keys(wanted[:1])
        with ExitStack() as raised:
            if len(wanted) != 1:
                raised.enter_context(pytest.raises(MultipleEntitiesFound if wanted else EntityNotFound))
            assert keys([await query.one()]) == keys(wanted)


@given(cases(), st.integers(1, 7), st.none() | st.integers(0, 12))
async def test_a_store_without_an_order(case: Case, size: int, limit: int | None) -> None:
    """What is small enough is sorted here, so that order, limits and cursors are the same."""
    async with ready(case, Database(Shuffled()), limit) as (db, query, wanted):
        assert keys(await query.all()) == keys(wanted)
        assert keys(await paged(db, query, size)) == keys(wanted)
        assert await query.count() == len(wanted)


@given(cases(), st.data())
async def test_a_projection_changes_no_result(case: Case, data: st.DataObject) -> None:
    """Conditions see fields that were not asked for, here and at the store; those that were are loaded, no others."""
    models = case.world.entity_models
    assume(len(models) == len(case.world.models))  # a bag is all that a row has
    kinds: list[type[Entity]] = list({type(entity): None for entity in case.entities})
    names = [(model, name) for model in kinds for name in schema_of(model).fields]
    wanted_fields = data.draw(st.lists(st.sampled_from(names), max_size=3)) if names else []
    async with ready(case, connect("local::memory:")) as (_, query, wanted):
        query_of_part = query.only(*(getattr(model, name) for model, name in wanted_fields))
        found = await query_of_part.all()
        assert keys(found) == keys(wanted)
        explained = query_of_part.explain()
        by_index = explained.path != "primary key" and not explained.fetches_primaries
        for part, whole in zip(found, await query.all(), strict=True):
            schema = schema_of(part.__class__)
            asked = {name for model, name in wanted_fields if model is schema.model}
            for name, info in schema.fields.items():
                # What a key holds is there, and what is stored besides if anything is asked for.
                held = name in schema.key_holders
                if name in asked or (held and not (info.stored and not wanted_fields)):
                    assert repr(getattr(part, name)) == repr(getattr(whole, name))
                elif not held and not by_index:  # whose keys hold other fields
                    assert not hasattr(part, name)
