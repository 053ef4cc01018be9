"""
An online re-key, phase by phase: entities get their newer keys while programs read and write them.
"""

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Literal

import attrs

from tableorm import Database, DecodeError, Entity, EntityExists, ModelError, NotSupported
from tableorm.connection.connection import Connection
from tableorm.connection.rows import read_live
from tableorm.errors import counted, shown
from tableorm.jobs.counts import JobCounts
from tableorm.jobs.process import Job, RunOptions, carry_out, default_name, is_open
from tableorm.jobs.report import RunReport
from tableorm.jobs.rows import read_run
from tableorm.rekey.chunks import WindowReport
from tableorm.rekey.finalize import finalize_window
from tableorm.rekey.phases import RekeyPhase, StoredPhase
from tableorm.rekey.rollback import roll_back_window
from tableorm.rekey.steps import resolve_window
from tableorm.rekey.window import move_window
from tableorm.stores import Row

from .comparison import comparison
from .phases import OnlineRekey, rekey_filter
from .sides import CHUNK, rekey_job, written_side

_MOST_PASSES = 20
_PAUSE = 0.1  # seconds between two looks whether another process has sealed
_FEW_RANGES = 8  # of a table that is looked through for the few tentative rows of those who died

OnProgress = Callable[[RunReport], object] | None
MoveJob = Job[JobCounts, RunReport]


async def rekey_phase(db: Database, model: type[Entity]) -> str:
    """
    Return the phase of an online re-key: "expand", "move", "sealed", "done" or "back".

        print(await rekey_phase(db, Order))

    Args:
        db: The open database.
        model: The newer model, which has `moved_from=`.

    Raises:
        ModelError: The model has no `moved_from=`.
        AccessDenied: In a scope.
    """
    return (await OnlineRekey.of("rekey_phase", db, model).read_phase()).phase.value


async def run_move(
    db: Database,
    model: type[Entity],
    *,
    no_blind_writers: bool = False,
    on_collision: Literal["stop", "skip"] = "stop",
    parallel: int = 32,
    lease: float = 30.0,
    rate: float | None = None,
    on_progress: OnProgress = None,
) -> RunReport:
    """
    Move the entities of an older model to the keys of a newer one, while programs keep reading and writing.

        moved = await run_move(db, Order, no_blind_writers=True)
        print(moved.complete, moved.written)

    The first call begins the phase *move*. Several processes can share the work. All entities are scanned repeatedly,
    until none with its older key is found. Programs that know only the older model may insert more of them later, so
    call this again before you seal the re-key.

    Args:
        db: The open database.
        model: The newer model, whose `moved_from=` names the older one.
        no_blind_writers: Your confirmation that no program that knows only the older model writes without an ETag:
            upserts, `if_match="*"`, bulk upserts. tableorm can't check this. Required to begin.
        on_collision: What happens if two entities get the same newer key: "stop" raises an error, "skip" reports the
            second one and continues. In both cases neither changes, and the re-key can't be sealed until one of them is
            deleted.
        parallel: Number of key ranges that this process works on in parallel.
        lease: The seconds after which other processes take over the ranges of a process that died.
        rate: The most rows that this process reads per second; None for no limit.
        on_progress: Called repeatedly with the report of the current pass.

    Returns:
        The work of all passes. `others` counts the transactions with several operations, and these operations. The
        report isn't `complete` if even the last of 20 passes has found entities with their older keys.

    Raises:
        ModelError: The model has no `moved_from=`, or an argument is rejected.
        NotSupported: `no_blind_writers` isn't True, or the re-key is in another phase.
        EntityExists: Two entities get the same newer key.
        AccessDenied: In a scope.
        TableNotFound: The table of the older model doesn't exist.
    """
    rekey = OnlineRekey.of("run_move", db, model)
    if on_collision not in ("stop", "skip"):
        raise ModelError(f"run_move(on_collision={shown(on_collision)}) is rejected: give 'stop' or 'skip'")
    options = RunOptions(parallel=parallel, lease=lease, rate=rate, on_progress=on_progress)
    options.check(rekey.verb)
    phase = await rekey.read_phase(RekeyPhase.EXPAND, RekeyPhase.MOVE)
    if phase.phase is RekeyPhase.EXPAND:
        if no_blind_writers is not True:
            raise NotSupported(
                f"{rekey.verb} is rejected: an upsert, or a write with if_match='*', by a program that knows "
                f"{rekey.rekeying.old.name} alone would overwrite the record of where an entity is; stop such programs "
                "or withdraw their permission, and pass no_blind_writers=True (the command: --no-blind-writers)"
            )
        await db.create_tables(model)
        await rekey.enter(phase, RekeyPhase.MOVE)
    old, new = rekey.rekeying.old, rekey.rekeying.new

    async def move(rows: Iterable[Row]) -> WindowReport:
        await rekey.require(RekeyPhase.MOVE)
        report = await move_window(rekey.connection, rekey.rekeying, rows)
        if report.collisions and on_collision == "stop":
            first = report.collisions[0]
            raise EntityExists(f"{rekey.verb} has stopped: {first.place}: {first.error}")
        return report

    def partition_of(row: Row) -> str:
        try:
            made = rekey.rekeying.to_new(rekey.old_kinds.load(row))
            return new.make_keys(made.__dict__)[0]
        except Exception:  # noqa: BLE001 - the functions are the user's; who moves the row says what is wrong
            return ""

    resolve = partial(resolve_window, rekey.connection, rekey.rekeying)

    # What derives other rows needs the entities in each step, and so more memory.
    chunk = CHUNK if old.derived or new.derived else 2 * CHUNK

    def make_pass() -> MoveJob:
        return rekey_job(
            rekey,
            "move",
            written_side(rekey, rekey.old_kinds, rekey.filter_left(), move, parallel, partition_of, chunk=chunk),
            written_side(rekey, rekey.new_kinds, rekey_filter(rekey.new_kinds), resolve, parallel, ranges=_FEW_RANGES),
        )

    why = f"programs that know {old.name} alone insert as fast; call run_move() again when they insert less"
    return await _repeat(rekey.connection, make_pass, options, lambda report: report.written, why)


