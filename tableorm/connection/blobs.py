"""
Requests for blobs that verbs and workers send: counted, observed, and repeated after a transient fault.
"""

from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable
from typing import Any, TypeVar, cast

from ..errors import AccessDenied, NotSupported
from ..protocol.codes import Code, Fault
from ..stores import BlobInfo, BlobPage, BlobStore, RetryBudget
from .connection import Connection
from .queue_and_blob_requests import BLOB_OPERATIONS, CountedBeside
from .translate import translate

T = TypeVar("T")

NO_BLOB = frozenset({Code.BLOB_NOT_FOUND, Code.CONTAINER_NOT_FOUND})
"""What is said of a blob that is not there."""


async def ask_blobs(db: Connection, model: str, request: Callable[[BlobStore], Awaitable[T]]) -> T:
    """
    Send a request for blobs, and return its reply. After a transient fault it is sent again, where the store does not
    do so itself; so one that failed in the end may have happened.

    Args:
        db: The connection.
        model: What it is for, for counters: a model or an index.
        request: Calls the store.

    Raises:
        Fault: The store refused it, or did not answer.
        NotSupported: The database has no blobs.
    """
    store = cast("BlobStore", CountedBeside(db, db.blobs, BLOB_OPERATIONS, model))
    budget = None if store.capabilities.retries else RetryBudget(db.retry)
    while True:
        try:
            return await request(store)
        except Fault as fault:
            db.count_fault(fault)
            if not fault.transient or budget is None or not await budget.another(fault):
                raise


async def list_blobs(db: Connection, model: str, container: str, prefix: str, what: str) -> AsyncGenerator[BlobInfo]:
    """
    Yield the blobs whose names begin with a prefix; none if there is no such container.

    Args:
        db: The connection.
        model: What they are for, for counters.
        container: Name of the container.
        prefix: How their names begin.
        what: What they are, for messages.

    Raises:
        TableOrmError: The store refused it, or did not answer.
    """
    continuation: str | None = None
    while True:

        def list_page(store: BlobStore, start: str | None = continuation) -> Awaitable[BlobPage]:
            return store.list_blobs(container, prefix, start)

        try:
            page = await ask_blobs(db, model, list_page)
        except Fault as fault:
            if fault.code == Code.CONTAINER_NOT_FOUND:
                return
            raise translate(fault, f"listing of {what}", "") from None
        for each in page.blobs:
            yield each
        continuation = page.continuation
        if continuation is None:
            return


async def make_container(db: Connection, model: str, container: str) -> None:
    """Create a container, if there is none of the name. Raises what `ask_blobs` raises."""
    try:
        await ask_blobs(db, model, lambda store: store.create_container(container))
    except Fault as fault:
        if fault.code != Code.CONTAINER_EXISTS:
            raise


async def put_blob(
    db: Connection, model: str, container: str, name: str, data: bytes | AsyncIterable[bytes], **conditions: Any
) -> BlobInfo:
    """
    Write a blob, and make its container if there is none.

    Args:
        db: The connection.
        model: What it is for, for counters.
        container: Name of the container.
        name: Name of the blob.
        data: Its bytes, which can be iterated again.
        conditions: The other arguments of `BlobStore.put`.

    Raises:
        Fault: The store refused it, or did not answer.
    """

    def put(store: BlobStore) -> Awaitable[BlobInfo]:
        return store.put(container, name, data, **conditions)

    try:
        return await ask_blobs(db, model, put)
    except Fault as fault:
        if fault.code != Code.CONTAINER_NOT_FOUND:
            raise
    await make_container(db, model, container)
    return await ask_blobs(db, model, put)


def metadata_of(info: BlobInfo) -> dict[str, str]:
    """Return the metadata of a blob, by their names in lower case: some stores change the case."""
    return {name.lower(): value for name, value in info.metadata.items()}


async def require_blobs(db: Connection, what: str) -> None:
    """
    Refuse what needs blobs where they are out of reach.

    Args:
        db: The database.
        what: What is in blobs, for messages: "Employee.photo is a blob".

    Raises:
        AccessDenied: The database was opened with a token for a table.
        NotSupported: It has no blobs.
    """
    if db.guarded is not None and db.has_own_blobs and await db.guarded.token_table() is not None:
        raise AccessDenied(
            f"{what}, and the token of this database is for a table alone; use a token of the account, or say where "
            "the blobs are: connect(url, blobs=...)"
        )
    try:
        _ = db.blobs
    except NotSupported as error:
        raise NotSupported(f"{what}: {error}") from None
