"""
Workflows: steps that follow the write of an entity, one after the other, whatever crashes meanwhile.

A transaction that starts a workflow has it as a piece of work in its decision row, so that it runs if the transaction
commits, and not otherwise. Workers run the steps. After each step they write into the decision row which one is next,
under its ETag. A step that has ended, and whose successor could not be noted, is run again.
"""

import asyncio
import datetime as dt
import hashlib
import inspect
import re
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Generic, TypeVar, cast, get_args

import attrs
import msgspec

from ..connection.connection import Connection
from ..errors import ModelError, NotSupported, shown
from ..models.entity import Entity, schema_of
from ..models.key import Key
from ..models.marker_rows import note_follower
from ..models.schema import concrete
from ..protocol.limits import MAX_VISIBILITY_SECONDS
from ..stores import Operation, Verb
from .decision import Decision, Work, read_decision, write_decision
from .worker import Patience

E = TypeVar("E", bound=Entity)
W = TypeVar("W", bound="Workflow[Any]")

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,62}")
_MOST_TRIES = 1000
_SHORTEST_PAUSE, _MOST_PAUSE = dt.timedelta(seconds=1), dt.timedelta(seconds=MAX_VISIBILITY_SECONDS)
_FIRST_PAUSE = dt.timedelta(seconds=2)
_LONGEST_PAUSE = dt.timedelta(hours=1)


@attrs.frozen
class WorkflowSchema:
    """
    What a class of workflows declares.

    Args:
        name: Its name, by which messages and decision rows know it.
        version: Its version.
        model: The model of the entities that it is about.
        steps: The names of its steps, in order.
        tries: How often a step is tried at most; None for as often as the worker tries other work.
        first_pause: The pause after the first try that failed.
        longest_pause: The longest pause.
    """

    name: str
    version: int
    model: type[Entity]
    steps: tuple[str, ...]
    tries: int | None
    first_pause: dt.timedelta
    longest_pause: dt.timedelta

    @property
    def kind(self) -> str:
        """What stands in place of the kind of an entity, in messages and decision rows."""
        return f"workflow {self.name}:{self.version}"

    def patience_of(self, usual: Patience) -> Patience:
        """Return how often it is tried by a worker that has a usual patience."""
        tries = usual.tries if self.tries is None else self.tries
        return Patience(tries, self.first_pause.total_seconds(), self.longest_pause.total_seconds())

    @property
    def tables(self) -> frozenset[str]:
        """The tables of the entities that it is about."""
        return frozenset(each.table_name() for each in concrete(schema_of(self.model)))


class Workflow(Generic[E]):
    """
    The base class of workflows: steps that follow the write of an entity. `tx.start` starts one.

        @workflow("ship", version=1)
        class Ship(Workflow[Order]):
            async def reserve(self, db: Database) -> None: ...

            async def notify(self, db: Database) -> None: ...

    Its steps are its public methods, in the order of their definition. A step may run more than once, even
    concurrently, so running it twice must do no harm. A step that returns a value replaces the arguments for the steps
    after it.

    Attributes:
        key: The key of the entity that the transaction wrote.
        token: A string that is the same in every run of this step, and different for every other step and workflow. Use
            it to identify things that must happen only once.
        arguments: What `tx.start` was given, or what an earlier step returned: any value that JSON can represent.
    """

    __workflow__: ClassVar[WorkflowSchema]

    def __init__(self, key: Key[E], token: str, arguments: Any) -> None:
        self.key, self.token, self.arguments = key, token, arguments

    def __repr__(self) -> str:
        return f"<workflow {type(self).__name__} of {self.key}>"


class StepFailed(Exception):
    """A step of a workflow has raised an error, which is its cause."""