async def _repeat(
    db: Connection,
    make_pass: Callable[[], MoveJob],
    options: RunOptions[RunReport],
    found: Callable[[RunReport], int],
    why: str,
) -> RunReport:
    """
    Go through everything again and again, until a pass finds nothing to move, or something has failed.

    Args:
        db: The database.
        make_pass: Returns the job of a pass.
        options: How this process takes part in it.
        found: Returns how many rows a pass has found to move.
        why: Why even the last pass may find some, and what to do.

    Returns:
        What was done in all passes; it is complete only if the last one has found nothing to move.
    """
    job = make_pass()
    begun = await is_open(db, job)  # what earlier calls have gone through of a pass may have changed since
    report = total = await carry_out(db, job, options)
    for _ in range(_MOST_PASSES - 1):
        if not begun and not (report.complete and found(report)):
            return total
        begun, report = False, await carry_out(db, make_pass(), options)
        total = _add(total, report)
    if not report.complete or not found(report):
        return total
    problem = f"even the last of {_MOST_PASSES} passes has found {counted(found(report), 'row')} to move: {why}"
    return attrs.evolve(total, state="failed", failed=1, failures=(problem,))


def _add(total: RunReport, report: RunReport) -> RunReport:
    """Return the report of all passes: with what each has done, and the failures of the last one."""
    return attrs.evolve(
        report,
        entities=total.entities + report.entities,
        written=total.written + report.written,
        others={
            name: total.others.get(name, 0) + report.others.get(name, 0) for name in {**total.others, **report.others}
        },
        seconds=total.seconds + report.seconds,
    )


def _since(phase: StoredPhase) -> str:
    """Return when a phase began, for names of runs: what was verified in an earlier one does not count."""
    return f"{phase.since:%Y-%m-%dT%H:%M:%S.%f}"


async def verify_move(
    db: Database,
    model: type[Entity],
    *,
    parallel: int = 8,
    lease: float = 30.0,
    rate: float | None = None,
    on_progress: OnProgress = None,
) -> RunReport:
    """
    Compare the moved entities with the rows kept at their older keys. Nothing is changed.

        verified = await verify_move(db, Order)
        print(verified.complete, verified.failures)

    Several processes can share the work. Entities that were written after their move aren't compared, but counted in
    `others["written since"]`.

    Args:
        db: The open database.
        model: The newer model.
        parallel: Number of key ranges that this process works on in parallel.
        lease: The seconds after which other processes take over the ranges of a process that died.
        rate: The most rows that this process reads per second; None for no limit.
        on_progress: Called repeatedly with the report so far.

    Returns:
        The findings. The report is `complete` if nothing differs and no entity has its older key; otherwise `failures`
        has samples.

    Raises:
        ModelError: The model has no `moved_from=`, or an argument is rejected.
        NotSupported: The re-key is in another phase than *move* or *sealed*.
        AccessDenied: In a scope.
    """
    rekey = OnlineRekey.of("verify_move", db, model)
    phase = await rekey.read_phase(RekeyPhase.MOVE, RekeyPhase.SEALED)
    options = RunOptions(parallel=parallel, lease=lease, rate=rate, on_progress=on_progress)
    return await carry_out(rekey.connection, comparison(rekey, f"verify {_since(phase)} move of"), options)


