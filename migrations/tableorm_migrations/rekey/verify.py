"""
`verify_rekey`: compares the entities of both models, of which one was copied to the keys of the other; and
`finalize_rekey`, which deletes the entities of the older model after both sides were compared twice.

All rows of both sides are read once. What the older entities become is added up by shares of the newer keys, and so is
what the newer table holds. Where two sums differ, the rows of a share are compared one by one.
"""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from typing import Any

import attrs

from tableorm import Database, Entity, Key, NotSupported, RunReport
from tableorm.connection.connection import connection_of
from tableorm.connection.tasks import map_together
from tableorm.jobs.counts import JobCounts
from tableorm.jobs.process import Job, RunOptions, carry_out
from tableorm.jobs.rows import counts_of, read_run
from tableorm.jobs.scan import pages
from tableorm.keys.ranges import KeyRegion
from tableorm.models.kinds import KindSet
from tableorm.protocol.edm import ticks_from_text
from tableorm.rekey.phases import RekeyPhase
from tableorm.stores import Row, row_keys

from .hashing import SHARES, HashSums, differing_shares, hash_entity, hash_text, share_of
from .layouts import Layouts, Merge
from .sides import make_job

SOURCES = "sources"
"""The sum of the keys and ETags of the older entities: equal sums say that nobody has written in between."""

_SAMPLES = 20
_SHARES_SAMPLED = 2


async def verify_rekey(
    db: Database,
    old: type[Entity],
    new: type[Entity],
    *,
    to_new: Callable[[Any], Any] | None = None,
    merge: Merge | None = None,
    target: Database | None = None,
    parallel: int = 8,
    lease: float = 30.0,
    rate: float | None = None,
    on_progress: Callable[[RunReport], object] | None = None,
) -> RunReport:
    """
    Compare the copies made by `run_rekey` with the older entities. Nothing is changed.

        verified = await verify_rekey(db, Reading, Peak, to_new=to_peak)
        print(verified.complete, verified.failures)

    The rows of both models are read once. With `merge`, each newer entity is read for each of its older ones, and is
    right if another merge wouldn't change it. `finalize_rekey` verifies again before it deletes anything. Several
    processes can share the work.

    Args:
        db: The open database that has the entities of the older model.
        old: The older model.
        new: The newer model.
        to_new: What was passed to `run_rekey`.
        merge: What was passed to `run_rekey`.
        target: The open database that has the entities of the newer model, if it is another one.
        parallel: Number of key ranges that this process works on in parallel.
        lease: The seconds after which other processes take over the ranges of a process that died.
        rate: The most rows that this process reads per second; None for no limit.
        on_progress: Called repeatedly with the report so far.

    Returns:
        The findings of all processes. The report is `complete` if both models agree; otherwise `failures` has samples
        of the differences.

    Raises:
        ModelError: The models don't fit together, or an argument is rejected.
        NotSupported: Rows of the two models can't be distinguished.
        AccessDenied: In a scope, because a run covers whole tables.
        TableNotFound: The table of one of the models doesn't exist.
    """
    layouts = Layouts.of("verify_rekey", db, (old, new), to_new, target, merge)
    options = RunOptions(parallel=parallel, lease=lease, rate=rate, on_progress=on_progress)
    return await carry_out(connection_of(db), verification("verify_rekey", layouts), options)


def verification(verb: str, layouts: Layouts) -> Job[JobCounts, RunReport]:
    """Return the job that compares both sides."""
    check = _Verification(layouts)
    old, new = layouts.old_side(check.count_sources), layouts.new_side(check.count_targets)
    return make_job(verb, f"verify {layouts}", layouts.purpose, old, new, judge=check.judge)


