"""
Re-keys between models that nobody thought of, while nobody writes: entities are split, joined and dropped.
"""

import datetime as dt
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from random import Random
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tableorm import Database, EntityExists, RunReport, TableOrmError
from tableorm.models.entity import schema_of
from tableorm.models.state import state_of
from tableorm.stores import Row
from tableorm_migrations import finalize_rekey, plan_rekey, run_rekey, verify_rekey
from tests.migrations.quick_runs import quick_runs
from tests.migrations.random_layouts import (
    FOREIGN,
    IN_KEYS,
    Layout,
    Values,
    extras,
    insert_foreign,
    layouts,
    read_rows,
    rows_of_entities,
)
from tests.rekeys import Turns, TurnStore, draw_fates, opened
from tests.torture import examples

LEASE = 0.05
NAMES = ("first", "second")


@attrs.frozen(kw_only=True)
class Copy:
    """
    A re-key while nobody writes.

    Args:
        entities: The fields by the older model, and what each has besides.
        variants: Other values of fields of the newer key, by the number of the entity modulo their count: for each
            dictionary one entity.
        merge: Whether entities with one newer key become one.
        apart: Whether the newer entities are in another database.
        lives: For each step, how many requests each process sends before it dies.
        faults: How many writes of those that die fail, between 0 and 1.
        seed: In which order requests are sent.
    """

    entities: list[tuple[Values, Row]]
    variants: list[list[Values]]
    merge: bool
    apart: bool
    lives: list[list[tuple[int, int]]]
    faults: float
    seed: int


@st.composite
def copies(draw: st.DrawFn, layout: Layout) -> Copy:
    """Draw one."""
    entity = st.tuples(layout.entities().map(_in_utc), extras())
    entities = draw(st.lists(entity, min_size=3, max_size=8, unique_by=lambda each: layout.keys_of(each[0])[0]))
    names = [name for name in schema_of(layout.new).key_fields if name in IN_KEYS]
    fields = {name: IN_KEYS[name][1] for name in names}
    none: list[list[Values]] = [[{}]]
    whole = st.fixed_dictionaries(fields)
    joined = st.lists(st.tuples(whole).map(list), min_size=1, max_size=2)
    split = st.lists(st.lists(st.fixed_dictionaries({}, optional=fields), max_size=2), min_size=1, max_size=3)
    lives = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=2)
    return Copy(
        entities=entities,
        variants=draw(st.just(none) | joined | split),
        merge=draw(st.sampled_from([True, True, False])),
        apart=draw(st.booleans()),
        lives=[draw(lives) for _ in range(3)],
        faults=draw(st.sampled_from([0.0, 0.1])),
        seed=draw(st.integers(0, 9999)),
    )


def _in_utc(values: Values) -> Values:
    return {
        name: value.astimezone(dt.UTC) if isinstance(value, dt.datetime) else value for name, value in values.items()
    }


def rank_of(values: Values, extra: Row) -> tuple[int, str, str]:
    """Return by what one of two entities with one key is chosen: all that they have."""
    return values["big"], repr(sorted(values.items())), repr(sorted(extra.items()))


class Run:
    """What is done with a layout, and what should come of it."""

    def __init__(self, layout: Layout, copy: Copy) -> None:
        self.layout, self.copy = layout, copy
        self.made: dict[tuple[str, str], list[tuple[Values, Row]]] = {}
        self.dropped = 0

    def convert(self, entity: Any) -> Any:
        """Make what an entity of the older model becomes."""
        values = {name: getattr(entity, name) for name in schema_of(self.layout.old).fields}
        found = [self.layout.new(**each) for each in self.renewed(values)]
        return found[0] if len(found) == 1 else found or None

    def renewed(self, values: Values) -> list[Values]:
        """Return the fields of the newer entities that one of the older becomes."""
        renewed = self.layout.renew(values)
        number: int = values["big"]
        variants = self.copy.variants[number % len(self.copy.variants)]
        return [renewed | each for each in variants]

    def merge(self, stored: Any, other: Any) -> Any:
        """Return the greater one of two entities."""
        schema = schema_of(self.layout.new)

        def rank(entity: Any) -> tuple[int, str, str]:
            values = {name: getattr(entity, name) for name in schema.fields}
            return rank_of(values, state_of(entity).unknown(schema.known))

        return max(stored, other, key=rank)

    async def fill(self, db: Database) -> None:
        """Insert the older entities, and note what each becomes."""
        schema = schema_of(self.layout.new)
        for values, extra in self.copy.entities:
            entity = self.layout.old(**values)
            if extra:
                entity.extra.row.update(extra)
            await db.insert(entity)
            filled = {**values, "stamp": entity.stamp, "born": entity.born}
            renewed = self.renewed(filled)
            self.dropped += not renewed
            for each in renewed:
                self.made.setdefault(schema.make_keys(each), []).append((each, extra))

    @property
    def collides(self) -> bool:
        """Whether two different entities get one key."""
        return any(len({repr(each) for each in many}) > 1 for many in self.made.values())

    async def step(
        self,
        number: int,
        turns: Turns,
        programs: dict[str, tuple[Database, TurnStore]],
        call: Callable[[str], Any],
    ) -> list[RunReport]:
        """Let two processes do a step, first some that die; return the reports of the last two."""
        reports = list[RunReport]()
        for lives in [*self.copy.lives[number], None]:
            reports.clear()
            random = Random(self.copy.seed)
            turns.random = random
            for name, life in zip(NAMES, lives or (None, None), strict=True):
                network = programs[name][1]
                network.life = life
                network.plan(*draw_fates(random, self.copy.faults if lives else 0.0, late=False))

            async def work(name: str, *, dies: bool) -> None:
                try:
                    reports.append(await call(name))
                except TableOrmError:
                    if not dies:
                        raise

            dies = lives is not None
            await turns.run({name: work(name, dies=dies) for name in NAMES})
        return reports


