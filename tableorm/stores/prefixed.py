"""
A prefix before the names of tables, queues and containers: several environments, or tests, in one account.

`connect(url, prefix="t1")` wraps the backend in a `PrefixedBackend`. Whatever is above it knows only the names without
the prefix; the backend gets those with it.
"""

import re
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, cast

from msgspec import structs

from ..protocol.codes import Code, Fault
from ..protocol.limits import check_container_name, check_queue_name, check_table_name
from .backend import Backend
from .blobs import BlobStore
from .guarded import AccessControl, Policies, Signer
from .layers import LISTS_OF_PLACES, LayerBeside, StoreLayer, StoreRequest
from .queues import QueueStore
from .tables import TableStore

_MAX_NAME = 63
# Any name has at least three characters.
_PREFIX = re.compile(r"[A-Za-z][A-Za-z0-9]{0,59}", re.ASCII)


class PrefixedBackend:
    """
    A backend in which every name begins with a prefix, which its users neither give nor see.

    Args:
        backend: The backend itself. All members that are not here, such as `traffic`, are its own.
        prefix: Up to 60 letters and digits, of which the first is a letter. Names of queues and containers begin with
            its lower-case form.

    Raises:
        ValueError: No name can begin with `prefix`.
    """

    def __init__(self, backend: Backend, prefix: str) -> None:
        if not (isinstance(cast("object", prefix), str) and _PREFIX.fullmatch(prefix)):
            raise ValueError("give 1 to 60 letters and digits, of which the first is a letter")
        self._backend, self.prefix = backend, prefix

    @property
    def tables(self) -> TableStore:
        """The tables, by their names without the prefix."""
        return _PrefixedTables(self._backend.tables, self.prefix)

    @property
    def queues(self) -> QueueStore | None:
        """The queues, by their names without the prefix."""
        store = self._backend.queues
        names = _PrefixedNames("queue", self.prefix.lower(), check_queue_name)
        return None if store is None else cast(QueueStore, _PrefixedStore(store, names))

    @property
    def blobs(self) -> BlobStore | None:
        """The blobs in containers, by the names of these without the prefix."""
        store = self._backend.blobs
        names = _PrefixedNames("container", self.prefix.lower(), check_container_name)
        return None if store is None else cast(BlobStore, _PrefixedStore(store, names))

    @property
    def access(self) -> AccessControl:
        """Gives others access, by names without the prefix. Raises AttributeError if the backend does not."""
        return _PrefixedAccess(cast(Any, self._backend).access, self.prefix)

    async def open(self) -> None:
        """Open the backend."""
        await self._backend.open()

    async def close(self) -> None:
        """Close the backend."""
        await self._backend.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)


class _PrefixedNames:
    """
    Makes names with the prefix.

    Args:
        kind: What has these names.
        prefix: The prefix.
        check: Refuses a name that the service would refuse.
    """

    def __init__(self, kind: str, prefix: str, check: Callable[[str], None]) -> None:
        self._kind, self.prefix, self._check = kind, prefix, check

    def add(self, name: str) -> str:
        """
        Return a name with the prefix.

        Raises:
            Fault: The service would refuse it; the message says the name that was given.
        """
        self._check(name)
        length = len(self.prefix) + len(name)
        if length > _MAX_NAME:
            raise Fault(
                Code.KEY_OUT_OF_RANGE,
                f"The name {name!r} has {length} characters together with the prefix {self.prefix!r}; {_MAX_NAME} are "
                f"allowed for a {self._kind}. Shorten one of them.",
            )
        return self.prefix + name

    def strip(self, names: Sequence[str]) -> list[str]:
        """Return those names that begin with the prefix, in whatever letter case, without it."""
        found: list[str] = []
        for name in names:
            if name[: len(self.prefix)].lower() == self.prefix.lower():
                with suppress(Fault):  # no name remains: that one begins with a longer prefix
                    self._check(name[len(self.prefix) :])
                    found.append(name[len(self.prefix) :])
        return found


class _PrefixedTables(StoreLayer):
    """
    Tables with a prefix.
    """

    def __init__(self, store: TableStore, prefix: str) -> None:
        super().__init__(store)
        self._names = _PrefixedNames("table", prefix, check_table_name)

    async def send(self, request: StoreRequest) -> Any:
        """See `StoreLayer`."""
        if request.method == "list_tables":
            return self._names.strip(await self.below.list_tables())
        return await structs.replace(request, table=self._names.add(request.table)).sent_to(self.below)


class _PrefixedAccess:
    """
    An `AccessControl` whose tables have a prefix.
    """

    def __init__(self, access: AccessControl, prefix: str) -> None:
        self._access, self._names = access, _PrefixedNames("table", prefix, check_table_name)

    async def signer(self) -> Signer:
        """See `AccessControl`."""
        return await self._access.signer()

    async def policies(self, table: str) -> Policies:
        """See `AccessControl`."""
        return await self._access.policies(self._names.add(table))

    async def change_policies(self, table: str, change: Callable[[Policies], Policies]) -> None:
        """See `AccessControl`."""
        await self._access.change_policies(self._names.add(table), change)


class _PrefixedStore(LayerBeside):
    """
    A `QueueStore` or a `BlobStore` whose queues or containers have a prefix.
    """

    def __init__(self, store: Any, names: _PrefixedNames) -> None:
        super().__init__(store)
        self._names = names

    async def send(self, method: str, given: tuple[Any, ...], call: Callable[..., Awaitable[Any]]) -> Any:
        """See `LayerBeside`."""
        if method in LISTS_OF_PLACES:
            return self._names.strip(await call(self._names.prefix + "".join(given)))
        return await call(*map(self._names.add, given[:1]), *given[1:])
