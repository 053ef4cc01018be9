"""
Upkeep: giving others access, auditing and repairing what is derived from entities, building indexes, and working on
what writes have left to do.
"""

import datetime as dt
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

from ..access.grant import Grant, GrantCache, check_target_table, issue_grant
from ..access.policies import TablePolicies
from ..audit.audit import audit
from ..audit.build import build_index
from ..audit.report import AuditReport, BuildReport
from ..connection.index_states import IndexState, load_states
from ..jobs.process import RunOptions
from ..jobs.report import RunReport, drop_run, list_runs
from ..jobs.rewrap import rewrap
from ..models.derivation import DerivationOf
from ..models.entity import Entity, schema_of
from ..outbox.worker import Worker
from ..outbox.workflow import Workflow
from ..queries.sweep import sweep
from ..queries.sweep_report import SweepReport
from ..relations.orphans import find_orphans
from ..writes.archive_copy import Archive
from .transfers import Transfers
from .workers import make_worker


class Upkeep(Transfers):
    """The part of a database for operating it: tokens and policies, audits and repairs, index builds, and workers."""

    @cached_property
    def _grants(self) -> GrantCache:
        return GrantCache()

    async def grant(
        self,
        target: type[Entity] | str,
        permissions: str | None = None,
        expires_in: dt.timedelta | None = None,
        *,
        start: Mapping[str, Any] | None = None,
        end: Mapping[str, Any] | None = None,
        policy: str | None = None,
        ip: str | None = None,
        protocol: str | None = None,
    ) -> Grant:
        """
        Issue a token for some rows of a table: a shared access signature (SAS), like the ones that the service's own
        clients make.

            token = await db.grant(
                Employee,
                "r",
                dt.timedelta(hours=1),
                start={"department": "Sales"},
                end={"department": "Sales"},
            )

        For the same rights, you get the same token again until shortly before it expires. Nothing is sent.

        The token opens every row from `start` to `end` inclusive, in key order (PartitionKey, then RowKey), including
        rows of other kinds. `token.explain()` says what it opens and what it doesn't.

        Args:
            target: A model, or the name of a table.
            permissions: Letters of `raud`: read, add (insert), update, delete. An upsert needs `au`.
            expires_in: How long the token is valid, at least one second.
            start: The first key, as key fields of the model. If you give only the leading fields, all keys that begin
                with them are included. Defaults to the first row of the table. With a table name, give `PartitionKey`
                and `RowKey`.
            end: The last key, given like `start`. `start=end={"department": "Sales"}` is exactly that partition.
            policy: A stored access policy (see `policies`) that supplies the permissions and times that aren't given
                here.
            ip: The address that may use the token, or a range as `FIRST-LAST`.
            protocol: `"https"` rejects the token over plain HTTP.

        Raises:
            ModelError: An argument is rejected; the error says why.
            TemplateError: A field does not fit its key.
            NotSupported: This database can't sign tokens; the error says why.
        """
        return await issue_grant(
            self._connection,
            self._grants,
            target,
            permissions,
            expires_in,
            start=start,
            end=end,
            policy=policy,
            ip=ip,
            protocol=protocol,
        )

    def policies(self, target: type[Entity] | str) -> TablePolicies:
        """
        Return the stored access policies of a table.

            await db.policies(Employee).set("readers", "r", expires_at=...)

        Args:
            target: A model, or the name of a table.

        Raises:
            ModelError: The target is not a model, or not a valid table name.
            AccessDenied: In a scope, since policies apply to the whole table.
        """
        table = target if isinstance(target, str) else schema_of(target).table_name()
        self._connection.boundary.check_whole_table(
            f"policies({target if isinstance(target, str) else target.__name__})"
        )
        check_target_table("policies", table)
        return TablePolicies(self._connection, table)

    # What is derived

    async def audit(
        self,
        *models: type[Entity],
        repair: bool = False,
        name: str | None = None,
        parallel: int = 8,
        lease: float = 30.0,
        rate: float | None = None,
        cursor: str | None = None,
        on_progress: Callable[[AuditReport], object] | None = None,
    ) -> AuditReport:
        """
        Check everything that is derived from the entities of some models: index entries, index lists, counts and sums,
        and copies of fields.

            report = await db.audit(Employee, repair=True)
            print(report)

        Every row is read, in a bounded amount of memory. Other programs may keep writing: a difference that one of
        their writes explains is not reported. A repair is written only if the rows that it is based on haven't changed,
        and rows of other kinds are never touched.

        Args:
            models: The models; an abstract base stands for all of its classes. Models that count these entities, or
                hold copies of them, are checked too.
            repair: Whether to repair what is found. Damage that needs a decision is left alone; see `Damage`.
            name: The name of a shared run. Any number of processes can make this call, in parallel or later, and
                share the work. Progress is saved in the store, so that the next call resumes even after all processes
                were killed. With None, only this process works.
            parallel: How many key ranges to read at a time.
            lease: In a shared run, the seconds after which other processes take over the ranges of a process that died.
            rate: The maximum number of rows that this process reads per second; None for no limit.
            cursor: Where to resume an audit without a name: its `AuditReport.cursor`.
            on_progress: Called regularly with the report so far. Store its `cursor` to resume after a crash.

        Returns:
            A report of what was found.

        Raises:
            CursorError: The cursor is damaged, or belongs to other models or indexes.
            ModelError: No model was given, or one without a kind.
            AccessDenied: In a scope, since an audit reads whole tables.
            TableNotFound: There is no such table.
        """
        self._connection.require_whole_tables(f"audit({', '.join(schema_of(model).name for model in models)})")
        options = RunOptions(name=name, parallel=parallel, lease=lease, rate=rate, on_progress=on_progress)
        others = find_orphans(self._connection, models)
        return await audit(self._connection, models, options, cursor=cursor, repair=repair, others=others)

    async def build_index(
        self,
        index: DerivationOf[Any],
        *,
        name: str | None = None,
        no_older_writers: bool = False,
        parallel: int = 8,
        lease: float = 30.0,
        rate: float | None = None,
        on_progress: Callable[[BuildReport], object] | None = None,
    ) -> BuildReport:
        """
        Build an index for entities that were stored before it was declared, while other programs keep writing; then
        audit it.

            await db.build_index(Employee.by_email, no_older_writers=True)

        Index lists, counts and sums are built the same way. The build is a shared run: any number of processes can make
        the same call, in parallel or later, and share the work. If one is killed, the others take over; if all
        are, the next call resumes.

        A program that doesn't declare the index may write entities without their entries. Only you know whether such
        programs still run. Pass `no_older_writers=True` once none of them does: the index is then marked as readable.
        If you built it earlier without that argument, run the build again with it.

        Args:
            index: The index, list, count or sum, such as `Employee.by_email`.
            name: The name of the run. A finished run isn't repeated under its name, unless something failed, or it ran
                without `no_older_writers` and now has it. Without a name, every call builds again.
            no_older_writers: Whether every program that writes these entities has declared the index since before the
                build.
            parallel: How many key ranges this process works on at a time.
            lease: The seconds after which other processes take over the ranges of a process that died.
            rate: The maximum number of rows that this process reads per second; None for no limit.
            on_progress: Called regularly with the report so far.

        Returns:
            What all processes did, once the last one is done. `complete` says whether every entity has its entry, and
            `readable` whether queries use the index from now on.

        Raises:
            ModelError: It is not an index of a class or another declaration that can be built; an argument is rejected;
                or a run of that name is about another index, or other models or declarations.
            AccessDenied: In a scope, since a build writes to whole tables.
            TableNotFound: There is no such table.
        """
        self._connection.require_whole_tables(f"build_index({index})")
        options = RunOptions(name=name, parallel=parallel, lease=lease, rate=rate, on_progress=on_progress)
        return await build_index(self._connection, index, options, no_older_writers=no_older_writers)

    async def index_states(self) -> list[IndexState]:
        """
        List what the store has recorded about the indexes and index lists of all programs: which are complete, and
        which are not used by queries yet.

            for state in await db.index_states():
                print(state)

        Raises:
            AccessDenied: In a scope, since the states are of whole tables; or the token does not open their table.
        """
        self._connection.boundary.check_whole_table("index_states()")
        return await load_states(self._connection)

    async def sweep(
        self,
        *models: type[Entity],
        name: str | None = None,
        parallel: int = 8,
        lease: float = 30.0,
        rate: float | None = None,
        cursor: str | None = None,
        on_progress: Callable[[SweepReport], object] | None = None,
    ) -> SweepReport:
        """
        Delete the expired entities of some models, together with everything derived from them. Also trim their change
        feeds to what they are declared to keep.

            report = await db.sweep(Session)

        An entity is deleted only if its row hasn't changed since it was read, so one whose life is extended in the
        meantime stays. If an index begins with the field that holds the expiry time, only expired entities are read.
        Otherwise the store filters the whole table, and sends only expired rows and the rows that feeds keep their
        counters in.

        Args:
            models: The models; an abstract base stands for all of its classes that have a field with `expiry=True`, or
                a `Feed`, which is trimmed even where other models of the table share it.
            name: The name of a shared run. Any number of processes can make this call, in parallel or later, and
                share the work. Progress is saved in the store, so that the next call resumes even after all processes
                were killed. With None, only this process works.
            parallel: How many key ranges to read at a time.
            lease: In a shared run, the seconds after which other processes take over the ranges of a process that died.
            rate: The maximum number of rows that this process deletes per second; None for no limit.
            cursor: Where to resume a sweep without a name: its `SweepReport.cursor`.
            on_progress: Called regularly with the report so far. Store its `cursor` to resume after a crash.

        Returns:
            A report of how many entities were deleted, and which could not be.

        Raises:
            ModelError: No model was given, or one whose entities never expire and that has no change feed.
            CursorError: The cursor is damaged, or belongs to other models or indexes.
            AccessDenied: In a scope, since a sweep visits whole tables.
            TableNotFound: There is no such table.
        """
        self._connection.require_whole_tables(f"sweep({', '.join(schema_of(model).name for model in models)})")
        options = RunOptions(name=name, parallel=parallel, lease=lease, rate=rate, on_progress=on_progress)
        return await sweep(self._connection, models, options, cursor=cursor)

    async def rewrap(
        self,
        *models: type[Entity],
        name: str | None = None,
        parallel: int = 8,
        lease: float = 30.0,
        rate: float | None = None,
        on_progress: Callable[[RunReport], object] | None = None,
    ) -> RunReport:
        """
        Wrap the content keys of all rows of some models with the key that wraps new ones, so that older keys can be
        retired. The encrypted values themselves stay as they are.

            await db.rewrap(Patient)

        Index entries are rewrapped too. A row is written only if it hasn't changed since it was read; otherwise it is
        read again. Rows that the newest key wraps already are skipped. Like `tableorm_migrations.rewrite`, this is a
        shared run.

        Args:
            models: The models; an abstract base stands for all of its classes.
            name: The name of the run. Defaults to a name made from the models and the key.
            parallel: How many key ranges this process works on at a time.
            lease: The seconds after which other processes take over the ranges of a process that died.
            rate: The maximum number of rows that this process reads per second; None for no limit.
            on_progress: Called regularly with the report so far.

        Returns:
            What all processes did. A row whose content key can't be unwrapped stays as it is, and is reported.

        Raises:
            NotSupported: The database was opened without keys.
            ModelError: No model was given, or one without encrypted fields.
            AccessDenied: In a scope, since a run is about whole tables.
            TableNotFound: There is no such table.
        """
        self._connection.require_whole_tables("rewrap()")
        options = RunOptions(name=name, parallel=parallel, lease=lease, rate=rate, on_progress=on_progress)
        return await rewrap(self._connection, models, options)

    async def runs(self) -> list[RunReport]:
        """
        List the reports of all shared runs of the database, by name: those in progress, and the latest of each name.

            for run in await db.runs():
                print(f"{run.what}: {run.state}")

        Raises:
            AccessDenied: In a scope, since runs are about whole tables.
        """
        self._connection.require_whole_tables("runs()")
        return await list_runs(self._connection)

    async def drop_run(self, name: str) -> None:
        """
        Forget a shared run, for example one that was started for an older version of the models. What it has done stays
        done.

        Stop the processes that work on it first: one that doesn't notice starts the run again.

            await db.drop_run("nightly-audit")

        Args:
            name: The name of the run.

        Raises:
            ModelError: There is no run of that name.
            AccessDenied: In a scope, since runs are about whole tables.
            TransactionFailed: A process has written in the meantime, so it's still running.
        """
        self._connection.require_whole_tables("drop_run()")
        await drop_run(self._connection, name)

    # What is left to do

    def worker(
        self,
        *targets: type[Entity | Workflow[Any]] | Archive[Any],
        concurrency: int = 32,
        visibility: int = 60,
        tries: int = 10,
    ) -> Worker:
        """
        Make a background worker, which finishes interrupted writes across partitions, runs workflows, and carries out
        archiving.

            async with db.worker(Employee) as worker:
                await worker.drain()  # or wait for a signal to stop

        Any number of workers can run in parallel, in this and other processes. A worker leaves alone what belongs
        to other models, or to newer versions of its own. `db.stats.lag` shows how far behind it is; the logger
        `tableorm.worker` reports that every minute, and every failed try.

        Args:
            targets: Models (an abstract base stands for all of its classes), workflows, and archives.
            concurrency: How many messages to work on at a time.
            visibility: The seconds for which a message is hidden from other workers. This is extended while the message
                is worked on, so it's how long the others wait if this process dies.
            tries: How many failed tries it takes to give up on a message. The error is then kept in the decision row,
                which `tableorm outbox` shows.

        Raises:
            ModelError: Nothing was given; a class is neither a model nor a workflow; a model has no kind; two share a
                kind; two archives share a name; or an argument is rejected.
            AccessDenied: In a scope, since messages are about whole tables.
            NotSupported: An archive needs blobs, and the database has none.
        """
        return make_worker(self._connection, targets, concurrency=concurrency, visibility=visibility, tries=tries)
