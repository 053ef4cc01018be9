"""
Observing requests: the store through which all requests of an observed database go, and who is told of them.

Nothing of this is on the way of a request while nobody observes: `Connection.sending` puts an `ObservedStore` around
the store only then.
"""

import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import nullcontext
from contextvars import ContextVar
from functools import cache, partial
from operator import attrgetter
from time import perf_counter
from types import TracebackType
from typing import Any, Self, TypeVar

import attrs

from ..errors import ModelError, NotSupported, counted, shown
from ..protocol.codes import Fault
from ..protocol.filters import to_odata
from ..stores import CURRENT, Operation, StoreLayer, StoreRequest, TableStore, Transfer
from .requests import OK, ObservedRequest
from .spans import Spans, make_spans

T = TypeVar("T")

Hook = Callable[[ObservedRequest], object]
"""A function that is called with each request when it has ended."""

_requests = logging.getLogger("tableorm.requests")
_slow = logging.getLogger("tableorm.slow")

_LISTENERS: ContextVar[tuple["Observation", ...]] = ContextVar("tableorm_listeners", default=())


@attrs.define(eq=False)
class QueryWork:
    """
    The requests of a query while it runs, some of them at the same time.

    Args:
        describe: Returns the plan as text, with the values of properties or without.
        scans: Whether it visits every partition, and nobody was warned yet.
        running: How many requests run now.
        since: When the first of these began.
        seconds: For how long requests ran before.
        slow: Whether somebody was warned that it is slow.
    """

    describe: Callable[[bool], str]
    scans: bool
    running: int = 0
    since: float = 0.0
    seconds: float = 0.0
    slow: bool = False

    def begin(self) -> None:
        """Note that a request begins."""
        if not self.running:
            self.since = perf_counter()
        self.running += 1

    def end(self) -> None:
        """Note that a request has ended."""
        self.running -= 1
        now = perf_counter()
        self.seconds, self.since = self.seconds + now - self.since, now


@attrs.define(eq=False, repr=False)
class Observation:
    """
    The requests of a block, recorded by `with db.observe() as seen: ...`.

    Requests of tasks that were started in the block are included, those of other tasks are not.

    Attributes:
        requests: The requests in the order in which they finished; each attempt is one.
    """

    _watch: "Watch"
    _on_request: Hook | None
    _show_values: bool
    requests: list[ObservedRequest] = attrs.field(factory=list[ObservedRequest], init=False)
    # None before the block is begun, and False after it: a task that goes on has it in its context still.
    _open: bool | None = attrs.field(default=None, init=False)

    @property
    def cost(self) -> int:
        """The number of storage transactions that are billed: one for each request."""
        return len(self.requests)

    @property
    def rows(self) -> int:
        """The number of rows that were read, written or deleted."""
        return sum(each.rows for each in self.requests)

    def __str__(self) -> str:
        return "\n".join(map(str, self.requests)) or "no requests"

    def __repr__(self) -> str:
        return f"<observation: {counted(self.cost, 'request')}, {counted(self.rows, 'row')}>"

    def __enter__(self) -> Self:
        if self._open is not None:
            raise NotSupported("this observation was begun already; call db.observe() for each block")
        self._open = True
        _LISTENERS.set((*_LISTENERS.get(), self))
        self._watch.blocks += 1
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open = False
        _LISTENERS.set(tuple(each for each in _LISTENERS.get() if each._open))
        self._watch.blocks -= 1

    def _note(self, request: ObservedRequest) -> None:
        self.requests.append(request)
        if self._on_request is not None:
            self._on_request(request)