@attrs.frozen(eq=False)
class _Verification:
    layouts: Layouts

    async def count_sources(self, rows: list[Row], counts: JobCounts) -> None:
        """Add up what some older entities become."""
        layouts, sums = self.layouts, HashSums()
        made: list[tuple[Row, Any]] = []
        for row in rows:
            try:
                became = layouts.make(row, counts)
                if became is None:
                    continue
                sums.add(SOURCES, hash_text(*row_keys(row), row["odata.etag"]))
                counts.latest = max(counts.latest, ticks_from_text(row["Timestamp"]))
                for each, keys in became:
                    if layouts.merge is not None:
                        made.append((row, each))
                    else:
                        sums.add(f"expected {share_of(*keys)}", hash_entity(layouts.new, each))
            except Exception as error:  # noqa: BLE001 - the functions are the user's: one bad row is a failure, and no more
                counts.fail(row, error)
        for problem in await map_together(self._compare, made):
            if problem is not None:
                counts.fail(problem)
        counts.add(JobCounts(sums=sums.take()))

    async def count_targets(self, rows: list[Row], counts: JobCounts) -> None:
        """Add up some newer entities."""
        layouts, sums = self.layouts, HashSums()
        for row in rows if layouts.merge is None else ():
            try:
                entity: Any = layouts.new_kinds.load(row)
                if entity is not None:
                    keys = row_keys(row)
                    sums.add(f"found {share_of(*keys)}", hash_entity(layouts.new, entity, keys))
            except Exception as error:  # noqa: BLE001 - as above
                counts.fail(row, error)
        counts.add(JobCounts(sums=sums.take()))

    async def _compare(self, pair: tuple[Row, Any]) -> str | None:
        """Return what is wrong with the newer entity of an older one; None if nothing is."""
        row, made = pair
        try:
            stored: Any = await self.layouts.target.get_or_none(made.key)
            if stored is None:
                return f"{row_keys(row)}: {made.key} is missing"
            same = self.layouts.holds(stored, made)
        except Exception as error:  # noqa: BLE001 - as above
            return f"{row_keys(row)}: {type(error).__name__}: {error}"
        return None if same else f"{row_keys(row)}: {made.key} has other content"

    # Where sums differ

    async def judge(self, counts: JobCounts) -> None:
        """Count what differs between the two sides, if their sums differ."""
        differing = differing_shares(counts.sums)
        if not differing:
            return
        failures: list[str] = []
        for share in [*differing][:_SHARES_SAMPLED]:
            failures += await self._find_differences(share)
        expected_rows, found_rows = (sum(each[side].rows for each in differing.values()) for side in (0, 1))
        failures.append(
            f"the sums of {len(differing)} of {SHARES} shares differ: {self.layouts.old.name} gives {expected_rows} "
            f"entities there, and table {self.layouts.new.table_name()} has {found_rows}"
        )
        counts.failed += max(0, len(failures) - _SAMPLES)
        for each in failures[-_SAMPLES:]:
            counts.fail(each)

    async def _find_differences(self, share: int) -> list[str]:
        """Return some differences between the two sides in a share, found by comparing its rows one by one."""
        layouts, found = self.layouts, list[str]()
        places = dict[tuple[str, str], tuple[str, str]]()
        async with aclosing(_read_all(layouts.db, layouts.old.table_name(), layouts.old_kinds)) as sources:
            async for rows in sources:
                made = [(row, each, keys) for row in rows for each, keys in self._make_quietly(row)]
                inside = [each for each in made if share_of(*each[2]) == share]
                for row, each, keys in inside:
                    if keys in places:
                        found.append(f"{row_keys(row)}: {each.key} is the key of {places[keys]} too; give merge=")
                    places[keys] = row_keys(row)
                compared = await map_together(self._compare, [(row, each) for row, each, _ in inside])
                found += [each for each in compared if each is not None]
                if len(found) >= _SAMPLES:
                    return found[:_SAMPLES]
        async with aclosing(_read_all(layouts.target, layouts.new.table_name(), layouts.new_kinds)) as targets:
            async for rows in targets:
                for row in rows:
                    keys = row_keys(row)
                    known = share_of(*keys) != share or keys in places
                    if not known and layouts.is_newer(row):
                        found.append(f"{row_keys(row)} of table {layouts.new.table_name()}: no entity gives this one")
                if len(found) >= _SAMPLES:
                    break
        return found[:_SAMPLES]

    def _make_quietly(self, row: Row) -> list[tuple[Any, tuple[str, str]]]:
        """Return what a row becomes, with its keys; nothing if it cannot be converted, which was told before."""
        with suppress(Exception):  # as above
            return self.layouts.make(row, JobCounts()) or []
        return []


