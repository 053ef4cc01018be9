"""
Faults that a test asks for: the next insert fails, or is lost or late, or its reply is lost.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from enum import Enum
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar, cast

import attrs
from msgspec import structs

from ..connection.connection import connection_of
from ..connection.queue_and_blob_requests import BLOB_OPERATIONS, QUEUE_OPERATIONS
from ..database.database import Database
from ..protocol.codes import Code, Fault
from ..stores import (
    LISTS_OF_PLACES,
    BlobStore,
    Capabilities,
    LayerBeside,
    Operation,
    QueueStore,
    StoreLayer,
    StoreRequest,
    TableStore,
    Verb,
)

T = TypeVar("T")

_OPERATIONS = ("get", "query", *Verb, "transaction", "create-table", "delete-table", "list-tables")
_OF_QUEUES = tuple(QUEUE_OPERATIONS.values())
_OF_BLOBS = tuple(dict.fromkeys(BLOB_OPERATIONS.values()))
_READING = (
    *("get", "query", "list-tables", "list-queues", "queue-length", "peek-messages"),
    *("list-containers", "blob-info", "get-blob", "list-blobs"),
)

_CODES: dict[int, Code] = {
    400: Code.INVALID_INPUT,
    403: Code.AUTHORIZATION_FAILURE,
    404: Code.RESOURCE_NOT_FOUND,
    409: Code.ENTITY_EXISTS,
    412: Code.CONDITION_NOT_SATISFIED,
    413: Code.REQUEST_BODY_TOO_LARGE,
    429: Code.TOO_MANY_REQUESTS,
    500: Code.INTERNAL_ERROR,
    503: Code.SERVER_BUSY,
    504: Code.NO_ANSWER,
}
"""The code of each status, as the operations of rows meet it."""

_BLOB_CODES: dict[int, Code] = {404: Code.BLOB_NOT_FOUND, 409: Code.BLOB_EXISTS, 412: Code.CONDITION_NOT_MET}
_CONTAINER_CODES: dict[int, Code] = {404: Code.CONTAINER_NOT_FOUND, 409: Code.CONTAINER_EXISTS}
_OTHER_CODES: dict[str, dict[int, Code]] = {
    **{each: {404: Code.QUEUE_NOT_FOUND} for each in _OF_QUEUES},
    **dict.fromkeys(_OF_BLOBS, _BLOB_CODES),
    **{each: _CONTAINER_CODES for each in _OF_BLOBS if "container" in each or each == "list-blobs"},
}
"""The codes of statuses, by operation, where they are others."""


class _Fate(Enum):
    """What becomes of a request that meets a fault."""

    REFUSED = "it is rejected"
    DONE = "it is done, and its reply is lost"
    LOST = "it never arrives"
    LATE = "it arrives later, when nobody waits for it any more"


@attrs.define(eq=False)
class PlannedFault:
    """
    A fault that waits for its requests. At the end of a `with` block it's removed, and raises an error if fewer
    requests came than it was planned for.

    Args:
        operation: The operation that fails.
        table: The name of the table, queue or container; None for any.
        fault: How the request fails.
        fate: What happens to the request itself.
        left: How many more requests will fail.
        late: The delayed requests.
    """

    operation: str
    table: str | None
    fault: Fault
    fate: _Fate
    left: int
    late: list[Callable[[], Awaitable[object]]] = attrs.field(init=False, factory=list[Callable[[], Awaitable[object]]])

    async def deliver(self) -> int:
        """Deliver the delayed requests in their order. Returns how many of them the store has accepted."""
        late, self.late = self.late, []
        accepted = 0
        for send in late:
            with suppress(Fault):  # nobody hears of it
                await send()
                accepted += 1
        return accepted

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        left, self.left = self.left, 0
        if left and error is None:
            beside = "queue" if self.operation in _OF_QUEUES else "container" if self.operation in _OF_BLOBS else None
            where = "" if self.table is None else f" in {beside or 'table'} {self.table}"
            what = f"{left} more {self.operation!r}{where}"
            expected = {
                _Fate.REFUSED: f"{what} should have failed with {self.fault.code}",
                _Fate.DONE: f"the reply to {what} should have been lost",
                _Fate.LOST: f"{what} should have been lost",
                _Fate.LATE: f"{what} should have been delayed",
            }[self.fate]
            hint = (
                "db.observe() shows what was sent" if beside else "print(db.explain_write(...)) shows what a verb sends"
            )
            raise AssertionError(f"{expected}, but no such request was sent: {hint}")


def _index_of(planned: PlannedFault, table: str, operations: Sequence[str]) -> int | None:
    """Return which of the operations of a request a fault is for; None if for none."""
    if not planned.left or (planned.table is not None and planned.table.lower() != table.lower()):
        return None
    return operations.index(planned.operation) if planned.operation in operations else None


class Faults:
    """
    Makes requests of an open database fail.

        with faults.fail_next("insert", with_=409):
            await db.insert(employee)

    A fault stands for the failure after all retries, so the program gets it immediately, as an error of
    `tableorm.errors`, like any other error.

    Args:
        db: The database, or a scope of it; both are affected.
    """

    def __init__(self, db: Database) -> None:
        self._planned: list[PlannedFault] = []
        connection = connection_of(db)
        connection.wrap_store(lambda store: _FaultyStore(store, self._planned))
        connection.wrap_queues(lambda store: cast("QueueStore", _FaultyBeside(store, QUEUE_OPERATIONS, self._planned)))
        connection.wrap_blobs(lambda store: cast("BlobStore", _FaultyBeside(store, BLOB_OPERATIONS, self._planned)))

    def fail_next(self, operation: str, *, with_: str | int, table: str | None = None, times: int = 1) -> PlannedFault:
        """
        Reject the next request with this operation, or with a transaction that contains it. It has no effect.

            with faults.fail_next("insert", with_=409):
                await db.insert(employee)

        Args:
            operation: "insert", "merge", "replace", "insert-or-merge", "insert-or-replace", "delete", "transaction",
                "get", "query", "create-table", "delete-table" or "list-tables"; of queues "create-queue",
                "delete-queue", "list-queues", "queue-length", "put-message", "take-messages", "peek-messages",
                "renew-message", "delete-message" or "clear-messages"; of blobs "create-container",
                "delete-container", "list-containers", "put-blob", "append-blob", "blob-info", "get-blob",
                "delete-blob" or "list-blobs".
            with_: The error code of the service, such as "ServerBusy", or the HTTP status.
            table: The name of the table, queue or container; None for any.
            times: How many requests are rejected.

        Raises:
            ValueError: The operation, code or status is unknown.
        """
        codes = [str(code) for code in Code]
        statuses = _CODES | _OTHER_CODES.get(operation, {})
        code = statuses.get(with_) if isinstance(with_, int) else with_
        if code is None or code not in codes:
            raise ValueError(
                f"fail_next(with_={with_!r}): give an error code of the service, such as 'ServerBusy', or one of the "
                f"statuses {', '.join(map(str, _CODES))}"
            )
        return self._plan(operation, table, Fault(code, "A test made this request fail."), times, _Fate.REFUSED)

    def lose_reply(self, operation: str, *, table: str | None = None, times: int = 1) -> PlannedFault:
        """
        Execute the next request with this operation, but lose its reply, as if the connection broke.

            with faults.lose_reply("merge"):
                await db.save(employee)

        A write is then in doubt: tableorm finds out what happened, or raises `OutcomeUnknown`.

        Args:
            operation: As in `fail_next`.
            table: The name of the table, queue or container; None for any.
            times: How many replies are lost.

        Raises:
            ValueError: The operation is unknown.
        """
        return self._silence(operation, table, "lost the reply to this request", times, _Fate.DONE)

    def lose_request(self, operation: str, *, table: str | None = None, times: int = 1) -> PlannedFault:
        """
        Lose the next request with this operation before it arrives, as if the connection broke earlier. The program
        can't distinguish this from a lost reply, so a write is in doubt.

        Args:
            operation: As in `fail_next`.
            table: The name of the table, queue or container; None for any.
            times: How many requests are lost.

        Raises:
            ValueError: The operation is unknown.
        """
        return self._silence(operation, table, "lost this request", times, _Fate.LOST)

    def delay_request(self, operation: str, *, table: str | None = None, times: int = 1) -> PlannedFault:
        """
        Delay the next request with this operation: the program gets no reply, as with `lose_request`, and the request
        arrives when the test calls `deliver()` of the returned object.

            with faults.delay_request("insert") as late, pytest.raises(OutcomeUnknown):
                await db.insert(note, repeat=False)
            assert await late.deliver() == 1

        Args:
            operation: As in `fail_next`.
            table: The name of the table, queue or container; None for any.
            times: How many requests are delayed.

        Raises:
            ValueError: The operation is unknown.
        """
        return self._silence(operation, table, "delayed this request", times, _Fate.LATE)

    def _silence(self, operation: str, table: str | None, what: str, times: int, fate: _Fate) -> PlannedFault:
        """Let nobody answer requests: writes are in doubt then."""
        fault = Fault(Code.NO_ANSWER, f"A test {what}.", doubt=operation not in _READING)
        return self._plan(operation, table, fault, times, fate)

    def _plan(self, operation: str, table: str | None, fault: Fault, times: int, fate: _Fate) -> PlannedFault:
        known = (*_OPERATIONS, *_OF_QUEUES, *_OF_BLOBS)
        if operation not in known:
            raise ValueError(f"there is no operation {operation!r}; give one of {', '.join(known)}")
        self._planned.append(PlannedFault(operation, table, fault, fate, times))
        return self._planned[-1]


class _FaultyStore(StoreLayer):
    """
    Tables whose requests meet the faults that are planned.
    """

    def __init__(self, store: TableStore, planned: Sequence[PlannedFault]) -> None:
        super().__init__(store)
        self._planned = planned

    @property
    def capabilities(self) -> Capabilities:
        """What the store can do; that it repeats requests itself, so that nobody else repeats what is to fail."""
        return attrs.evolve(self.below.capabilities, retries=True)

    async def send(self, request: StoreRequest) -> Any:
        """See `StoreLayer`."""
        operations, names = [_as_sent(each) for each in request.operations], [request.name]
        conditional = None
        if request.method == "write":
            request = structs.replace(request, arguments=tuple(operations))
        elif request.method == "transact":
            request = structs.replace(request, arguments=(operations,))
            names = [*(each.verb for each in operations), "transaction"]
            conditional = next((n for n, each in enumerate(operations) if each.if_match not in (None, "*")), None)
        call = partial(request.sent_to, self.below)
        return await _send(self._planned, request.table, names, call, conditional=conditional)


def _as_sent(operation: Operation) -> Operation:
    """Return an operation as it is on the wire: what its sender does to the row afterwards changes nothing."""
    return Operation(operation.verb, dict(operation.row), operation.if_match)


class _FaultyBeside(LayerBeside):
    """
    A `QueueStore` or a `BlobStore` whose requests meet the faults that are planned.
    """

    def __init__(self, store: Any, operations: Mapping[str, str], planned: Sequence[PlannedFault]) -> None:
        super().__init__(store)
        self._operations, self._planned = operations, planned

    @property
    def capabilities(self) -> Capabilities:
        """What the store can do; that it repeats requests itself, so that nobody else repeats what is to fail."""
        own: Capabilities = self.below.capabilities
        return attrs.evolve(own, retries=True)

    async def send(self, method: str, given: tuple[Any, ...], call: Callable[..., Awaitable[Any]]) -> Any:
        """See `LayerBeside`."""
        place = "" if method in LISTS_OF_PLACES else str(*given[:1])
        return await _send(self._planned, place, [self._operations[method]], partial(call, *given))


async def _send(
    planned: Sequence[PlannedFault],
    table: str,
    operations: Sequence[str],
    call: Callable[[], Awaitable[T]],
    *,
    conditional: int | None = None,
) -> T:
    """
    Send a request about a table, queue or container, unless a fault is planned for one of its operations.

    Args:
        planned: The faults.
        table: The name of the table, queue or container.
        operations: The operations of the request; of a transaction "transaction" comes last.
        call: Sends the request.
        conditional: Which operation of a transaction has an ETag, so that it is the one that a condition refuses.
    """
    for each in planned:
        index = _index_of(each, table, operations)
        if index is not None:
            each.left -= 1
            if each.fate is _Fate.DONE:
                await call()
            elif each.fate is _Fate.LATE and each.operation not in _READING:
                each.late.append(call)
            fault = each.fault
            # The service tells which operation of a transaction it refuses, unless it refuses the whole.
            told = index if index < len(operations) - 1 else None
            if told is None and fault.code == Code.CONDITION_NOT_SATISFIED:
                told = conditional
            raise Fault(fault.code, fault.message, told, doubt=fault.doubt)
    return await call()
