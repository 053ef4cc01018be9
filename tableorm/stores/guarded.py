"""
Guarded stores, which a token limits, and what a backend offers to programs that make tokens.

A `GuardedStore` wraps the store of any backend. It refuses what the token does not allow, narrows queries to the
token's range of keys, and gets a fresh token when one expires. A backend that can verify a token does so in `admit`. A
client only reads it, since the service verifies it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

import attrs

from ..protocol.codes import Code, Fault
from ..protocol.edm import TICKS_PER_SECOND, ticks_from_datetime
from ..protocol.filters import And
from ..protocol.key_range import KeyRange
from ..protocol.limits import check_filter, check_key
from ..protocol.rights import Rights, authorize, range_of
from ..protocol.sas import TABLE_LETTERS, AccessPolicy, Action, TableSas, expiry_ticks, parse_sas
from .checks import access_of, with_index
from .clock import CLOCK
from .intervals import meet
from .layers import StoreLayer, StoreRequest
from .tables import Bounds, RowPage, RowQuery, TableStore

Policies = Mapping[str, AccessPolicy | None]
"""A table's stored access policies by name. The value is None for a policy that supplies nothing."""

Supplier = Callable[[], Awaitable[str]]
"""An `async def` function that returns a token; it is called whenever another one is needed."""

# Another token may succeed after these refusals. Azurite answers the second where the service answers the first.
_STALE = frozenset({Code.AUTHENTICATION_FAILED, Code.AUTHORIZATION_FAILURE})
_ACCESS = {
    "create_table": Action.CREATE_TABLE,
    "delete_table": Action.DELETE_TABLE,
    "list_tables": Action.LIST_TABLES,
    "get": Action.QUERY,
    "query": Action.QUERY,
}
"""What a method needs that writes no rows."""

# A token is replaced this long before it expires; a short-lived one when a tenth of its time is left.
_EARLY_SECONDS = 60.0


@attrs.frozen
class Signer:
    """
    The account and the key that sign tokens.

    Args:
        account: Name of the account.
        key: One of the account's keys, decoded.
    """

    account: str
    key: bytes = attrs.field(repr=False)


class AccessControl(Protocol):
    """
    The optional member `access` of a backend, for programs that give others access.

    Every method raises `Fault`, or `tableorm.errors.NotSupported` where the backend cannot do it; the message says why.
    """

    async def signer(self) -> Signer:
        """Return the account and key that sign tokens for the tables."""
        ...

    async def policies(self, table: str) -> Policies:
        """Read the stored access policies of a table."""
        ...

    async def change_policies(self, table: str, change: Callable[[Policies], Policies]) -> None:
        """Replace a table's policies by what `change` makes of them. `change` must not raise."""
        ...


class Tokens:
    """
    A token, or a function that supplies one. The function is called again shortly before a token expires, and when one
    is rejected.

    Args:
        given: The token, or the function.

    Raises:
        TypeError: `given` is neither.
    """

    def __init__(self, given: str | Supplier) -> None:
        if not isinstance(given, str) and not callable(given):  # pyright: ignore[reportUnnecessaryComparison]
            # The message leaves out the value, which could be a token as bytes.
            raise TypeError(
                f"sas is {type(given).__name__}: give a token as str, or an async function that returns one"
            )
        self._supplier = None if isinstance(given, str) else given
        self._text = _strip_token(given) if isinstance(given, str) else ""
        self._due: float | None = None  # ticks
        self._turn = asyncio.Lock()

    @property
    def renewable(self) -> bool:
        """Whether there is a function that supplies tokens."""
        return self._supplier is not None

    async def current(self) -> str:
        """
        Return the token to use now.

        Raises:
            Exception: Whatever the function raises.
            TypeError: The function didn't return a string.
        """
        if self._supplier is not None and self._is_due():
            async with self._turn:  # one task asks for all of them
                if self._is_due():
                    await self._ask(self._supplier)
        return self._text

    async def renew(self, used: str) -> bool:
        """Return whether there is another token than `used`, which was rejected. Raises what `current` raises."""
        if self._supplier is None:
            return False
        async with self._turn:
            if self._text == used:
                await self._ask(self._supplier)
            return self._text != used

    def _is_due(self) -> bool:
        return not self._text or (self._due is not None and ticks_from_datetime(CLOCK.now()) >= self._due)

    async def _ask(self, supplier: Supplier) -> None:
        text: object = await supplier()
        if not isinstance(text, str) or not text:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"sas={supplier!r} returned {type(text).__name__}, not a token; return its text")
        self._text, self._due = _strip_token(text), None
        try:
            token, _ = parse_sas(self._text)
        except ValueError:
            return  # the service refuses it, and says why
        end, now = expiry_ticks(token), ticks_from_datetime(CLOCK.now())
        if end is not None:
            self._due = end - min(_EARLY_SECONDS * TICKS_PER_SECOND, max(0, end - now) / 10)


def _strip_token(token: str) -> str:
    # It may come from a file with a line end, or be copied with its question mark.
    return str(token).strip().lstrip("?")


