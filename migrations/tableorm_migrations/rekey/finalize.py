"""
`finalize_rekey`: deletes the entities of the older model, after both sides were compared twice.
"""

from collections.abc import Callable
from typing import Any

import attrs

from tableorm import Database, Entity, Key, NotSupported, RunReport
from tableorm.connection.connection import connection_of
from tableorm.jobs.counts import JobCounts
from tableorm.jobs.process import RunOptions, carry_out
from tableorm.jobs.rows import counts_of, read_run
from tableorm.protocol.edm import ticks_from_text
from tableorm.rekey.phases import RekeyPhase
from tableorm.stores import Row

from .layouts import Layouts, Merge
from .pages import delete_rows
from .sides import make_job
from .verify import SOURCES, verification


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
    Delete the entities of the older model that `run_rekey` has copied, together with other processes.

    First everything is verified a second time. Nothing is deleted unless `verify_rekey` and this second verification
    found that both sides agree, and that no entity of the older model was written between the two. Each entity is
    deleted under its ETag, with its index entries and the like, and only if it was not written since. What was dropped
    by `to_new` is deleted too.

    Args:
        db: The open database that has the entities of the older model.
        old: The older model.
        new: The newer model.
        to_new: What `run_rekey` was given.
        merge: What `run_rekey` was given.
        target: The open database that has the entities of the newer model, if it is another one.
        parallel: How many ranges this process works on at the same time.
        lease: After how many seconds others take over the ranges of this process if it has died.
        rate: How many rows this process may read in a second; None for any number.
        on_progress: Called with the report so far, again and again: of the verification, then of the deletion.

    Returns:
        What all processes have deleted, as `written`, when the last one is done. Its failures are entities that were
        written since the verification, and have stayed.

    Raises:
        ModelError: The models do not fit, or an argument is rejected.
        NotSupported: No verification was clean; or the second one was not, or found other entities than the first.
        AccessDenied: In a scope, since a run is of whole tables.
        TableNotFound: There is no table of one of the models.
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
                key = Key(layouts.old.model, layouts.old.table_name(), row["PartitionKey"], row["RowKey"])
                counts.fail(key, "was written after it was verified, and stays")
        await delete_rows(layouts.db, layouts.old, unchanged, counts)

    job = make_job("finalize_rekey", f"finalize {layouts}", layouts.purpose, layouts.old_side(delete))
    report = await carry_out(connection, job, attrs.evolve(options, name=layouts.run_name("finalize")))
    if report.complete:
        await layouts.enter(RekeyPhase.DONE)
    return report
