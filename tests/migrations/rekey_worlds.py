"""
The world of an online re-key: programs of both models, and movers, all with one store.
"""

import re
from collections.abc import AsyncGenerator, Awaitable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from random import Random
from typing import Any

import attrs
import pytest

from tableorm import (
    Conflict,
    Database,
    EncodeError,
    EntityNotFound,
    NotSupported,
    PreconditionFailed,
    RunReport,
    TableOrmError,
    TransactionFailed,
)
from tableorm.connection.connection import connection_of
from tableorm.models.entity import schema_of
from tableorm.models.state import state_of
from tableorm.rekey.phases import RekeyPhase
from tableorm.rekey.rekeying import old_place_of
from tableorm.stores import TableStore
from tableorm.testing import MemoryStore
from tableorm_migrations import finalize_move, plan_rekey, rekey_phase, roll_back_move, run_move, seal_move, verify_move
from tableorm_migrations.rekey import phases
from tests.database.between import Between, Shuffled
from tests.migrations.quick_runs import quick_runs
from tests.migrations.random_layouts import FOREIGN, Layout, Values, insert_foreign, read_rows
from tests.migrations.random_programs import Stage, Step, Who, Write
from tests.migrations.rekey_truths import Truth, Truths
from tests.rekeys import Turns, TurnStore, draw_fates, opened, rekeying_of, save_by
from tests.rows import insert_row

MOVERS = ("mover1", "mover2")
LEASE = 0.05
OPEN = {RekeyPhase.EXPAND, RekeyPhase.MOVE, RekeyPhase.BACK}
"""The phases in which programs of the older model may run."""

STAGES: dict[str, tuple[set[RekeyPhase], set[RekeyPhase], RekeyPhase]] = {
    "move": ({RekeyPhase.EXPAND, RekeyPhase.MOVE}, {RekeyPhase.EXPAND, RekeyPhase.MOVE}, RekeyPhase.MOVE),
    "verify": ({RekeyPhase.MOVE}, {RekeyPhase.MOVE}, RekeyPhase.MOVE),
    "seal": ({RekeyPhase.MOVE}, {RekeyPhase.MOVE, RekeyPhase.SEALED}, RekeyPhase.SEALED),
    "finalize": ({RekeyPhase.SEALED, RekeyPhase.DONE}, {RekeyPhase.SEALED, RekeyPhase.DONE}, RekeyPhase.DONE),
    "back": (
        {RekeyPhase.MOVE, RekeyPhase.BACK},
        {RekeyPhase.MOVE, RekeyPhase.BACK, RekeyPhase.EXPAND},
        RekeyPhase.EXPAND,
    ),
}
"""For each step of the operator the phases in which it is allowed, those that it goes through, and the last one."""


@attrs.define
class Held:
    """
    An entity in the hands of a program.

    Args:
        entity: The entity.
        number: Its number.
        version: How often it had been written when it was read.
        before: Whether it was read before it was moved, by a program that can save it afterwards.
    """

    entity: Any
    number: int
    version: int
    before: bool