async def seal_move(
    db: Database,
    model: type[Entity],
    *,
    no_old_programs: bool = False,
    parallel: int = 8,
    lease: float = 30.0,
    rate: float | None = None,
    on_progress: OnProgress = None,
) -> RunReport:
    """
    Verify everything a second time, and then end all reads of the older keys. This can't be rolled back.

        sealed = await seal_move(db, Order, no_old_programs=True)
        print(sealed.complete)

    The call waits until the phase *move* is two minutes old: by then every program knows the phase. If another call has
    begun to verify, this one joins it. Unless that call then seals the re-key, everything is verified again, because
    some of it may have been verified before `no_old_programs` was true.

    Args:
        db: The open database.
        model: The newer model.
        no_old_programs: Your confirmation that no program that knows only the older model is running. tableorm can't
            check this.
        parallel: Number of key ranges that this process works on in parallel.
        lease: The seconds after which other processes take over the ranges of a process that died.
        rate: The most rows that this process reads per second; None for no limit.
        on_progress: Called repeatedly with the report so far.

    Returns:
        The findings of the second verification. The re-key is sealed if the report is `complete`.

    Raises:
        ModelError: The model has no `moved_from=`, or an argument is rejected.
        NotSupported: `no_old_programs` isn't True, `verify_move` hasn't succeeded, or the re-key is in another phase.
        AccessDenied: In a scope.
    """
    rekey = OnlineRekey.of("seal_move", db, model)
    phase = await rekey.read_phase(RekeyPhase.MOVE, remedy="run_move() and verify_move() come first")
    if no_old_programs is not True:
        raise NotSupported(
            f"{rekey.verb} is rejected: a program that knows {rekey.rekeying.old.name} alone would keep writing to "
            "keys that are no longer read; stop every such program, and pass no_old_programs=True (the command: "
            "--no-old-programs)"
        )
    job = comparison(rekey, f"verify {_since(phase)} move of")
    first, _ = await read_run(rekey.connection, default_name(job.what, job.purpose))
    if first is None or first.state != "done":
        problem = "nothing was verified since the move began; run verify_move()"
        if first is not None:
            problem = "verify_move() is under way; wait for it"
        if first is not None and first.state == "failed":
            problem = "the last verify_move() has failed; mend what it names, and run it again"
        raise NotSupported(f"{rekey.verb} is rejected: {problem}")
    await rekey.wait_until_known(phase)
    job = comparison(rekey, f"verify again {_since(phase)} move of")
    options = RunOptions(parallel=parallel, lease=lease, rate=rate, on_progress=on_progress)
    begun = await is_open(rekey.connection, job)
    report = await carry_out(rekey.connection, job, options)
    if begun:  # then some ranges may have been verified before this call
        if report.complete and await _wait_for_seal(rekey, lease):
            return report
        report = await carry_out(rekey.connection, job, options)
    if report.complete:
        await rekey.enter(phase, RekeyPhase.SEALED)
        await rekey.read_phase(RekeyPhase.SEALED, RekeyPhase.DONE, remedy="another process has gone on meanwhile")
    return report


async def _wait_for_seal(rekey: OnlineRekey, seconds: float) -> bool:
    """
    Return whether the process that has begun a verification seals the re-key within some seconds.

    Raises:
        NotSupported: Another process lets entities go back.
    """
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while True:
        sealed = (RekeyPhase.SEALED, RekeyPhase.DONE)
        found = await rekey.read_phase(RekeyPhase.MOVE, *sealed, remedy="another process has gone on meanwhile")
        if found.phase in sealed or loop.time() >= end:
            return found.phase in sealed
        await asyncio.sleep(min(_PAUSE, seconds))


