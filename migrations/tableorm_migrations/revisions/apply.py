"""
Applying revisions: their steps are carried out with the models of the program, and the store records what is done.
"""

import enum
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import attrs

from tableorm import Database, Entity, ModelError
from tableorm.audit.report import AuditReport
from tableorm.connection.connection import connection_of
from tableorm.connection.index_states import find_unreadable
from tableorm.jobs.report import RunReport
from tableorm.models.derivation import DerivationOf
from tableorm.models.entity import schema_of

from ..evolution import compare_snapshots
from ..rewrite import rewrite
from ..snapshot import Identity, ModelLayout, Snapshot, describe_each
from .line import check_records, last_layouts, load_records, load_revisions, record_applied, record_begun
from .revision import BuildIndex, Revision, Rewrite, Step

_SHOWN = 3  # failures of a step that are shown
_LATER = "when no older program runs any more"


class Outcome(enum.StrEnum):
    """The state of a step of a revision."""

    RUNNING = "running"
    DONE = "done"
    PASSED_OVER = "passed over"
    WAITING = "waiting"
    FAILED = "failed"


@attrs.frozen(kw_only=True)
class StepReport:
    """
    The state of a step of a revision.

    Args:
        revision: The name of the revision.
        step: What the step does.
        outcome: Its state: running; done; passed over, because a later revision has removed what it's about; waiting
            until no older program runs; or failed.
        detail: What was done, or why not.
        run: The report of the shared run; None if the step has none.
    """

    revision: str
    step: str
    outcome: Outcome
    detail: str
    run: RunReport | None = None

    def __str__(self) -> str:
        return f"{self.revision}: {self.step}: {self.outcome}: {self.detail}"

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain values that JSON can represent."""
        run = None if self.run is None else self.run.to_dict()
        return {**attrs.asdict(self, recurse=False), "outcome": self.outcome.value, "run": run}


@attrs.frozen(kw_only=True)
class UpgradeReport:
    """
    What `apply_revisions` has done.

    Args:
        applied: The names of the revisions that were applied.
        pending: The names of the revisions that aren't applied yet.
        steps: The outcomes of their steps.
    """

    applied: tuple[str, ...]
    pending: tuple[str, ...]
    steps: tuple[StepReport, ...]

    @property
    def complete(self) -> bool:
        """Whether all revisions are applied."""
        return not self.pending

    @property
    def failed(self) -> bool:
        """Whether a step has failed."""
        return any(step.outcome is Outcome.FAILED for step in self.steps)

    def __str__(self) -> str:
        applied = f"applied: {', '.join(self.applied) or 'nothing'}"
        if self.complete:
            return applied
        remedy = "" if self.failed else f"; run it again with --no-older-writers {_LATER}"
        return f"{applied}; not applied yet: {', '.join(self.pending)}{remedy}"

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain values that JSON can represent."""
        return {**attrs.asdict(self), "steps": [step.to_dict() for step in self.steps]}


async def apply_revisions(
    db: Database,
    models: Iterable[type[Entity]],
    directory: Path,
    *,
    no_older_writers: bool = False,
    parallel: int = 8,
    lease: float = 30.0,
    rate: float | None = None,
    on_progress: Callable[[StepReport], object] | None = None,
) -> UpgradeReport:
    """
    Apply all pending revisions to a database, one at a time, while programs read and write.

        report = await apply_revisions(
            db, [Employee], Path("revisions"), no_older_writers=True
        )
        print(report.complete)

    Missing tables are created first. Several processes can make this call in parallel and share the steps; after a
    crash, the same call resumes. Programs with older models would undo the steps, so a revision with steps is applied
    only if `no_older_writers` confirms that none of them runs. Until then, indexes are built, and the other steps wait.

    Args:
        db: The open database.
        models: All models of the program; an abstract base stands for all of its subclasses.
        directory: The folder of the revisions.
        no_older_writers: Whether every program that writes has these models.
        parallel: Number of key ranges that this process works on in parallel.
        lease: The seconds after which other processes take over the ranges of a process that died.
        rate: The most rows that this process handles per second; None for no limit.
        on_progress: Called repeatedly with the current step, and once with its outcome.

    Returns:
        What was done. After a failed step, nothing else is done.

    Raises:
        ModelError: The revisions don't form a single line, aren't those that the database has recorded, or don't lead
            to the models.
        AccessDenied: In a scope, because whole tables are written.
    """
    connection = connection_of(db)
    connection.require_whole_tables("apply_revisions()")
    line = load_revisions(directory)
    if not line:
        raise ModelError(f"{directory} has no revisions; write the first one: tableorm migrate revision")
    final = last_layouts(line)
    live = {layout.identity: model for model, layout in _check_models(models, line[-1], final).items()}
    records = await load_records(db)
    check_records(records, line, directory)
    pending = [each for each in line if (record := records.get(each.name)) is None or record.applied is None]
    if pending:
        await db.create_tables(*live.values())
    tell = on_progress or _ignore
    run = _Upgrade(
        db=db,
        last=line[-1].name,
        final=final,
        live=live,
        no_older_writers=no_older_writers,
        options={"parallel": parallel, "lease": lease, "rate": rate},
        tell=tell,
    )
    applied: list[str] = []
    steps: list[StepReport] = []
    for revision in pending:
        await record_begun(db, revision, directory)
        for step in revision.steps:
            steps.append(await run.carry_out(revision, step))
            tell(steps[-1])
            if steps[-1].outcome is Outcome.FAILED:
                return _make_report(pending, applied, steps)
        # What waits holds up the revisions after it, though not what can be done for them early.
        if not any(step.outcome is Outcome.WAITING for step in steps):
            await record_applied(db, revision)
            applied.append(revision.name)
    return _make_report(pending, applied, steps)


