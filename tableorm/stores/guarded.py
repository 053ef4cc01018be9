"""
Guarded stores: a store behind a token, and what backends offer to those who make tokens.

The guard stands around the store of any backend. It refuses what the token does not allow, narrows queries to the
token's range of keys, and gets a fresh token when one runs out. A backend that can verify a token does so in `admit`;
for a client it is enough to read it, since the service verifies.
"""

import asyncio
import datetime as dt
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol, TypeVar

import attrs

from ..protocol.codes import Code, Fault
from ..protocol.edm import TICKS_PER_SECOND, ticks_from_datetime, utf16_key
from ..protocol.filters import And, check_depth
from ..protocol.key_range import KeyRange
from ..protocol.limits import check_key
from ..protocol.rights import Rights, authorize, range_of
from ..protocol.sas import TABLE_LETTERS, Access, AccessPolicy, TableSas, expiry_ticks, parse_sas
from .capabilities import Capabilities
from .checks import access_of, with_index
from .tables import Bounds, Operation, Row, RowPage, RowQuery, TableStore

__all__ = [
    "AccessControl",
    "GuardedStore",
    "Policies",
    "Signer",
    "Supplier",
    "TokenSource",
    "Tokens",
    "narrowed",
    "rights_of",
]

T = TypeVar("T")
R = TypeVar("R")

Policies = Mapping[str, AccessPolicy | None]
"""A table's stored access policies by name; None for one that supplies nothing."""

Supplier = Callable[[], Awaitable[str]]
"""An `async def` that returns a token, called whenever another is needed."""

# A refusal that another token may lift. Azurite says the second where the service says the first.
_STALE = frozenset({Code.AUTHENTICATION_FAILED, Code.AUTHORIZATION_FAILURE})
# How long before its end a token is replaced, at most; of a short one the tenth part of its time.
_EARLY_SECONDS = 60.0


@attrs.frozen
class Signer:
    """
    What signs tokens.

    Args:
        account: Name of the account.
        key: One of its keys.
    """

    account: str
    key: bytes = attrs.field(repr=False)


class AccessControl(Protocol):
    """
    What a backend offers to those who give others access: its optional member `access`.

    Every method raises `Fault`, or `tableorm.errors.NotSupported` where there is nothing of the kind, saying why.
    """

    async def signer(self) -> Signer:
        """What signs tokens for the tables."""
        ...

    async def policies(self, table: str) -> Policies:
        """The stored access policies of a table."""
        ...

    async def change_policies(self, table: str, change: Callable[[Policies], Policies]) -> None:
        """Put what `change` makes of a table's policies in their place; it raises nothing."""
        ...


class TokenSource(Protocol):
    """Where a guard has its token from."""

    async def current(self) -> str:
        """The token to use now."""
        ...

    async def renew(self, used: str) -> bool:
        """Whether there is another token than the one that was refused."""
        ...


class Tokens:
    """
    A token, or a function that supplies one; it is asked again shortly before a token expires, and if one is refused.

    Args:
        given: The token, or the function.

    Raises:
        TypeError: It is neither.
    """

    def __init__(self, given: str | Supplier) -> None:
        _check_source(given)
        self._supplier = None if isinstance(given, str) else given
        self._text = _plain(given) if isinstance(given, str) else ""
        self._due: float | None = None  # ticks
        self._turn = asyncio.Lock()

    @property
    def renewable(self) -> bool:
        """Whether there is a function that supplies tokens."""
        return self._supplier is not None

    async def current(self) -> str:
        """
        The token to use now.

        Raises:
            Exception: What the function raises.
            TypeError: It returned no text.
        """
        if self._supplier is not None and self._is_due():
            async with self._turn:  # one asks for all
                if self._is_due():
                    await self._ask(self._supplier)
        return self._text

    async def renew(self, used: str) -> bool:
        """Whether there is another token than the one that was refused. Raises as `current`."""
        if self._supplier is None:
            return False
        async with self._turn:
            if self._text == used:
                await self._ask(self._supplier)
            return self._text != used

    def _is_due(self) -> bool:
        return not self._text or (self._due is not None and _now() >= self._due)

    async def _ask(self, supplier: Supplier) -> None:
        text: object = await supplier()
        if not isinstance(text, str) or not text:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"sas={supplier!r} returned {type(text).__name__}, which is no token; return its text")
        self._text, self._due = _plain(text), None
        try:
            token, _ = parse_sas(self._text)
        except ValueError:
            return  # whoever is asked with it says so
        end, now = expiry_ticks(token), _now()
        if end is not None:
            self._due = end - min(_EARLY_SECONDS * TICKS_PER_SECOND, max(0, end - now) / 10)


def _check_source(given: object) -> None:
    if not isinstance(given, str) and not callable(given):
        # Not the value: bytes of a token would be shown.
        kind = type(given).__name__
        raise TypeError(f"sas is {kind}: give a token as str, or an async function that returns one")


def _now() -> int:
    return ticks_from_datetime(dt.datetime.now(dt.UTC))


def _plain(token: str) -> str:
    # As it is read from a file, or copied with its question mark.
    return str(token).strip().lstrip("?")