async def finalize_move(
    db: Database,
    model: type[Entity],
    *,
    parallel: int = 8,
    lease: float = 30.0,
    rate: float | None = None,
    on_progress: OnProgress = None,
) -> RunReport:
    """
    Delete the rows kept at the older keys, after the re-key was sealed. Several processes can share the work.

        await finalize_move(db, Order)

    The call waits until the phase *sealed* is two minutes old.

    Args:
        db: The open database.
        model: The newer model.
        parallel: Number of key ranges that this process works on in parallel.
        lease: The seconds after which other processes take over the ranges of a process that died.
        rate: The most rows that this process reads per second; None for no limit.
        on_progress: Called repeatedly with the report so far.

    Returns:
        The number of deleted rows, as `written`. Afterwards you can remove `moved_from=` from the model.

    Raises:
        ModelError: The model has no `moved_from=`, or an argument is rejected.
        NotSupported: The re-key is in another phase than *sealed* or *done*.
        AccessDenied: In a scope.
    """
    rekey = OnlineRekey.of("finalize_move", db, model)
    options = RunOptions(parallel=parallel, lease=lease, rate=rate, on_progress=on_progress)
    options.check(rekey.verb)
    phase = await rekey.read_phase(RekeyPhase.SEALED, RekeyPhase.DONE)
    await rekey.wait_until_known(phase)
    connection, rekeying = rekey.connection, rekey.rekeying

    async def confirm(rows: Iterable[Row]) -> WindowReport:
        found = await resolve_window(connection, rekeying, rows)
        for failure in found.failures:
            with suppress(DecodeError):  # nobody can take such a row for an entity
                if await read_live(connection, failure.place) is not None:
                    raise failure.error  # without its forward it would be no entity: no forward is deleted before
        return found

    job = rekey_job(
        rekey,
        "finalize move of",
        written_side(rekey, rekey.new_kinds, rekey_filter(rekey.new_kinds), confirm, parallel, ranges=_FEW_RANGES),
        written_side(
            rekey,
            rekey.old_kinds,
            rekey_filter(rekey.old_kinds),
            partial(finalize_window, connection, rekeying, confirmed=True),
            parallel,
        ),
    )
    report = await carry_out(rekey.connection, job, options)
    if report.complete:
        await rekey.enter(await rekey.read_phase(RekeyPhase.SEALED, RekeyPhase.DONE), RekeyPhase.DONE)
    return report


async def roll_back_move(
    db: Database,
    model: type[Entity],
    *,
    parallel: int = 8,
    lease: float = 30.0,
    rate: float | None = None,
    on_progress: OnProgress = None,
) -> RunReport:
    """
    Move all entities back to their older keys, with everything written since. Several processes can share the work.

        await roll_back_move(db, Order)

    The first call begins the phase *back*, and waits two minutes until every program knows it. Once no entity is at a
    newer key, the phase *expand* begins again.

    Args:
        db: The open database.
        model: The newer model.
        parallel: Number of key ranges that this process works on in parallel.
        lease: The seconds after which other processes take over the ranges of a process that died.
        rate: The most rows that this process reads per second; None for no limit.
        on_progress: Called repeatedly with the report of the current pass.

    Returns:
        The work of all passes.

    Raises:
        ModelError: The model has no `moved_from=`, or an argument is rejected.
        NotSupported: The re-key is in another phase than *move* or *back*: a sealed one can't be rolled back.
        AccessDenied: In a scope.
    """
    rekey = OnlineRekey.of("roll_back_move", db, model)
    options = RunOptions(parallel=parallel, lease=lease, rate=rate, on_progress=on_progress)
    options.check(rekey.verb)
    remedy = (
        "once a re-key is sealed, only another re-key can restore the older keys; after run_rekey(), call "
        "roll_back_rekey() (the command: rollback --offline)"
    )
    phase = await rekey.read_phase(RekeyPhase.MOVE, RekeyPhase.BACK, remedy=remedy)
    phase = await rekey.enter(phase, RekeyPhase.BACK)
    await rekey.wait_until_known(phase)

    async def back(rows: Iterable[Row]) -> WindowReport:
        await rekey.require(RekeyPhase.BACK)
        return await roll_back_window(rekey.connection, rekey.rekeying, rows)

    def make_pass() -> MoveJob:
        return rekey_job(
            rekey,
            "roll back move of",
            written_side(rekey, rekey.new_kinds, rekey_filter(rekey.new_kinds, entities=True), back, parallel),
            written_side(rekey, rekey.old_kinds, rekey_filter(rekey.old_kinds), back, parallel),
        )

    why = "some program goes on to move entities; end it, and call roll_back_move() again"
    report = await _repeat(rekey.connection, make_pass, options, lambda report: report.entities, why)
    if report.complete:
        await rekey.enter(await rekey.read_phase(RekeyPhase.BACK, RekeyPhase.EXPAND), RekeyPhase.EXPAND)
    return report