def workflow(
    name: str,
    *,
    version: int = 1,
    tries: int | None = None,
    first_pause: dt.timedelta = _FIRST_PAUSE,
    longest_pause: dt.timedelta = _LONGEST_PAUSE,
) -> Callable[[type[W]], type[W]]:
    """
    Declare a workflow, as a decorator of a class that derives from `Workflow[Model]`.

        @workflow("ship", version=1)
        class Ship(Workflow[Order]):
            async def pack(self, db: Database) -> None: ...

    Args:
        name: The name of the workflow. It's stored in messages and rows, so keep it when you rename the class.
        version: The version of the workflow, from 1. Runs that were started under another version are left to workers
            that have it.
        tries: How many failed tries it takes for workers to give up; None for the value of `db.worker(tries=)`.
        first_pause: The longest pause after the first failed try, at least one second. Each further pause is about
            twice as long.
        longest_pause: The longest pause of all, up to seven days.

    Raises:
        ModelError: The name, the version, the tries or a pause is rejected; the class names no model; or it has no
            steps, or a step that isn't an async method taking only a database. The same holds if the table has a model
            whose rows look like decision rows: one without a kind, with a function as discriminator, or with RowKeys
            that can begin with `~o_`.
    """
    if not (type(name) is str and _NAME.fullmatch(name)):
        raise ModelError(
            f"workflow({shown(name)}) is rejected: a name has up to 63 letters, digits, '_' and '-', a letter first"
        )
    if type(version) is not int or version < 1:
        raise ModelError(f"workflow({name!r}, version={shown(version)}) is rejected: give a whole number from 1 up")

    if tries is not None and (type(tries) is not int or not 1 <= tries <= _MOST_TRIES):
        raise ModelError(
            f"workflow({name!r}, tries={shown(tries)}) is rejected: give a whole number from 1 to {_MOST_TRIES}"
        )
    for argument, pause, least in (
        ("first_pause", first_pause, _SHORTEST_PAUSE),
        ("longest_pause", longest_pause, first_pause),
    ):
        if not isinstance(cast("object", pause), dt.timedelta) or not least <= pause <= _MOST_PAUSE:
            raise ModelError(
                f"workflow({name!r}, {argument}={shown(pause)}) is rejected: give a timedelta from {least} to "
                f"{_MOST_PAUSE.days} days"
            )

    def declare(cls: type[W]) -> type[W]:
        model = next(
            (each for base in getattr(cls, "__orig_bases__", ()) for each in get_args(base) if isinstance(each, type)),
            None,
        )
        if Workflow not in cls.__mro__ or model is None or not issubclass(model, Entity):
            raise ModelError(
                f"the workflow {name!r} is rejected: derive {cls.__name__} from Workflow[Model], as in Workflow[Order]"
            )
        steps = {each: function for each, function in vars(cls).items() if not each.startswith("_")}
        for each, function in steps.items():
            if not inspect.iscoroutinefunction(function) or len(inspect.signature(function).parameters) != 2:
                raise ModelError(
                    f"{cls.__name__}.{each} is rejected as a step of the workflow {name!r}: write it as `async def "
                    f"{each}(self, db)`, or begin its name with an underscore"
                )
        if not steps:
            raise ModelError(f"the workflow {name!r} is rejected: {cls.__name__} has no step, an async method")
        note_follower(schema_of(model), f"the workflow {name!r}")
        cls.__workflow__ = WorkflowSchema(name, version, model, tuple(steps), tries, first_pause, longest_pause)
        return cls

    return declare


def schema_of_workflow(cls: type[Workflow[Any]]) -> WorkflowSchema:
    """Return what a class declares. Raises ModelError if it is not a declared workflow."""
    found = getattr(cls, "__dict__", {}).get("__workflow__")
    if not isinstance(found, WorkflowSchema):
        raise ModelError(f"{shown(cls)} is not a workflow; decorate a class with @workflow('name', version=1)")
    return found


def start_of(cls: type[Workflow[Any]], key: Key[Any], arguments: Any) -> Work:
    """
    Return the work that starts a workflow.

    Args:
        cls: The workflow.
        key: The key of the entity that it is about.
        arguments: What its steps are given.

    Raises:
        ModelError: The class is not a workflow, or one about other entities, or the arguments are not JSON.
    """
    schema = schema_of_workflow(cls)
    if not issubclass(key.model, schema.model):
        raise ModelError(
            f"the workflow {schema.name!r} is about {schema.model.__name__}, and {key} is none; declare one about "
            f"{key.model.__name__}"
        )
    return Work(kind=schema.kind, row_key=key.row_key, arguments=_to_json(arguments, f"the workflow {schema.name!r}"))


def _to_json(arguments: Any, what: str) -> str:
    try:
        return msgspec.json.encode(arguments).decode()
    except (TypeError, ValueError, RecursionError) as error:
        raise ModelError(f"the arguments of {what} are rejected: they are not a value of JSON: {error}") from None


# Running


async def _run_step(
    db: Connection,
    cls: type[Workflow[Any]],
    table: str,
    decision: Decision,
    number: int,
    name: str,
    arguments: Any,
) -> Any:
    """
    Run a step of a workflow that was started, and return the arguments of the next.

    Args:
        db: Where the decision row is.
        cls: The workflow.
        table: The table of its entity.
        decision: The decision row.
        number: Which work of the decision it is.
        name: The step.
        arguments: The arguments of the step.

    Raises:
        StepFailed: It has raised an error.
    """
    schema, token = cls.__workflow__, step_token(table, decision, number, name)
    key: Key[Any] = Key(schema.model, table, decision.partition_key, decision.works[number].row_key)
    try:
        result = await getattr(cls(key, token, arguments), name)(db.reader)
        return arguments if result is None else msgspec.json.decode(_to_json(result, f"the step {name!r}"))
    except Exception as error:
        problem = f"the step {name!r} of the workflow {schema.name!r}, version {schema.version}, for {key}"
        raise StepFailed(f"{problem}: {type(error).__name__}: {error}") from error