def _read_all(db: Database, table: str, kinds: KindSet) -> AsyncGenerator[list[Row], None]:
    """Yield the rows of a table by pages."""
    return pages(connection_of(db), table, kinds.filter, [KeyRegion()], None, "verify_rekey")


async def finalize_rekey(
    db: Database,
    old: type[Entity],
    new: type[Entity],
    *,
    to_new: Callable[[Any], Any] | None = None,
    merge: Merge | None = None,
    target: Database | None = None,
    parallel: int = 8,
    lease: float = 30.0,
    rate: float | None = None,
    on_progress: Callable[[RunReport], object] | None = None,
) -> RunReport:
    """
    Delete the older entities that `run_rekey` has copied.

        deleted = await finalize_rekey(db, Reading, Peak, to_new=to_peak)
        print(deleted.complete, deleted.written)

    First everything is verified a second time. Nothing is deleted unless both `verify_rekey` and this second
    verification found that the two models agree, and that no older entity was written between the two. Each entity is
    deleted under its ETag, with its index entries and other derived rows, and only if it wasn't written since. Entities
    that `to_new` dropped are deleted too. Several processes can share the work.

    Args:
        db: The open database that has the entities of the older model.
        old: The older model.
        new: The newer model.
        to_new: What was passed to `run_rekey`.
        merge: What was passed to `run_rekey`.
        target: The open database that has the newer entities, if it's another one.
        parallel: Number of key ranges that this process works on in parallel.
        lease: The seconds after which other processes take over the ranges of a process that died.
        rate: The most rows that this process reads per second; None for no limit.
        on_progress: Called repeatedly with the report so far: of the verification, then of the deletion.

    Returns:
        The entities that all processes have deleted, as `written`. Its failures are entities that were written after
        the verification, and weren't deleted.

    Raises:
        ModelError: The models don't fit together, or an argument is rejected.
        NotSupported: No verification succeeded; or the second one didn't, or found other entities than the first.
        AccessDenied: In a scope, because a run covers whole tables.
        TableNotFound: The table of one of the models doesn't exist.
    """
    layouts = Layouts.of("finalize_rekey", db, (old, new), to_new, target, merge)
    label = layouts.label
    second_name = layouts.run_name("verify again")
    options = RunOptions(name=second_name, parallel=parallel, lease=lease, rate=rate, on_progress=on_progress)
    connection = connection_of(db)
    first, _ = await read_run(connection, layouts.run_name("verify"))
    if first is None or first.state != "done":
        raise NotSupported(f"{label} is rejected: no verification has found that both sides agree; run verify_rekey()")
    again = await carry_out(connection, verification("finalize_rekey", layouts), options)
    if not again.complete:
        found = "; ".join(again.failures[:3])
        raise NotSupported(
            f"{label} is rejected, and nothing was deleted: the second verification has found differences: {found}"
        )
    second, _ = await read_run(connection, second_name)
    verified = JobCounts() if second is None else counts_of(second, JobCounts)
    if verified.sums.get(SOURCES) != counts_of(first, JobCounts).sums.get(SOURCES):
        raise NotSupported(
            f"{label} is rejected, and nothing was deleted: entities of {old.__name__} were written between the two "
            "verifications; stop their writers, then call run_rekey() and verify_rekey() again"
        )

    async def delete(rows: list[Row], counts: JobCounts) -> None:
        unchanged: list[Row] = []
        for row in rows:
            if layouts.old_kinds.schema_of_row(row) is None:
                continue
            counts.entities += 1
            if ticks_from_text(row["Timestamp"]) <= verified.latest:
                unchanged.append(row)
            else:
                key = Key(layouts.old.model, layouts.old.table_name(), *row_keys(row))
                counts.fail(key, "was written after it was verified, and stays")
        await layouts.delete(layouts.db, layouts.old, unchanged, counts)

    job = make_job("finalize_rekey", f"finalize {layouts}", layouts.purpose, layouts.old_side(delete))
    report = await carry_out(connection, job, attrs.evolve(options, name=layouts.run_name("finalize")))
    if report.complete:
        await layouts.enter(RekeyPhase.DONE)
    return report