def rights_of(token: str) -> Rights | None:
    """
    What a token says that it allows, for who cannot verify it; None if it cannot be read: then all is for the service
    to decide. So are the permissions where a stored policy supplies them.
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
    What of a query is within a range of keys; None if nothing is.

    Raises:
        Fault: InvalidInput: the filter nests too deep to add a condition.
    """
    partition = _meet(query.partition, keys.start_partition, keys.end_partition)
    if partition is None:
        return None
    if partition.point:
        first = keys.start_row if partition.lower == keys.start_partition else None
        last = keys.end_row if partition.lower == keys.end_partition else None
        row = _meet(query.row, first or None, last)
        return None if row is None else attrs.evolve(query, partition=partition, row=row)
    where, condition = query.where, keys.condition()
    if condition is not None and (keys.start_row or keys.end_row is not None):
        # The first and the last of its partitions are not in it as a whole.
        where = condition if where is None else And((*(where.terms if isinstance(where, And) else (where,)), condition))
        try:
            check_depth(where)
        except ValueError as error:
            raise Fault(Code.INVALID_INPUT, f"One of the request inputs is not valid: {error}.") from None
    return attrs.evolve(query, partition=partition, where=where)


def _meet(bounds: Bounds, first: str | None, last: str | None) -> Bounds | None:
    """What of an interval lies from `first` to `last`; None if nothing does."""
    lower, lower_open, upper, upper_open = bounds.lower, bounds.lower_open, bounds.upper, bounds.upper_open
    if first is not None and (lower is None or utf16_key(first) > utf16_key(lower)):
        lower, lower_open = first, False
    if last is not None and (upper is None or utf16_key(last) < utf16_key(upper)):
        upper, upper_open = last, False
    if lower is not None and upper is not None:
        low, high = utf16_key(lower), utf16_key(upper)
        if low > high or (low == high and (lower_open or upper_open)):
            return None
    return Bounds(lower, upper, lower_open, upper_open)


class GuardedStore:
    """
    A `TableStore` behind a token: what it does not allow raises one of the service's Faults before the store is asked.

    A query returns only what is within the token's range; one that is wholly outside returns nothing, as from the
    service. What is refused with a token that can be replaced is done again, once: a refusal has had no effect.

    Args:
        store: The store itself.
        tokens: Where the token is from.
        admit: What a token allows now; None if that is not known. Raises Fault if it is not good.
    """

    def __init__(
        self, store: TableStore, tokens: TokenSource, admit: Callable[[str], Awaitable[Rights | None]]
    ) -> None:
        self._store, self._tokens, self._admit = store, tokens, admit

    @property
    def capabilities(self) -> Capabilities:
        """Those of the store."""
        return self._store.capabilities

    async def create_table(self, table: str) -> None:
        """See `TableStore`."""
        await self._do(_about(Access.CREATE_TABLE, table), lambda _: self._store.create_table(table))

    async def delete_table(self, table: str) -> None:
        """See `TableStore`."""
        await self._do(_about(Access.DELETE_TABLE, table), lambda _: self._store.delete_table(table))

    async def list_tables(self) -> list[str]:
        """See `TableStore`."""
        return await self._do(_about(Access.LIST_TABLES, ""), lambda _: self._store.list_tables())

    async def get(self, table: str, partition_key: str, row_key: str, select: tuple[str, ...] | None = None) -> Row:
        """See `TableStore`."""
        keys = check_key("PartitionKey", partition_key), check_key("RowKey", row_key)
        allowed = _about(Access.QUERY, table, keys)
        return await self._do(allowed, lambda _: self._store.get(table, partition_key, row_key, select))

    async def query(self, table: str, query: RowQuery, limit: int = 1000, continuation: str | None = None) -> RowPage:
        """See `TableStore`."""

        def within(rights: Rights | None) -> RowQuery | None:
            if rights is None:
                return query
            authorize(rights, Access.QUERY, table, None)
            keys = range_of(rights)
            return query if keys is None else narrowed(query, keys)

        async def ask(ready: RowQuery | None) -> RowPage:
            if ready is None:
                # Nothing of it comes back; but whether the token is good, and the table there, the store says.
                await self._store.query(table, attrs.evolve(query, select=()), 1)
                return RowPage([], None)
            return await self._store.query(table, ready, limit, continuation)

        return await self._do(within, ask)

    async def write(self, table: str, operation: Operation) -> str | None:
        """See `TableStore`."""
        allowed = _about(access_of(operation.verb), table, _keys_of(operation))
        return await self._do(allowed, lambda _: self._store.write(table, operation))

    async def transact(self, table: str, operations: Sequence[Operation]) -> list[str | None]:
        """See `TableStore`. Each operation needs its own right."""

        def allowed(rights: Rights | None) -> None:
            for index, operation in enumerate(operations):
                try:
                    _about(access_of(operation.verb), table, _keys_of(operation))(rights)
                except Fault as fault:
                    raise with_index(fault, index) from None

        return await self._do(allowed, lambda _: self._store.transact(table, operations))

    async def ping(self) -> None:
        """
        Ask the store for something small that the token allows: a token for one table cannot list tables.
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
            # It has answered: the token is good, and not for reading.
            if fault.code != Code.AUTHORIZATION_PERMISSION:
                raise

    async def _do(self, check: Callable[[Rights | None], T], call: Callable[[T], Awaitable[R]]) -> R:
        """`call` what `check` lets pass, with a good token."""
        for last in (False, True):
            used = await self._tokens.current()
            try:
                rights = await self._admit(used)
            except Fault as fault:
                if last or fault.code not in _STALE or not await self._tokens.renew(used):
                    raise
                continue
            ready = check(rights)
            try:
                return await call(ready)
            except Fault as fault:
                if last or fault.code not in _STALE or not await self._tokens.renew(used):
                    raise
        raise AssertionError("the second attempt returns or raises")


def _about(access: Access, table: str, keys: tuple[str, str] | None = None) -> Callable[[Rights | None], None]:
    def check(rights: Rights | None) -> None:
        if rights is not None:
            authorize(rights, access, table, keys)

    return check


def _keys_of(operation: Operation) -> tuple[str, str]:
    row = operation.row
    return check_key("PartitionKey", row.get("PartitionKey")), check_key("RowKey", row.get("RowKey"))