def _make_report(pending: Sequence[Revision], applied: Sequence[str], steps: Sequence[StepReport]) -> UpgradeReport:
    left = tuple(revision.name for revision in pending if revision.name not in applied)
    return UpgradeReport(applied=tuple(applied), pending=left, steps=tuple(steps))


def _ignore(_: StepReport) -> None:
    """Tell nobody."""


def _check_models(
    models: Iterable[type[Entity]], last: Revision, final: dict[Identity, ModelLayout]
) -> dict[type[Entity], ModelLayout]:
    """
    Return the layouts of the models of a program.

    Raises:
        ModelError: They are not what the last revision leads to.
    """
    described = describe_each(models)
    differences = compare_snapshots(Snapshot(models=tuple(final.values())), Snapshot(models=tuple(described.values())))
    if differences:
        each = differences[0]
        raise ModelError(
            f"the models are not what revision {last.name} leads to: {each.subject}: {each.detail}; name all modules "
            "of models, or write what has changed as a revision: tableorm migrate check, then tableorm migrate revision"
        )
    return described


@attrs.frozen(kw_only=True)
class _Upgrade:
    """
    One call of `apply_revisions`.

    Args:
        db: The database.
        last: Name of the last revision.
        final: The layouts that the revisions lead to.
        live: The models of the program.
        no_older_writers: Whether every program that writes has these models.
        options: Arguments of shared runs.
        tell: Is called with the step that is under way.
    """

    db: Database
    last: str
    final: dict[Identity, ModelLayout]
    live: dict[Identity, type[Entity]]
    no_older_writers: bool
    options: dict[str, Any]
    tell: Callable[[StepReport], object]

    async def carry_out(self, revision: Revision, step: Step) -> StepReport:
        """Carry out a step, and return what became of it."""

        def report(outcome: Outcome, detail: str, run: object = None) -> StepReport:
            return StepReport(
                revision=revision.name,
                step=str(step),
                outcome=outcome,
                detail=detail,
                run=run if isinstance(run, RunReport) else None,
            )

        def progress(state: RunReport | AuditReport) -> None:
            self.tell(report(Outcome.RUNNING, _describe(state), state))

        layout, builds = revision.after[step.model], isinstance(step, BuildIndex)
        model, now = self.live.get(layout.identity), self.final.get(layout.identity)
        if model is None or now is None:
            return report(Outcome.PASSED_OVER, "a later revision removes the model")
        if isinstance(step, BuildIndex) and now.derived.get(step.name) != layout.derived[step.name]:
            return report(Outcome.PASSED_OVER, "a later revision removes or changes the declaration")
        if not self.no_older_writers and not builds:
            return report(Outcome.WAITING, f"again with --no-older-writers {_LATER}")
        if isinstance(step, BuildIndex) and await self._is_readable(model, step.name):
            return report(Outcome.DONE, "the database says that it is complete")
        # Programs with other models do not share a run, so the name says up to which revision these models are.
        name = f"{revision.name} {step}" + ("" if revision.name == self.last else f" at {self.last}")
        options: dict[str, Any] = {**self.options, "name": name, "on_progress": progress}
        done: RunReport | AuditReport
        if isinstance(step, BuildIndex):
            index: DerivationOf[Any] = getattr(model, step.name)
            done = await self.db.build_index(index, no_older_writers=self.no_older_writers, **options)
        elif isinstance(step, Rewrite):
            done = await rewrite(self.db, model, **options)
        else:
            done = await self.db.audit(model, repair=True, **options)
        if not (done.clean if isinstance(done, AuditReport) else done.complete):
            left = done.failures if isinstance(done, RunReport) else [x for x in done.findings if not x.repaired]
            return report(Outcome.FAILED, "; ".join([_describe(done), *map(str, left[:_SHOWN])]), done)
        if not self.no_older_writers:
            return report(Outcome.WAITING, f"{_describe(done)}; again with --no-older-writers {_LATER}", done)
        return report(Outcome.DONE, _describe(done), done)

    async def _is_readable(self, model: type[Entity], name: str) -> bool:
        """Return whether the store says that an index is complete, as it does where that is new as its table."""
        bound = schema_of(model).derived[name]
        if bound.building is not None or bound.declaration is None:
            return False
        return not await find_unreadable(connection_of(self.db), [bound.declaration])


def _describe(report: RunReport | AuditReport) -> str:
    """Return a report without what the step says: the name of the run, and that older programs have to end."""
    return RunReport.__str__(report).removeprefix(f"{report.name}: ") if isinstance(report, RunReport) else str(report)
