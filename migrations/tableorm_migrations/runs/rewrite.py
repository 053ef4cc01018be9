"""
`run_rewrite`: several processes rewrite the rows of older versions together.
"""

from collections.abc import Callable
from contextlib import aclosing
from functools import partial

from tableorm import Database, Entity
from tableorm.audit.ranges import AuditRange, purpose_of
from tableorm.connection.connection import connection_of
from tableorm.models.kinds import KindSet
from tableorm.writes.bulk.pacing import Pace

from ..rewrite import find_rewritten, rewrite_range
from .plan import plan_ranges
from .process import Job, RunOptions, RunSteps, carry_out
from .report import RunReport
from .rows import RunCounts

__all__ = ["run_rewrite"]


async def run_rewrite(
    db: Database,
    *models: type[Entity],
    name: str | None = None,
    parallel: int = 8,
    lease: float = 30.0,
    rate: float | None = None,
    on_progress: Callable[[RunReport], object] | None = None,
) -> RunReport:
    """
    Write every row of an older version as the current version of its model, together with other processes.

    Any number of processes make the same call, at the same time or later, and work on different ranges of keys. If one
    is killed, the others take over what it had; if all are, the next call goes on from where they were. What is done to
    a row is what `rewrite` does.

    Args:
        db: The open database.
        models: The models; an abstract base stands for all of its classes.
        name: Name of the run. A run that has ended is not done again under its name, unless something failed. Without a
            name, a run that has ended is done again.
        parallel: How many ranges this process works on at the same time.
        lease: After how many seconds others take over the ranges of this process if it has died.
        rate: How many rows this process may read in a second; None for any number.
        on_progress: Called with the report so far, again and again.

    Returns:
        What all processes have done, when the last one is done.

    Raises:
        ModelError: There is no model, or one without a kind; an argument is refused; or the run of that name is of
            other models, or of other versions or declarations of them.
        AccessDenied: In a scope, since a run is of whole tables.
        TableNotFound: There is no such table.
    """
    connection = connection_of(db)
    connection.require_open()
    connection.boundary.check_whole_table("run_rewrite()")
    schemas, kinds = find_rewritten("run_rewrite", models)
    versions = ",".join(sorted(f"{each.table}/{each.kind}:{each.version}" for each in schemas))
    tables = [(each.table, each.schemas) for each in kinds.values()]
    job = Job(
        verb="run_rewrite",
        what=f"rewrite {', '.join(sorted(schema.name for schema in schemas))}",
        purpose=purpose_of(f"rewrite {versions}", schemas).hex(),
        tables=kinds,
        plan=partial(plan_ranges, db, "run_rewrite", tables),
        work=lambda part, pace: _rewrite(db, kinds[part.table], part, pace),
    )
    options = RunOptions(name=name, parallel=parallel, lease=lease, rate=rate, on_progress=on_progress)
    return await carry_out(db, job, options)


async def _rewrite(db: Database, kinds: KindSet, part: AuditRange, pace: Pace | None) -> RunSteps:
    async with aclosing(rewrite_range(db, kinds, part, pace)) as steps:
        async for done, counts in steps:
            yield (
                done,
                RunCounts.of(
                    entities=counts.entities, written=counts.rewritten, failed=counts.failed, failures=counts.failures
                ),
            )