class World:
    """
    Two programs and two movers, and the entities as they really are.

    Args:
        layout: The two models.
        programs: The database and the network of each, by name.
        turns: Whose turn it is to send a request.

    Attributes:
        phases: The phases that there may be now.
        settled: Whether no move of an entity is under way, or was left halfway by a mover that died.
        calm: Whether every move, there or back, was that of one mover to which nothing happened.
    """

    def __init__(self, layout: Layout, programs: dict[str, tuple[Database, TurnStore]], turns: Turns) -> None:
        self.layout, self.truths, self.turns, self._programs = layout, Truths(layout), turns, programs
        self.phases, self.settled, self.calm = {RekeyPhase.EXPAND}, True, True
        self._held: dict[Who, list[Held]] = {"older": [], "newer": []}

    def db(self, who: str) -> Database:
        """Return the database of a program."""
        return self._programs[who][0]

    async def do(self, step: Step) -> None:
        """Do a step, and check what programs read afterwards."""
        try:
            if isinstance(step, Write):
                await self.write(step)
            else:
                await self.carry_out(step)
            await self.check()
        except BaseException as error:
            error.add_note(f"in phase {'/'.join(self.phases)}, at {step}")
            raise

    # What programs read

    async def check(self) -> None:
        """Let both programs read by keys and by queries: they find what there is."""
        await self._check_newer()
        if self.phases <= OPEN:
            await self._check_older()

    async def _check_newer(self) -> None:
        db, new = self.db("newer"), self.layout.new
        for truth in self.truths.entities.values():
            self.truths.assert_is("newer", await db.get(new, **self.truths.key_of("newer", truth)), truth)
        found = list[Any]()

        async def query() -> None:
            found.extend(await db.select(new).allow_scan().all())

        error = await _attempt(query())
        if error is None:
            self.truths.assert_all("newer", found, whole=self.settled)
        else:
            assert "its key is spread over partitions" in str(error)
            assert self.phases & OPEN
            assert ":spread" in self.layout.spec.newer[0]

    async def _check_older(self) -> None:
        db, old = self.db("older"), self.layout.old
        whole = self.phases == {RekeyPhase.EXPAND}
        self.truths.assert_all("older", await db.select(old).allow_scan().all(), whole=whole)
        if schema_of(old).derived:
            found = await db.select(old.by_data).allow_scan().all()
            assert all(getattr(each, self.layout.spec.indexed[0]) is not None for each in found)
            self.truths.assert_all("older", found, whole=False)

    async def check_rows(self, who: Who) -> None:
        """Compare all rows with those that entities have by one of the models alone, and those of other programs."""
        notes = () if who == "older" and self.calm else ("_mv",)  # a mark may stay until the entity is written
        for table in set(self.layout.tables):
            expected, found = self.truths.rows(who, table), await read_rows(self.db(who), table, *notes)
            for key in self.truths.raw_keys(who) & expected.keys() & found.keys():
                # Until it is moved, the row that another program has inserted lacks what has its default.
                stamp = {name: value for name, value in expected[key].items() if name.startswith("stamp")}
                found[key] = {**stamp, **found[key]}
            assert found == {**expected, **FOREIGN}
        if schema_of(self.truths.model(who)).derived:
            report = await self.db(who).audit(self.truths.model(who))
            assert report.clean, report

    # What programs write

    async def write(self, write: Write) -> None:
        """Do what a program does, and note what has come of it, unless the program may not run now."""
        if write.who == "older" and not self.phases <= OPEN:
            return
        if write.verb in ("insert", "raw", "blind") or (write.verb == "upsert" and not self.truths.entities):
            await self._insert(write)
        elif write.verb == "save held":
            await self._save_held(write)
        elif self.truths.entities:
            await self._change(write)

    async def _insert(self, write: Write) -> None:
        truth = Truth(write.values, write.extra or {})
        new = self.truths.is_new(truth)
        quiet = self.phases == {RekeyPhase.EXPAND} and bool(new)
        if new is None or (write.verb == "raw" and (not quiet or self.layout.spec.indexed[0])):
            return
        used = self.layout.keys_of(truth.values)[0] in self.truths.used
        entity, db, before = self.truths.make(write.who, truth), self.db(write.who), set(self.phases)
        calls: dict[str, Any] = {"raw": lambda: self._insert_raw(truth)}
        if write.verb == "upsert" or (write.verb == "blind" and quiet):
            calls[write.verb] = lambda: db.upsert(entity, mode="replace")
        error = await _attempt(calls.get(write.verb, lambda: db.insert(entity))())
        if error is None:
            assert new, f"{entity!r} was inserted twice"
            self.truths.note(write.who, entity, truth, inserted=write.verb != "raw", sent=write.verb != "raw")
            self.truths.add(truth)
        elif isinstance(error, NotSupported):
            assert write.verb == "upsert", error
            assert (before | self.phases) & {RekeyPhase.EXPAND, RekeyPhase.BACK}, error
        elif new and write.who == "older":
            assert used, error  # a row says that the key was that of another entity
        elif new:
            assert used, error
            assert RekeyPhase.BACK in before | self.phases, error
        else:
            assert isinstance(error, Conflict), error

    async def _insert_raw(self, truth: Truth) -> None:
        """Insert a row as programs without the mapper do: what has its default is left out."""
        schema = schema_of(self.layout.old)
        values = self.truths.values_of("older", truth)
        row, _ = schema.encode(values, *schema.make_keys(values))
        left_out = {
            info.member.property
            for info in schema.fields.values()
            if info.default and info.default() == values[info.name]
        }
        row = {name: value for name, value in row.items() if name.partition("@")[0] not in left_out}
        await insert_row(self.db("older").store, schema.table_name(), {**row, **truth.extra})

    async def _change(self, write: Write) -> None:
        number, truth = self.truths.pick(write.pick)
        who, db, before = write.who, self.db(write.who), set(self.phases)
        entity: Any = await db.get_or_none(self.truths.model(who), **self.truths.key_of(who, truth))
        if entity is None:
            assert who == "older", f"{truth} is not found"
            assert (before | self.phases) & {RekeyPhase.MOVE, RekeyPhase.BACK}
            return
        self.truths.assert_is(who, entity, truth)
        if write.verb == "hold":
            before_move = who == "newer" and old_place_of(state_of(entity).row) is not None
            self._held[who].append(Held(entity, number, truth.version, before_move))
        elif write.verb == "refresh":
            await db.refresh(entity)
            self.truths.assert_is(who, entity, truth)
        elif write.verb == "delete":
            error = await _attempt(db.delete(entity))
            self._judge(write, before, error)
            if error is None:
                del self.truths.entities[number]
        elif write.verb != "get":
            changed = self.truths.changed(write, truth)
            if changed is not None:
                await self._save(write, before, number, entity, changed)

    async def _save(self, write: Write, before: set[RekeyPhase], number: int, entity: Any, changed: Truth) -> None:
        who, truth, etag = write.who, self.truths.entities[number], entity.etag
        rekeyed = self.truths.changes_older_key(truth, changed)
        error = await _attempt(self._send(write, entity, changed))
        self._judge(write, before, error, rekeyed=rekeyed)
        if error is None:
            # A call of modify that changes nothing sends nothing, but returns the entity as it is now.
            sent = entity.etag != etag and (write.verb != "modify" or changed != truth)
            self.truths.note(who, entity, changed, sent=sent)
            self.truths.replace(number, changed)

    async def _send(self, write: Write, entity: Any, changed: Truth) -> None:
        """Give an entity what it is to have, and write it."""
        db, values = self.db(write.who), self.truths.values_of(write.who, changed)
        names = [name for name, value in values.items() if value != getattr(entity, name)]
        verb = write.verb
        if verb in ("merge", "upsert") and (write.extra is not None or any(values[name] is None for name in names)):
            verb = "save"  # a merge removes nothing

        def apply(to: Any) -> None:
            for name in names:
                setattr(to, name, values[name])
            if write.extra is not None:
                to.extra.clear()
                to.extra.row.update(changed.extra)

        if verb == "modify":
            await db.modify(entity, apply)
            return
        apply(entity)
        await save_by(db, verb, entity)

    def _judge(self, write: Write, before: set[RekeyPhase], error: Exception | None, *, rekeyed: bool = False) -> None:
        """Judge what a program was told of a write of an entity that it had just read."""
        phases = before | self.phases
        if error is None:
            assert not (rekeyed and write.who == "newer" and phases <= OPEN), "its older key was changed"
        elif isinstance(error, EncodeError):
            assert rekeyed, error
            assert phases & OPEN, error
        elif isinstance(error, NotSupported):
            assert write.verb in ("upsert", "transaction", "bulk"), error
            assert phases & {RekeyPhase.EXPAND, RekeyPhase.BACK}, error
        elif write.who == "older":
            assert isinstance(error, (PreconditionFailed, EntityNotFound)), error
            assert phases & {RekeyPhase.MOVE, RekeyPhase.BACK}, error
        else:
            assert isinstance(error, PreconditionFailed), error
            assert RekeyPhase.BACK in phases or not self.settled, (
                error
            )  # it may have been read between two steps of a move

    async def _save_held(self, write: Write) -> None:
        """Save what was read some time ago: that is rejected if it has changed since."""
        if not self._held[write.who]:
            return
        held = self._held[write.who].pop(0)
        truth, entity = self.truths.entities.get(held.number), held.entity
        big, etag, before = write.values["big"], entity.etag, set(self.phases)
        if entity.big == big:
            return
        entity.big = big
        error = await _attempt(self.db(write.who).save(entity))
        if error is None:
            assert truth is not None, f"{entity!r} was deleted"
            assert truth.version == held.version, f"{entity!r} was written meanwhile"
            truth.values = {**truth.values, "big": big}
            self.truths.note(write.who, entity, truth, sent=entity.etag != etag)
        else:
            assert isinstance(error, (Conflict, EntityNotFound)), error
            current = truth is not None and truth.version == held.version
            moving = before | self.phases <= {RekeyPhase.EXPAND, RekeyPhase.MOVE}
            assert not (current and held.before and moving and self.calm), error

    # What the operator does

    async def carry_out(self, stage: Stage) -> None:
        """Let movers do a step beside programs."""
        allowed, ways, last = STAGES[stage.name]
        now = await self._read_phase()
        if now not in allowed:
            with pytest.raises(NotSupported, match=now.value):
                await self._call(stage.name, self.db("mover1"))
            return
        if stage.name == "seal" and stage.ends:
            await self._prepare_seal()
        self.phases |= ways
        if stage.name in ("move", "back"):
            self.calm = self.calm and stage.ends and len(stage.lives) == 1
            self.settled = False
        for held in self._held["newer"]:
            held.before = held.before and stage.name != "back"
        random = Random(stage.seed)
        names = MOVERS[: len(stage.lives)]
        for name, life in zip(names, stage.lives, strict=True):
            network = self._programs[name][1]
            network.life = life
            network.plan(*draw_fates(random, stage.faults, late=True))

        async def act() -> None:
            for each in stage.meanwhile:
                if random.random() < 0.3:
                    self._expire()
                await self.write(each)

        self.turns.random = random
        await self.turns.run({**{name: self._work(stage, name) for name in names}, "programs": act()})
        for name in names:
            network = self._programs[name][1]
            network.life = None
            network.plan()
            await network.deliver()
        now = await self._read_phase()
        assert not stage.ends or now is last, now
        self._expire()
        self.phases = {now}
        self.settled = self.settled or stage.ends

    async def _work(self, stage: Stage, name: str) -> None:
        """Let a mover do its part of a step; if nothing stops it, all is done in the end."""
        whole, reports = stage.ends and self._programs[name][1].life is None, list[RunReport]()

        async def call() -> None:
            reports.append(await self._call(stage.name, self.db(name)))

        error = await _attempt(call())
        if whole:
            assert error is None or isinstance(error, NotSupported), error  # the other one has gone on
            # A verification finds what older programs insert meanwhile.
            assert stage.name == "verify" or all(report.complete for report in reports), reports

    async def _call(self, name: str, db: Database) -> RunReport:
        new = self.layout.new
        if name == "move":
            return await run_move(db, new, no_blind_writers=True, lease=LEASE)
        if name == "verify":
            return await verify_move(db, new, lease=LEASE)
        if name == "seal":
            return await seal_move(db, new, no_old_programs=True, lease=LEASE)
        if name == "finalize":
            return await finalize_move(db, new, lease=LEASE)
        return await roll_back_move(db, new, lease=LEASE)

    async def _prepare_seal(self) -> None:
        """Move what was inserted since, and verify."""
        db, new = self.db("mover1"), self.layout.new
        for report in (await run_move(db, new, lease=LEASE), await verify_move(db, new, lease=LEASE)):
            assert report.complete, report

    async def _read_phase(self) -> RekeyPhase:
        return RekeyPhase(await rekey_phase(self.db("mover1"), self.layout.new))

    def _expire(self) -> None:
        """Let all programs ask for the phase when they need it next, as after a minute."""
        for db, _ in self._programs.values():
            connection_of(db).known_phase(rekeying_of(self.layout.new).digest).asked = -1e9

    async def wait_until_known(self, *_: object) -> None:
        """Stand for the two minutes after which every program knows a phase."""
        self._expire()