class Watch:
    """
    Who is told of the requests of a database.

    Args:
        echo: Whether each request is printed.
        on_request: Called with each request.
        show_values: Whether they and the logs are shown the values of properties.
        slow: Seconds after which a query or another request is warned of; None for never.
        tracer_provider: The provider of OpenTelemetry that gets spans; None for the one of the process.

    Raises:
        TypeError: `on_request` is not a plain function.
        ValueError: `slow` is not above 0.

    Attributes:
        always: Whether anybody observes the database as long as it is open.
        blocks: How many blocks observe it now.
        advises: Whether a query that finds nothing may send a request more, to find out why.
    """

    def __init__(
        self,
        *,
        echo: bool = False,
        on_request: Hook | None = None,
        show_values: bool = False,
        slow: float | None = None,
        tracer_provider: Any = None,
    ) -> None:
        if type(echo) is not bool:
            raise ModelError(f"connect(echo={shown(echo)}) is rejected: give True or False")
        if type(slow) not in (int, float, type(None)) or not (slow is None or slow > 0):
            error = ModelError if type(slow) not in (int, float) else ValueError
            raise error(f"connect(slow={shown(slow)}) is rejected: give a number of seconds above 0, or None")
        self._given = [print] * echo + _checked_hooks("connect", on_request)
        self._hooks = self._given
        self._spans: Spans | None = None
        self._provider, self._show_values, self.slow = tracer_provider, show_values, slow
        self.always, self.blocks = False, 0
        self.advises = echo or slow is not None

    def begin(self, url: str) -> None:
        """Find out who observes a database as it is opened: whether the logger is on, and OpenTelemetry."""
        self._hooks = [*self._given, _log] if _requests.isEnabledFor(logging.INFO) else self._given
        self._spans = make_spans(self._provider, url)
        self.always = bool(self._hooks) or self.slow is not None or self._spans is not None

    def observe(self, on_request: Hook | None, *, show_values: bool) -> Observation:
        """Return a block that observes. It takes and raises what `Database.observe` does."""
        _checked_hooks("observe", on_request)
        return Observation(self, on_request, show_values)

    async def send(
        self,
        request: Awaitable[T],
        operation: str,
        table: str,
        model: str = "",
        *,
        details: Callable[[bool], Mapping[str, Any]] = lambda _: {},
        rows: Callable[[T], int] = lambda _: 0,
        work: QueryWork | None = None,
        attempt: int = 1,
    ) -> T:
        """
        Send a request, and tell all who observe: each request of an observed database goes this way.

        Args:
            request: The call of the store.
            operation: What `ObservedRequest` calls it.
            table: Name of the table; "" if it is about none.
            model: The model that it is for, or what of tableorm, such as its outbox; "" if it is for none.
            details: Returns what else an `ObservedRequest` says of it, with the values of properties or without.
            rows: Returns how many rows an answer means.
            work: The query that it is part of; None if it is not, or nobody is warned of slow ones.
            attempt: Which attempt it is, from 1.
        """
        listeners = [o for o in _LISTENERS.get() if o._watch is self and o._open]  # pyright: ignore[reportPrivateUsage]
        if not (listeners or self.always):
            return await request  # only other tasks are observed
        begun, number = perf_counter(), attempt

        def report(outcome: str, found: int = 0) -> None:
            nonlocal begun, number
            now = perf_counter()

            @cache
            def record(values: bool) -> ObservedRequest:  # noqa: FBT001 - it is a key of the cache
                return ObservedRequest(
                    operation=operation,
                    table=table,
                    model=model,
                    rows=found,
                    bytes_sent=transfer.bytes_sent,
                    bytes_received=transfer.bytes_received,
                    seconds=now - begun,
                    attempt=number,
                    outcome=outcome,
                    **details(values),
                )

            slow = self.slow is not None and work is None and now - begun > self.slow
            for hook in (*self._hooks, *([_warn_of_slow] if slow else [])):
                _call(hook, partial(record, self._show_values))
            for each in filter(attrgetter("_open"), listeners):
                _call(each._note, partial(record, each._show_values))
            begun, number = now, number + 1
            transfer.bytes_sent = transfer.bytes_received = None

        transfer, outer = Transfer(report), CURRENT.get()
        CURRENT.set(transfer)
        outcome, found = OK, 0
        if work is not None:
            work.begin()
        span = nullcontext(_ignore) if self._spans is None else self._spans.span(operation, table)
        with span as finish:
            try:
                answer = await request
                found = rows(answer)
                return answer
            except BaseException as error:
                outcome = error.code if isinstance(error, Fault) else type(error).__name__
                raise
            finally:
                CURRENT.set(outer)
                report(outcome, found)
                finish(outcome, found)
                if work is not None:
                    work.end()
                    _call(self._judge, lambda: work)

    def _judge(self, work: QueryWork) -> None:
        """Warn of a query that scans or is slow, once."""
        if self.slow is not None and work.seconds > self.slow and not work.slow:
            work.slow = True
            _slow.warning("a query took more than %g s: %s", self.slow, work.describe(self._show_values))
        elif work.scans:
            _slow.warning("a query visits every partition: %s", work.describe(self._show_values))
        work.scans = False


