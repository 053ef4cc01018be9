"""
`run_build_index`: several processes build an index together.
"""

import json
from collections.abc import Callable
from contextlib import aclosing
from functools import partial
from typing import Any

from tableorm import Database
from tableorm.audit.audit import check_arguments
from tableorm.audit.build import IndexBuild
from tableorm.audit.ranges import AuditRange, purpose_of
from tableorm.connection.connection import connection_of
from tableorm.errors import counted
from tableorm.models.derivation import DerivationOf
from tableorm.writes.bulk.pacing import Pace

from .plan import plan_ranges
from .process import Job, RunOptions, RunSteps, carry_out
from .report import RunReport
from .rows import RunCounts

__all__ = ["run_build_index"]


async def run_build_index(
    db: Database,
    index: DerivationOf[Any],
    *,
    name: str | None = None,
    no_older_writers: bool = False,
    parallel: int = 8,
    lease: float = 30.0,
    rate: float | None = None,
    on_progress: Callable[[RunReport], object] | None = None,
) -> RunReport:
    """
    Build an index, a list, a count or a sum for entities that were there before, together with other processes.

    Any number of processes make the same call, at the same time or later, and work on different ranges of keys. If one
    is killed, the others take over what it had; if all are, the next call goes on from where they were. What is done is
    what `db.build_index` does: when it is built everywhere, an audit of it follows.

    Args:
        db: The open database.
        index: As the class has it: `Employee.by_email`.
        name: Name of the run. A run that has ended is not done again under its name, unless something failed, or it was
            begun without `no_older_writers` and that is given now. Without a name, a run that has ended is done again.
        no_older_writers: Whether no program is left that writes entities without the index. Then the index can be read
            as soon as the run is complete.
        parallel: How many ranges this process works on at the same time.
        lease: After how many seconds others take over the ranges of this process if it has died.
        rate: How many rows this process may read in a second; None for any number.
        on_progress: Called with the report so far, again and again.

    Returns:
        What all processes have done, when the last one is done. Its failures are what the audit has found and could not
        repair, such as a unique value that two entities have.

    Raises:
        ModelError: It is no index of a class, nor another declaration that can be built; an argument is refused; or the
            run of that name is of another one, or of other models or declarations.
        AccessDenied: In a scope, since a run is of whole tables.
        TableNotFound: There is no such table.
    """
    connection = connection_of(db)
    connection.require_open()
    connection.boundary.check_whole_table(f"run_build_index({index})")
    check_arguments("run_build_index", parallel, on_progress)
    build = IndexBuild(connection, index, parallel)
    declared = json.dumps([dict(each.describe()) for each in build.declared], sort_keys=True)
    job = Job(
        verb="run_build_index",
        what=f"build {index}",
        purpose=purpose_of(f"build {index.name} {declared}", build.schemas).hex(),
        tables=(build.table,),
        plan=partial(plan_ranges, db, "run_build_index", [(build.table, build.schemas)], build=True),
        work=partial(_build, build),
        no_older_writers=no_older_writers,
        finish=partial(build.make_readable, no_older_writers=True),
    )
    options = RunOptions(name=name, parallel=parallel, lease=lease, rate=rate, on_progress=on_progress)
    return await carry_out(db, job, options)


async def _build(build: IndexBuild, part: AuditRange, pace: Pace | None) -> RunSteps:
    async with aclosing(build.work_on(part, pace)) as steps:
        async for done, counts in steps:
            left = sum(counts.counts.values()) - counts.repaired + counts.undecided
            failures: list[object] = [each for each in counts.findings if not each.repaired]
            if counts.undecided:
                failures.append(
                    f"others wrote during each look at {counted(counts.undecided, 'row')}, so nobody knows whether it "
                    "is right; build it again while they write less"
                )
            yield (
                done,
                RunCounts.of(
                    entities=counts.entities if part.building else 0,
                    written=counts.built + counts.repaired,
                    failed=left,
                    failures=failures,
                ),
            )
