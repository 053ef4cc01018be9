"""
`roll_back_rekey`: deletes what an offline re-key has copied, so that programs go on with the older model.

The older entities have stayed, so each of them gives what was copied of it. What is at that key is deleted under its
ETag if it has the same content still. Anything else may be there alone, and stays unless the caller says otherwise.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Literal

import attrs

from tableorm import Database, Entity, ModelError, NotSupported, RunReport, TableNotFound
from tableorm.connection.connection import connection_of
from tableorm.connection.rows import read_row
from tableorm.connection.tasks import map_together
from tableorm.errors import shown
from tableorm.jobs.counts import JobCounts
from tableorm.jobs.process import RunOptions, carry_out
from tableorm.jobs.rows import Run, name_row, read_run
from tableorm.stores import Row, RowAddress

from .layouts import Layouts, Merge
from .pages import delete_rows
from .sides import make_job


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
    Delete the entities that `run_rekey` has copied, together with other processes, so that the older model is used on.

    This gives up a re-key that has begun, as long as `finalize_rekey` was not called. The older entities have stayed,
    and are not written. If the newer model says `moved_from=`, programs that use it look at the older keys again.

    Args:
        db: The open database that has the entities of the older model.
        old: The older model.
        new: The newer model.
        no_new_programs: Say that no program is left that uses the newer model, and none that copies. The store cannot
            tell. A program that has once read or written the newer model looks at the newer keys until it ends.
        to_new: What `run_rekey` was given.
        merge: What `run_rekey` was given.
        on_difference: What happens to entities of the newer model that are not what the older ones give, since one of
            both was written after the copy: "keep" reports them, "delete" deletes all entities of the newer model.
        target: The open database that has the entities of the newer model, if it is another one.
        parallel: How many ranges this process works on at the same time.
        lease: After how many seconds others take over the ranges of this process if it has died.
        rate: How many rows this process may read in a second; None for any number.
        on_progress: Called with the report so far, again and again.

    Returns:
        What all processes have deleted, as `written`, when the last one is done. It is `complete` if no entity of the
        newer model is left; otherwise `failures` has samples, and the re-key is as far as it was.

    Raises:
        ModelError: The models do not fit, or an argument is rejected.
        NotSupported: `no_new_programs` was not said, or entities of the older model are not there any more, since the
            re-key is online or `finalize_rekey` was called.
        AccessDenied: In a scope, since a run is of whole tables.
        TableNotFound: There is no table of one of the models.
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
        await delete_rows(layouts.target, layouts.new, [row for row in found if row is not None], counts)

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
        await delete_rows(self.layouts.target, self.layouts.new, found, counts)

    async def report_left(self, rows: Sequence[Row], counts: JobCounts) -> None:
        """Count newer entities that differ from what their older entity becomes."""
        old, table = self.layouts.old.name, self.layouts.new.table_name()
        for row in rows:
            if self.layouts.is_newer(row):
                counts.fail(
                    f"{name_row(row)} of table {table}",
                    f"is not what an entity of {old} gives, and stays; delete it, or give on_difference='delete' (the "
                    "command: --delete-changed)",
                )