def step_token(table: str, decision: Decision, number: int, name: str) -> str:
    """
    Return the text that names a step of a workflow: the same each time, and another one for every other step.

    Args:
        table: The table of the decision row.
        decision: The decision that started the workflow.
        number: Which work of the decision it is.
        name: Name of the step.
    """
    # A forger can give a decision row of another place the same token.
    place = (table, decision.partition_key, decision.token, number, decision.works[number].kind, name)
    return urlsafe_b64encode(hashlib.sha256(msgspec.json.encode(place)).digest()[:9]).decode()


async def run_workflows(
    db: Connection, table: str, classes: Mapping[str, type[Workflow[Any]]], decision: Decision
) -> Decision | None:
    """
    Run the workflows that a transaction has started, from the step that each has reached.

    Args:
        db: Where the decision row is.
        table: The table of the decision row.
        classes: The workflows by what stands for their kind.
        decision: What the decision row says.

    Returns:
        What the decision row says now; None if another writer has deleted it meanwhile.

    Raises:
        StepFailed: A step has raised an error.
        NotSupported: A workflow has reached a step that this program does not know, or is about rows of another table.
        LimitExceeded: The arguments that a step has returned are too large.
        TableOrmError: The store refused it, or did not answer.
    """
    found: Decision | None = decision
    for number, work in enumerate(decision.works):
        cls = classes.get(work.kind)
        while found is not None and cls is not None and work.arguments is not None:
            tables = cls.__workflow__.tables
            if table not in tables:
                raise NotSupported(
                    f"the decision row {decision.token} of table {table} starts the {work.kind!r}, which is about rows "
                    f"of {', '.join(sorted(tables))}; leave it to a program that has it in {table}"
                )
            steps = cls.__workflow__.steps
            name, arguments = found.progress.get(number, (steps[0], msgspec.json.decode(work.arguments)))
            if name is None:
                break
            if name not in steps:
                raise NotSupported(
                    f"{cls.__name__}, the {work.kind!r}, has no step {name!r}; leave it to a program that has it, and "
                    "give another version to a workflow with other steps"
                )
            arguments = await _run_step(db, cls, table, found, number, name, arguments)
            following = next(iter(steps[steps.index(name) + 1 :]), None)
            if following is None and number + 1 == len(decision.works):
                break  # the decision row is deleted next
            found = await note_progress(db, table, found, {**found.progress, number: (following, arguments)})
    return found


async def note_progress(
    db: Connection, table: str, decision: Decision, progress: Mapping[int, tuple[str | None, Any]]
) -> Decision | None:
    """
    Write how far workflows got, unless another writer has got on; return what the decision row says now.

    Raises:
        LimitExceeded: The arguments of the next steps are too large.
        TableOrmError: The store refused it, or did not answer.
    """
    row = attrs.evolve(decision, progress=progress).progress_row()
    merge, what = Operation(Verb.MERGE, row, decision.etag), f"progress of the decision row {decision.token}"
    etag = await write_decision(db, table, merge, what)
    if etag is None:
        return await read_decision(db, table, decision.partition_key, decision.token)
    return attrs.evolve(decision, progress=progress, etag=etag)


@attrs.define
class Progress:
    """
    How far the works of a decision are that are done page by page.

    Args:
        db: Where the decision row is.
        table: Its table.
        decision: What it says; None if another writer has deleted it meanwhile.
    """

    db: Connection
    table: str
    decision: Decision | None
    _turn: asyncio.Lock = attrs.Factory(asyncio.Lock)

    def reached(self, number: int) -> dict[str, str]:
        """Return the cursors of a work, by name of what is done."""
        _, found = ("", None) if self.decision is None else self.decision.progress.get(number, ("", None))
        return cast("dict[str, str]", found) if isinstance(found, dict) else {}

    async def note(self, number: int, name: str, cursor: str) -> bool:
        """Write a cursor into the decision row; return False if that is gone. Raises TableOrmError."""
        async with self._turn:
            if self.decision is not None:
                reached = {**self.reached(number), name: cursor}
                progress = {**self.decision.progress, number: (None, reached)}
                self.decision = await note_progress(self.db, self.table, self.decision, progress)
            return self.decision is not None