def rights_of(token: str) -> Rights | None:
    """
    Read what a token allows, without verifying it. None if it cannot be read: then the service decides alone.

    Where a stored policy supplies the permissions, every permission counts as given, since only the service knows them.
    """
    try:
        found, _ = parse_sas(token)
    except ValueError:
        return None
    if isinstance(found, TableSas) and found.sp is None:
        return attrs.evolve(found, sp=TABLE_LETTERS)
    return found


def narrowed(query: RowQuery, keys: KeyRange) -> RowQuery | None:
    """
    Return the part of a query that lies within a range of keys; None if no part does.

    Raises:
        Fault: InvalidInput: the filter nests too deeply to add a condition.
    """
    partition = meet(query.partition, Bounds(keys.start_partition, keys.end_partition))
    if partition is None:
        return None
    if partition.point:
        first = keys.start_row if partition.lower == keys.start_partition else None
        last = keys.end_row if partition.lower == keys.end_partition else None
        row = meet(query.row, Bounds(first or None, last))
        return None if row is None else attrs.evolve(query, partition=partition, row=row)
    where, condition = query.where, keys.condition()
    if condition is not None and (keys.start_row or keys.end_row is not None):
        # The first and the last partition of the range are not in it as a whole.
        where = condition if where is None else And((*(where.terms if isinstance(where, And) else (where,)), condition))
        check_filter(where)
    return attrs.evolve(query, partition=partition, where=where)


class GuardedStore(StoreLayer):
    """
    A store that a token limits: what it does not allow raises the service's Fault before the store is asked.

    A query returns only rows within the token's range of keys; one that is wholly outside returns no rows, as from the
    service. When a token is rejected and there is another, the request is repeated once: a refusal has had no effect.

    Args:
        store: The store that is guarded.
        tokens: Where the token comes from.
        admit: Returns what a token allows now, or None if that is not known. Raises Fault if the token is not valid.
    """

    def __init__(self, store: TableStore, tokens: Tokens, admit: Callable[[str], Awaitable[Rights | None]]) -> None:
        super().__init__(store)
        self._tokens, self._admit = tokens, admit

    async def send(self, request: StoreRequest) -> Any:
        """See `StoreLayer`."""
        for last in (False, True):
            used = await self._tokens.current()
            try:
                rights = await self._admit(used)
            except Fault as fault:
                if last or fault.code not in _STALE or not await self._tokens.renew(used):
                    raise
                continue
            _check(request, rights)
            try:
                return await self._send_within(request, rights)
            except Fault as fault:
                if last or fault.code not in _STALE or not await self._tokens.renew(used):
                    raise
        raise AssertionError("the second attempt returns or raises")

    async def _send_within(self, request: StoreRequest, rights: Rights | None) -> Any:
        """Send a request for those of its rows that are within the range of a token."""
        keys = None if rights is None or request.method != "query" else range_of(rights)
        if keys is None:
            return await request.sent_to(self.below)
        query, limit, continuation = request.arguments
        allowed = narrowed(query, keys)
        if allowed is None:
            # No row is returned, but the store still checks the token, and whether the table exists.
            await self.below.query(request.table, attrs.evolve(query, select=()), 1)
            return RowPage([], None)
        return await self.below.query(request.table, allowed, limit, continuation)

    async def token_table(self) -> str | None:
        """Return the one table that the token is for; None for a token of the account, or one that nobody can read."""
        table: str | None = getattr(await self._admit(await self._tokens.current()), "tn", None)
        return table

    async def ping(self) -> None:
        """
        Send the store a small request that the token allows. A token for one table cannot list tables.
        """
        rights = await self._admit(await self._tokens.current())
        table = getattr(rights, "tn", None)
        if table is None:
            await self.list_tables()
            return
        keys = range_of(rights) if rights is not None else None
        start = "" if keys is None or keys.start_partition is None else keys.start_partition
        try:
            await self.query(table, RowQuery(Bounds.only(start), select=()), 1)
        except Fault as fault:
            # The store has answered: the token is valid, but not for reading.
            if fault.code != Code.AUTHORIZATION_PERMISSION:
                raise


def _check(request: StoreRequest, rights: Rights | None) -> None:
    """Refuse a request that rights do not allow, and keys that no row can have. Raises Fault."""
    if request.method in _ACCESS:
        _authorize(rights, _ACCESS[request.method], request.table, request.keys)
    for index, operation in enumerate(request.operations):
        keys = operation.row.get("PartitionKey"), operation.row.get("RowKey")
        try:
            _authorize(rights, access_of(operation.verb), request.table, keys)
        except Fault as fault:
            raise (with_index(fault, index) if request.method == "transact" else fault) from None


def _authorize(rights: Rights | None, access: Action, table: str, keys: tuple[object, object] | None) -> None:
    row = None if keys is None else (check_key("PartitionKey", keys[0]), check_key("RowKey", keys[1]))
    if rights is not None:
        authorize(rights, access, table, row)