async def _attempt(call: Awaitable[Any]) -> Exception | None:
    """Return the error of a call; None if it has none."""
    try:
        await call
    except TransactionFailed as error:
        cause = error.__cause__
        return cause if isinstance(cause, Exception) else error
    except (TableOrmError, ValueError) as error:
        return error
    return None


@asynccontextmanager
async def _opened_world(layout: Layout, kind: str = "memory") -> AsyncGenerator[World]:
    """Open a world with new tables, which have rows of other programs."""
    async with AsyncExitStack() as stack:
        store: TableStore = MemoryStore()
        if kind != "memory":
            backend = Shuffled() if kind == "unordered" else Between()
            await backend.open()
            stack.push_async_callback(backend.close)
            store = backend
        turns = Turns(Random(0))
        names = ["older", "newer", *MOVERS]
        world = World(
            layout,
            await stack.enter_async_context(opened(turns, names, layout.old, layout.new, store=store)),
            turns,
        )
        stack.enter_context(quick_runs())
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setattr(phases.OnlineRekey, "wait_until_known", world.wait_until_known)
        await insert_foreign(world.db("older"), set(layout.tables))
        yield world


async def carry_out(layout: Layout, steps: Sequence[Step], kind: str = "memory") -> None:
    """
    Do all steps with new tables, and check after each of them what there is.

    Args:
        layout: The two models.
        steps: What is done.
        kind: The store: "memory", "engine", or "unordered".
    """
    async with _opened_world(layout, kind) as world:
        for step in steps:
            await world.do(step)
            if isinstance(step, Stage) and step.ends and step.name in ("back", "finalize"):
                await world.check_rows("older" if step.name == "back" else "newer")


async def go_there_and_back(layout: Layout, entities: Sequence[Values]) -> None:
    """
    Move entities of which some may not get their newer keys, and let all go back.

    Args:
        layout: The two models.
        entities: The fields of each by the older model; newer keys may be those of others.
    """
    async with _opened_world(layout) as world:
        for values in entities:
            truth = Truth(values, {})
            entity = world.truths.make("older", truth)
            await world.db("older").insert(entity)
            world.truths.note("older", entity, truth, inserted=True)
            world.truths.add(truth)
        db = world.db("mover1")
        plan = await plan_rekey(db, layout.old, layout.new, online=True, full=True)
        moved = await run_move(db, layout.new, no_blind_writers=True, on_collision="skip", lease=LEASE)
        assert plan.entities == len(entities)
        assert all(re.search(_REMEDY, each) for each in moved.failures), moved
        back = await roll_back_move(db, layout.new, lease=LEASE)
        assert back.complete, back
        await world.check_rows("older")


_REMEDY = "keep one of the two|let the templates of"
"""What is said of an entity that cannot get its newer key."""
