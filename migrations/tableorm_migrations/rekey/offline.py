"""
`run_rekey`: several processes copy all entities of a model to the keys of another one, while nobody writes; and
`roll_back_rekey`, which deletes what was copied, so that programs go on with the older model.

The older entities have stayed, so each of them gives what was copied of it. What is at that key is deleted under its
ETag if it has the same content still. Anything else may be there alone, and stays unless the caller says otherwise.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Literal

import attrs

from tableorm import (
    AccessDenied,
    Conflict,
    Database,
    DecodeError,
    Entity,
    EntityExists,
    EntityNotFound,
    ModelError,
    NotSupported,
    OutcomeUnknown,
    RunReport,
    TableNotFound,
    Unavailable,
)
from tableorm.connection.connection import connection_of
from tableorm.connection.rows import read_row
from tableorm.connection.tasks import map_together
from tableorm.errors import shown
from tableorm.jobs.counts import JobCounts
from tableorm.jobs.process import Crew, RunOptions, carry_out
from tableorm.jobs.rows import Run, read_run
from tableorm.rekey.phases import RekeyPhase
from tableorm.stores import Row, RowAddress, row_keys
from tableorm.writes.bulk.bulk import insert_plainly
from tableorm.writes.commit import write_change
from tableorm.writes.stages.change import plain_insert, plain_save

from .hashing import hash_entity
from .layouts import Layouts, Merge
from .sides import WINDOW, Window, make_job

_ATTEMPTS = 10


async def run_rekey(
    db: Database,
    old: type[Entity],
    new: type[Entity],
    *,
    writers_stopped: bool = False,
    to_new: Callable[[Any], Any] | None = None,
    merge: Merge | None = None,
    on_collision: Literal["stop", "skip"] = "stop",
    target: Database | None = None,
    parallel: int = 32,
    lease: float = 30.0,
    rate: float | None = None,
    on_progress: Callable[[RunReport], object] | None = None,
) -> RunReport:
    """
    Copy the entities of a model to the keys of another model, while the programs that write them are stopped.

        copied = await run_rekey(db, Reading, Peak, to_new=to_peak, writers_stopped=True)
        print(copied.complete, copied.written)

    The older entities stay until `finalize_rekey` deletes them. Any number of processes can make the same call, in
    parallel or later. If all are killed, the next call resumes: an entity that is at its new key already, with the same
    content, counts as copied.

    Args:
        db: The open database that has the entities of the older model.
        old: The older model.
        new: The newer model.
        writers_stopped: Your confirmation that no program writes entities of either model. tableorm can't check this.
        to_new: Converts an older entity to a newer one, to a list of newer ones, or to None to drop it. By default, the
            functions in `moved_from=` of the newer model are used, or fields are copied by name.
        merge: Takes the entity at a key and another one that gets the same key, and returns the entity to store for
            both. It must be idempotent, because it may be repeated after a crash.
        on_collision: What happens if two entities get one key and there is no `merge`: "stop" raises an error, "skip"
            reports it and continues. In both cases nothing is overwritten.
        target: The open database that receives the newer entities, if it's another one.
        parallel: Number of key ranges that this process works on in parallel.
        lease: The seconds after which other processes take over the ranges of a process that died.
        rate: The most rows that this process reads per second; None for no limit.
        on_progress: Called repeatedly with the report so far.

    Returns:
        The work of all processes, once the last one has finished. `others["transactions"]` is the number of requests
        that wrote the entities.

    Raises:
        ModelError: The models don't fit together, or an argument is rejected.
        NotSupported: `writers_stopped` isn't True, or this re-key can't keep the rows of these models consistent.
        EntityExists: Two entities get one key.
        AccessDenied: In a scope, because a run covers whole tables.
        TableNotFound: The table of the older model doesn't exist.
    """
    layouts = Layouts.of("run_rekey", db, (old, new), to_new, target, merge)
    if writers_stopped is not True:
        raise NotSupported(
            f"{layouts.label} is rejected: what is written meanwhile may be lost; stop every "
            "program that writes these models, and say writers_stopped=True (the command: "
            "--writers-stopped); or re-key online, by moved_from="
        )
    if on_collision not in ("stop", "skip"):
        raise ModelError(f"run_rekey(on_collision={shown(on_collision)}) is rejected: give 'stop' or 'skip'")
    await layouts.enter(RekeyPhase.SEALED)
    copy, crew = _Copy(layouts, on_collision == "skip"), Crew()
    window = Window(copy.sort, copy.insert, max(1, WINDOW // parallel if parallel > 0 else WINDOW), crew)

    async def prepare() -> None:
        await layouts.target.create_tables(new)
        await layouts.forget_runs("verify", "verify again", "finalize", "roll back")

    job = make_job(
        "run_rekey",
        f"re-key {layouts}",
        layouts.purpose,
        layouts.old_side(window),
        crew=crew,
        prepare=prepare,
    )
    options = RunOptions(parallel=parallel, lease=lease, rate=rate, on_progress=on_progress)
    return await carry_out(connection_of(db), job, options)


@attrs.frozen(eq=False)
class _Copy:
    """
    The copying of entities.

    Args:
        layouts: The two models.
        skip: Whether to go on after a collision.
    """

    layouts: Layouts
    skip: bool

    async def sort(self, rows: Sequence[Row], counts: JobCounts) -> list[tuple[str, Row]]:
        """Return the rows whose entities are copied, each with a newer PartitionKey."""
        good: list[tuple[str, Row]] = []
        for number, row in enumerate(rows):
            if number % 100 == 99:
                await connection_of(self.layouts.db).yield_to_loop(1)
            try:
                made = self.layouts.make(row, counts)
            except Exception as error:  # noqa: BLE001 - the functions are the user's: one bad row is a failure, and no more
                counts.fail(row, error)
                continue
            if made:
                good.append((made[0][1][0], row))
            elif made is not None:
                counts.count("dropped")
        return good

    async def insert(self, rows: Iterable[Row], counts: JobCounts) -> None:
        """Insert what some rows become, and settle what was rejected."""
        layouts, refused = self.layouts, dict[int, Exception]()
        sources: list[tuple[Any, Row]] = []
        async with layouts.target.bulk(errors="report") as bulk:
            for row in rows:
                for made in layouts.convert(layouts.load(row)):
                    sources.append((made, row))
                    try:
                        await insert_plainly(bulk, made)
                    except Exception as error:  # noqa: BLE001 - what one entity cannot be written for concerns no other
                        refused[id(made)] = error
        refused |= {id(each.entity): each.error for each in bulk.report.failed}
        # What was written has an ETag. A bulk keeps but the first of its errors.
        left = [(made, row) for made, row in sources if made.etag is None]
        for made, row in left:
            problem = await self._settle(made, refused.get(id(made)))
            if problem is not None:
                counts.fail(row, problem)
        counts.written += len(sources) - len(left)
        counts.count("transactions", bulk.report.requests)

    async def _settle(self, entity: Any, error: Exception | None) -> str | None:
        """
        Look why an entity was not inserted, and do what is left to do; return what prevents it.

        Raises:
            TableOrmError: The store cannot be reached; or two entities get one key, and that is to stop everything.
        """
        if isinstance(error, AccessDenied | TableNotFound | Unavailable):
            raise error
        if error is not None and not isinstance(error, Conflict | OutcomeUnknown):
            return f"{type(error).__name__}: {error}"
        try:
            problem = await self._settle_existing(entity)
        except DecodeError as damage:
            problem = f"its new key is taken by another row: {damage}"
        if problem is not None and not self.skip:
            raise EntityExists(f"run_rekey() has stopped: {problem}", None, entity)
        return problem

    async def _settle_existing(self, entity: Any) -> str | None:
        target = self.layouts.target
        for _ in range(_ATTEMPTS):
            stored: Any = await target.get_or_none(entity.key)
            with suppress(EntityExists, OutcomeUnknown):
                if stored is None:
                    await write_change(connection_of(target), plain_insert(entity, "insert"))
                    return None
                same = hash_entity(self.layouts.new, stored) == hash_entity(self.layouts.new, entity)
                if same or self.layouts.holds(stored, entity):
                    return None
                if self.layouts.merge is None:
                    return f"{entity.key} is the key of another entity already, which has other content"
                with suppress(Conflict, EntityNotFound):
                    await write_change(connection_of(target), plain_save(stored, "save"))
                    return None
        return f"{entity.key} keeps being changed by another client; stop all writers"


async def roll_back_rekey(
    db: Database,
    old: type[Entity],
    new: type[Entity],
    *,
    no_new_programs: bool = False,
    to_new: Callable[[Any], Any] | None = None,
    merge: Merge | None = None,
    on_difference: Literal["keep", "delete"] = "keep",
    target: Database | None = None,
    parallel: int = 8,
    lease: float = 30.0,
    rate: float | None = None,
    on_progress: Callable[[RunReport], object] | None = None,
) -> RunReport:
    """
    Abandon a re-key: delete the copies made by `run_rekey`, so that programs keep using the older model.

        await roll_back_rekey(db, Reading, Peak, to_new=to_peak, no_new_programs=True)

    This works until `finalize_rekey` is called. The older entities are still there, and aren't written. If the newer
    model has `moved_from=`, programs that use it read the older keys again. Several processes can share the work.

    Args:
        db: The open database that has the entities of the older model.
        old: The older model.
        new: The newer model.
        no_new_programs: Your confirmation that no program uses the newer model, and none copies. tableorm can't check
            this. A program that has read or written the newer model uses the newer keys until it ends.
        to_new: What was passed to `run_rekey`.
        merge: What was passed to `run_rekey`.
        on_difference: What happens to newer entities that differ from their older ones, because one of the two was
            written after the copy: "keep" reports them, "delete" deletes all entities of the newer model.
        target: The open database that has the newer entities, if it's another one.
        parallel: Number of key ranges that this process works on in parallel.
        lease: The seconds after which other processes take over the ranges of a process that died.
        rate: The most rows that this process reads per second; None for no limit.
        on_progress: Called repeatedly with the report so far.

    Returns:
        The entities that all processes have deleted, as `written`. The report is `complete` if no entity of the newer
        model is left; otherwise `failures` has samples, and the re-key isn't rolled back.

    Raises:
        ModelError: The models don't fit together, or an argument is rejected.
        NotSupported: `no_new_programs` isn't True, or older entities are gone, because the re-key is online or
            `finalize_rekey` was called.
        AccessDenied: In a scope, because a run covers whole tables.
        TableNotFound: The table of one of the models doesn't exist.
        TransactionFailed: A process is copying or verifying.
    """
    layouts = Layouts.of("roll_back_rekey", db, (old, new), to_new, target, merge)
    if no_new_programs is not True:
        raise NotSupported(
            f"{layouts.label} is rejected: a program that has used {new.__name__} looks at the newer keys until it "
            "ends, and would lose what it writes; stop every such program, and pass no_new_programs=True (the command: "
            "--no-new-programs)"
        )
    if on_difference not in ("keep", "delete"):
        raise ModelError(f"roll_back_rekey(on_difference={shown(on_difference)}) is rejected: give 'keep' or 'delete'")
    await layouts.check_way_back()
    finalized: Run | None = None
    with suppress(TableNotFound):
        finalized, _ = await read_run(connection_of(db), layouts.run_name("finalize"))
    if finalized is not None:
        raise NotSupported(
            f"{layouts.label} is rejected: finalize_rekey() has deleted entities of {old.__name__} already, or begun "
            "to; go on with it, or copy the other way, by a model that has the older keys"
        )
    undo = _Undoing(layouts)
    sides = [layouts.new_side(undo.delete_all)]
    if on_difference == "keep":
        sides = [layouts.old_side(undo.delete_copies), layouts.new_side(undo.report_left)]
    job = make_job(
        "roll_back_rekey",
        f"roll back {layouts}",
        layouts.purpose,
        *sides,
        prepare=partial(layouts.forget_runs, "re-key", "verify", "verify again"),
    )
    report = await carry_out(
        connection_of(db),
        job,
        RunOptions(parallel=parallel, lease=lease, rate=rate, on_progress=on_progress),
    )
    if report.complete:
        await layouts.leave()
    return report


@attrs.frozen(eq=False)
class _Undoing:
    """
    The deletion of copies.

    Args:
        layouts: The two models.
    """

    layouts: Layouts

    async def delete_copies(self, rows: Sequence[Row], counts: JobCounts) -> None:
        """Delete what was copied of some older entities, if it is as it was."""
        layouts = self.layouts
        made: list[tuple[Any, tuple[str, str]]] = []
        for row in rows:
            with suppress(Exception):  # the functions are the user's: what cannot be converted was not copied
                made += layouts.make(row, counts) or []
        found = await map_together(self._find_copy, made)
        await layouts.delete(layouts.target, layouts.new, [row for row in found if row is not None], counts)

    async def _find_copy(self, pair: tuple[Any, tuple[str, str]]) -> Row | None:
        """Return the row that was copied; None if there is none, or it is another one, which is reported in the end."""
        made, keys = pair
        layouts = self.layouts
        row = await read_row(connection_of(layouts.target), RowAddress(layouts.new.table_name(), *keys))
        with suppress(Exception):  # as above
            stored = None if row is None else layouts.new_kinds.load(row)
            return row if stored is not None and layouts.holds(stored, made) else None
        return None

    async def delete_all(self, rows: Sequence[Row], counts: JobCounts) -> None:
        """Delete newer entities, whatever they are."""
        found = [row for row in rows if self.layouts.is_newer(row)]
        counts.entities += len(found)
        await self.layouts.delete(self.layouts.target, self.layouts.new, found, counts)

    async def report_left(self, rows: Sequence[Row], counts: JobCounts) -> None:
        """Count newer entities that differ from what their older entity becomes."""
        old, table = self.layouts.old.name, self.layouts.new.table_name()
        for row in rows:
            if self.layouts.is_newer(row):
                counts.fail(
                    f"{row_keys(row)} of table {table}",
                    f"is not what an entity of {old} gives, and stays; delete it, or give on_difference='delete' (the "
                    "command: --delete-changed)",
                )