async def carry_out(layout: Layout, copy: Copy) -> None:
    """Copy, verify and delete, and compare all rows."""
    run, turns = Run(layout, copy), Turns(Random(0))
    async with AsyncExitStack() as stack:
        stack.enter_context(quick_runs())
        programs = await stack.enter_async_context(opened(turns, NAMES, layout.old, layout.new))
        others = programs
        if copy.apart:
            others = await stack.enter_async_context(opened(turns, NAMES, layout.new))
        db, target = programs["first"][0], others["first"][0]
        await insert_foreign(db, set(layout.tables))
        if copy.apart:
            await insert_foreign(target, [layout.tables[1]])
        await run.fill(db)
        old = await read_rows(db, layout.tables[0])
        given: dict[str, Any] = {"to_new": run.convert, "lease": LEASE}
        merge = run.merge if copy.merge else None

        async def call(function: Any, name: str, **more: Any) -> Any:
            other = others[name][0] if copy.apart else None
            return await function(programs[name][0], layout.old, layout.new, target=other, **given, **more)

        plan = await plan_rekey(db, layout.old, layout.new, to_new=run.convert, full=True, target=target)
        many = sum(map(len, run.made.values()))
        assert (plan.entities, plan.made, plan.dropped, plan.failed) == (len(copy.entities), many, run.dropped, 0)
        assert plan.collisions == many - len(run.made)
        if run.collides and merge is None:
            for on_collision in ("stop", "skip"):
                collided = call(run_rekey, "first", writers_stopped=True, on_collision=on_collision)
                await _check_collision(run, collided, target, on_collision)
            return
        copied = await run.step(
            0, turns, programs, lambda name: call(run_rekey, name, writers_stopped=True, merge=merge)
        )
        assert all(each.complete for each in copied), copied
        if not run.collides and many > len(run.made) and merge is None:
            return  # one entity became two of one key with one content, which no verification takes for one
        verified = await run.step(1, turns, programs, lambda name: call(verify_rekey, name, merge=merge))
        assert all(each.complete for each in verified), verified
        assert old.items() <= (await read_rows(db, layout.tables[0])).items()
        finalized = await run.step(2, turns, programs, lambda name: call(finalize_rekey, name, merge=merge))
        assert all(each.complete for each in finalized), finalized
        await _check_rows(run, db, target)


async def _check_collision(run: Run, copy: Awaitable[RunReport], target: Database, on_collision: str) -> None:
    """Two entities with one newer key stop the copy, or are reported; nothing is overwritten."""
    if on_collision == "stop":
        with pytest.raises(EntityExists, match="is the key of another entity already"):
            await copy
        return
    assert (await copy).failed
    found = await read_rows(target, run.layout.tables[1])
    for key, many in run.made.items():
        rows = [rows_of_entities(run.layout.new, [each])[key] for each in many]
        assert found[key] in rows


async def _check_rows(run: Run, db: Database, target: Database) -> None:
    """Compare all rows with those that should be there."""
    chosen = [max(many, key=lambda each: rank_of(*each)) for many in run.made.values()]
    expected = rows_of_entities(run.layout.new, chosen)
    assert await read_rows(target, run.layout.tables[1]) == {**expected, **FOREIGN}
    if run.copy.apart or not run.layout.spec.same_table:
        assert await read_rows(db, run.layout.tables[0]) == FOREIGN
    if schema_of(run.layout.new).derived:
        report = await target.audit(run.layout.new)
        assert report.clean, report


@examples(4, 600)
@given(st.data())
async def test_any_layout_while_nobody_writes(data: st.DataObject) -> None:
    """
    Entities are split, joined by a merge, dropped, and put into another database, by processes of which some die: in
    the end there is what they should become, and nothing else.
    """
    layout = data.draw(layouts())
    copy = data.draw(copies(layout))
    await carry_out(layout, copy)