def _call(function: Callable[[T], object], argument: Callable[[], T]) -> None:
    """Tell somebody of a request. It was sent, whatever they raise: that is logged."""
    try:
        function(argument())
    except Exception:  # noqa: BLE001 - it is the user's
        _requests.exception("%r raised an error, which changes nothing for the request", function)


def _checked_hooks(function: str, on_request: Hook | None) -> list[Hook]:
    """Return a hook as a list; raise TypeError if it is none."""
    if on_request is None:
        return []
    given: object = on_request
    if not callable(given) or inspect.iscoroutinefunction(given):
        raise TypeError(f"{function}(on_request={on_request!r}) is rejected: give a plain function of one argument")
    return [on_request]


def _log(request: ObservedRequest) -> None:
    _requests.info("%s", request)


def _warn_of_slow(request: ObservedRequest) -> None:
    _slow.warning("a request was slow: %s", request)


def _ignore(outcome: str, rows: int) -> None:
    del outcome, rows


class ObservedStore(StoreLayer):
    """
    Tells of each request.

    Args:
        store: The store itself.
        watch: Who is told.
        model: The model that the requests are for.
        work: The query that they are part of.
        attempt: Which attempt they are, from 1.
    """

    def __init__(self, store: TableStore, watch: Watch, model: str, work: QueryWork | None, attempt: int) -> None:
        super().__init__(store)
        self._watch, self._model, self._work, self._attempt = watch, model, work, attempt

    async def send(self, request: StoreRequest) -> Any:
        """See `StoreLayer`."""
        reads, writes = request.method in ("get", "query"), bool(request.operations)
        return await self._watch.send(
            request.sent_to(self.below),
            request.name,
            request.table,
            self._model if reads or writes else "",
            details=partial(_details, request),
            rows=partial(_rows, request),
            work=self._work if reads else None,
            attempt=self._attempt if writes else 1,
        )


def _details(request: StoreRequest, values: bool) -> dict[str, Any]:  # noqa: FBT001 - one of two texts
    """Return what else an `ObservedRequest` says of a request, with the values of properties or without."""
    if request.method == "get":
        partition_key, row_key, select = request.arguments
        return {"partition_key": partition_key, "row_key": row_key, "select": select}
    if request.method == "query":
        query, limit, _ = request.arguments
        where = None if query.filter is None else to_odata(query.filter, show_values=values)
        return {"filter": where, "select": query.select, "top": limit}
    operations = request.operations
    if not operations:
        return {}
    row = operations[0].row
    keys = {"partition_key": row["PartitionKey"]} | ({"row_key": row["RowKey"]} if request.method == "write" else {})
    return {**keys, "operations": _shown(operations, show_values=values)}


def _rows(request: StoreRequest, answer: Any) -> int:
    """Return how many rows an answer means."""
    if request.method == "query":
        return len(answer.rows)
    return 1 if request.method == "get" else len(request.operations)


def _shown(operations: Sequence[Operation], *, show_values: bool) -> tuple[Operation, ...]:
    """Return operations for people to see: with their keys alone, unless they want more."""
    if show_values:
        return tuple(operations)
    return tuple(
        Operation(each.verb, {name: each.row[name] for name in ("PartitionKey", "RowKey")}, each.if_match)
        for each in operations
    )
