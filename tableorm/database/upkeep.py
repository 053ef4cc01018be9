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
from ..writes.archive_copy import Archive
from .transfers import Transfers
from .workers import make_worker

__all__ = ["Upkeep"]


class Upkeep(Transfers):
    """
    The part of a database that gives others access, audits, repairs, builds indexes, and makes workers.
    """

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
        Make a token for rows of a table: a shared access signature, as the service's own clients make it.

            token = await db.grant(Employee, "r", dt.timedelta(hours=1), start={"department": "Sales", "id": 100},
                                   end={"department": "Sales", "id": 199})

        The same token is given for the same rights until shortly before it expires. Nothing is sent.

        The token opens every row from `start` to `end`, both included, in the order of keys (PartitionKey, then
        RowKey), also rows of other kinds; `token.explain()` says what it opens and what it does not.

        Args:
            target: A model, or the name of a table.
            permissions: Letters of `raud`: read, add (insert), update, delete. An upsert needs `au`.
            expires_in: How long the token is good; a second at least.
            start: The first key, by key fields of the model: all of them, or the first ones, for all keys that begin
                with them; the default is the table's first row. With the name of a table: `PartitionKey` and `RowKey`.
            end: The last key, given as `start` is; `start=end={"department": "Sales"}` is that partition.
            policy: A stored access policy (see `policies`), which supplies permissions and time that are not given.
            ip: The address that the token may be used from, or `FIRST-LAST`.
            protocol: `"https"`, to refuse the token over HTTP.

        Raises:
            ModelError: An argument is refused, and why.
            TemplateError: A field does not fit its key.
            NotSupported: This database cannot sign tokens, and why.
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
        Return the stored access policies of a table: `await db.policies(Employee).set("readers", "r", expires_at=...)`.

        Args:
            target: A model, or the name of a table.

        Raises:
            ModelError: The target is not a model, nor a name that a table can have.
            AccessDenied: In a scope, since the policies are of the whole table.
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
        Check what is derived from the entities of some models: their index entries, their index lists, the counts and
        sums that they are in, and the fields that they copy from others. Every row is read, in memory that does not
        depend on how many there are.

        Others may write meanwhile: nothing is reported that one of their writes explains. A repair is written only if
        the rows that it was decided upon have not changed; rows of other kinds are never touched.

        Args:
            models: The models; an abstract base stands for all of its classes. The models in which their entities are
                counted, or of which they hold copies, are checked too.
            repair: Whether to repair what is found. Damage that needs a decision is left: see `Damage`.
            name: Name of a shared run: any number of processes make this call, at the same time or later, and work on
                different ranges of keys. What is done is in the store, so that the next call resumes after all of them
                were killed. None to work alone.
            parallel: How many ranges of keys are read at the same time.
            lease: Of a shared run: after how many seconds others take over the ranges of this process if it has died.
            rate: How many rows this process may read in a second; None for any number.
            cursor: The place that an earlier audit of these models had reached alone: `AuditReport.cursor`.
            on_progress: Called with the report so far, again and again. Store its `cursor` to resume after a crash.

        Returns:
            The report of what was found.

        Raises:
            CursorError: The cursor is of other models or indexes, or damaged.
            ModelError: No model is given, or one without a kind.
            AccessDenied: In a scope, since an audit reads whole tables.
            TableNotFound: There is no such table.
        """
        self._connection.boundary.check_whole_table(f"audit({', '.join(schema_of(model).name for model in models)})")
        options = RunOptions(name=name, parallel=parallel, lease=lease, rate=rate, on_progress=on_progress)
        return await audit(self._connection, models, options, cursor=cursor, repair=repair)

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
        Build an index for entities that were there before it was declared, while others write; then audit it. An index
        list, a count or a sum is built in the same way.

        It is a shared run: any number of processes make the same call, at the same time or later, and work on different
        ranges of keys. If one is killed, the others take over what it had; if all are, the next call resumes.

        An entity that a program writes which does not declare the index may lack its entry. Only who operates the
        programs knows whether there are such: `no_older_writers=True` says that there are none, and then the store says
        that the index is readable. Run it again with that when the last such program has ended.

        Args:
            index: The index, list, count or sum: `Employee.by_email`.
            name: Name of the run. A run that has ended is not done again under its name, unless something failed, or it
                was begun without `no_older_writers` and that is given now. Without a name, it is done again.
            no_older_writers: Whether every program that writes such entities declares the index, from before the build
                on, so that it can be read once it is complete.
            parallel: How many ranges of keys this process works on at the same time.
            lease: After how many seconds others take over the ranges of this process if it has died.
            rate: How many rows this process may read in a second; None for any number.
            on_progress: Called with the report so far, again and again.

        Returns:
            What all processes have done, when the last one is done: its `complete` says whether each entity that was
            read has its entry, and its `readable` whether the index is read from now on.

        Raises:
            ModelError: It is no index of a class, nor another declaration that can be built; an argument is refused; or
                the run of that name is of another one, or of other models or declarations.
            AccessDenied: In a scope, since building writes whole tables.
            TableNotFound: There is no such table.
        """
        self._connection.boundary.check_whole_table(f"build_index({index})")
        options = RunOptions(name=name, parallel=parallel, lease=lease, rate=rate, on_progress=on_progress)
        return await build_index(self._connection, index, options, no_older_writers=no_older_writers)

    async def index_states(self) -> list[IndexState]:
        """
        Return what the store says of the indexes and index lists of all programs: which are complete, and which are not
        read yet.

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
        Delete the entities of some models that have expired, with all that is derived from them: index entries, unique
        values, and what they add to counts and sums. Of the change feeds of the models, delete the changes that are
        older than what they keep.

        Each entity is deleted if its row is as it was read: if somebody prolongs its life meanwhile, it stays. By an
        index whose keys begin with the field that says when entities expire, only these are read. Otherwise whole
        tables are visited, of which only rows that have expired are sent, and those that count the changes of feeds.

        Args:
            models: The models; an abstract base stands for all of its classes that have a field with `expiry=True`, or
                a `Feed`, which is trimmed also where other models of the table share it.
            name: Name of a shared run: any number of processes make this call, at the same time or later, and work on
                different ranges of keys. What is done is in the store, so that the next call resumes after all of them
                were killed. None to work alone.
            parallel: How many ranges of keys are read at the same time.
            lease: Of a shared run: after how many seconds others take over the ranges of this process if it has died.
            rate: How many rows this process may delete in a second; None for any number.
            cursor: The place that an earlier sweep of these models had reached alone: `SweepReport.cursor`.
            on_progress: Called with the report so far, again and again. Store its `cursor` to resume after a crash.

        Returns:
            The report: how many were deleted, and which could not be.

        Raises:
            ModelError: No model is given, or one whose entities never expire and that has no change feed.
            CursorError: The cursor is of other models or indexes, or damaged.
            AccessDenied: In a scope, since a sweep visits whole tables.
            TableNotFound: There is no such table.
        """
        self._connection.boundary.check_whole_table(f"sweep({', '.join(schema_of(model).name for model in models)})")
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
        Wrap the content keys of all rows of some models, and of their index entries, by the key that wraps new ones, so
        that older keys are needed no more. Encrypted values stay as they are.

        Each row is written if it is as it was read; if somebody else writes it meanwhile, it is read again. What is
        wrapped already is not written. It is a shared run, as `tableorm_migrations.rewrite` is.

        Args:
            models: The models; an abstract base stands for all of its classes.
            name: Name of the run; the default is made of the models and the key.
            parallel: How many ranges this process works on at the same time.
            lease: After how many seconds others take over the ranges of this process if it has died.
            rate: How many rows this process may read in a second; None for any number.
            on_progress: Called with the report so far, again and again.

        Returns:
            What all processes have done. A row whose content key cannot be unwrapped stays as it is, and is reported.

        Raises:
            NotSupported: The database was opened without keys.
            ModelError: There is no model, or one without encrypted fields.
            AccessDenied: In a scope, since a run is of whole tables.
            TableNotFound: There is no such table.
        """
        self._connection.boundary.check_whole_table("rewrap()")
        options = RunOptions(name=name, parallel=parallel, lease=lease, rate=rate, on_progress=on_progress)
        return await rewrap(self._connection, models, options)

    async def runs(self) -> list[RunReport]:
        """
        Return the reports of all shared runs of the database, by name: those under way, and the last one of each name.

        Raises:
            AccessDenied: In a scope, since runs are of whole tables.
        """
        self._connection.require_open()
        self._connection.boundary.check_whole_table("runs()")
        return await list_runs(self._connection)

    async def drop_run(self, name: str) -> None:
        """
        Forget a shared run, for example one that is under way for models as they were once. What it has done stays
        done.

        End the processes that work on it first; one that does not notice begins the run again.

        Args:
            name: Name of the run.

        Raises:
            ModelError: There is no run of that name.
            AccessDenied: In a scope, since runs are of whole tables.
            TransactionFailed: A process has written meanwhile, so it has not ended yet.
        """
        self._connection.require_open()
        self._connection.boundary.check_whole_table("drop_run()")
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
        Return a worker, which carries out what writes of these models have left to do in other partitions, if the
        program that wrote has ended too early, runs these workflows, and archives to these archives.

            async with db.worker(Employee) as worker:
                await worker.drain()  # or wait for a signal to stop

        Any number of workers can run at the same time, here and in other processes. What concerns other models, or
        newer versions of these, is left to others. `db.stats.lag` says how far behind it is, and the logger
        `tableorm.worker` tells of it each minute, and of each try that fails.

        Args:
            targets: Models, of which an abstract base stands for all of its classes, workflows, and archives.
            concurrency: How many messages are worked on at the same time.
            visibility: For how many seconds a message is hidden from other workers. It is renewed while it is worked
                on, so that this is how long others wait if this program dies.
            tries: After how many tries that failed a message is dropped. Then the error is in the decision row, which
                `tableorm outbox` shows.

        Raises:
            ModelError: Nothing is given, a class is neither a model nor a workflow, a model has no kind, two have the
                same one, two archives have one name, or an argument is refused.
            AccessDenied: In a scope, since the messages are of whole tables.
            NotSupported: An archive needs blobs, and the database has none.
        """
        return make_worker(self._connection, self, targets, concurrency=concurrency, visibility=visibility, tries=tries)
