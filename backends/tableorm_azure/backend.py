"""
The backend of `https:` URLs and connection strings: opens an account's tables, queues and blobs for the mapper.
"""

from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, ClassVar, Self, cast

import attrs
from azure.core.credentials import AzureNamedKeyCredential, AzureSasCredential
from azure.core.pipeline.transport import AsyncHttpTransport
from azure.data.tables.aio import TableServiceClient
from azure.storage.blob.aio import BlobServiceClient
from azure.storage.queue.aio import QueueServiceClient

from tableorm.errors import NotSupported
from tableorm.protocol.rights import Rights
from tableorm.protocol.shared_key import decode_key
from tableorm.stores import (
    AccessControl,
    BlobStore,
    Capabilities,
    GuardedStore,
    QueueStore,
    TableStore,
    Tokens,
    Traffic,
    rights_of,
)

from .access import AzureAccess
from .blobs import BLOCK_BYTES, MAX_SINGLE_PUT_BYTES, AzureBlobs
from .endpoints import Account, handles, parse
from .options import Credential, Options, Policy, user_agent
from .pipeline import Flights, Pipeline, ThroughPipeline, make_transport
from .policies import authentication, policies, storage_authentication
from .queues import AzureQueues
from .signing import TokenSource
from .tables import AzureTables, TableService

__all__ = ["AzureBackend"]

# Azurite closes a connection that was idle for 5 seconds; a write must not meet that.
_EMULATOR_KEEPALIVE_SECONDS = 4.0
# Besides the time-out of a request: to give up, and let go of its connection.
_LANDING_SECONDS = 1.0
_FIELDS = {field.name for field in attrs.fields(Options)}


class AzureBackend:
    """
    Azure Storage tables, queues and blobs, or the tables of Cosmos DB, over one pool of connections.

    Made by `connect`; by hand it is `async with AzureBackend(account, credential) as backend: backend.tables`.

    Args:
        account: Where it is.
        credential: What opens it.
        options: Everything else.
        tokens: Where the shared access signature is from, if a function supplies it.
        others: What opens "queue" or "blob", if not the same.
    """

    joint: ClassVar[bool] = True

    def __init__(
        self,
        account: Account,
        credential: Credential,
        options: Options | None = None,
        *,
        tokens: Tokens | None = None,
        others: Mapping[str, Credential] | None = None,
    ) -> None:
        self.account, self.options = account, options or Options()
        self.traffic = Traffic()
        self._flights = Flights()
        if not isinstance(credential, AzureNamedKeyCredential | AzureSasCredential):
            credential = TokenSource(credential)
        self._credential = credential
        self._others = dict(others or {})
        self._tokens = tokens
        self._tables: TableStore | None = None
        self._access = AzureAccess(None, credential, account)
        self._queues: AzureQueues | None = None
        self._blobs: AzureBlobs | None = None
        self._open = AsyncExitStack()

    @classmethod
    def handles(cls, url: str) -> bool:
        """Whether `url` is `https://...`, `http://...` or a connection string."""
        return handles(url)

    @classmethod
    def from_url(cls, url: str, *, timeout: float, options: dict[str, Any]) -> Self:
        """
        A backend that is not open yet.

        Args:
            url: The tables' endpoint, with a SAS as its query if that is the credential; or a connection string.
            timeout: Seconds that a request may take in all, its repetitions included.
            options: One of `key` (an account key), `sas` (a token, or an async function that supplies one) and
                `credential` (one of azure-core: a token credential such as `DefaultAzureCredential`,
                `AzureNamedKeyCredential`, `AzureSasCredential`), unless `url` says it; `queues` and `blobs`, endpoints
                or connection strings, opened by what they say of access, else by the same; and the fields of `Options`.

        Raises:
            TypeError: There are other options, or more than one credential, or an option is of another type.
            ValueError: An option is too small.
            NotSupported: The URL is no endpoint, or nothing opens it.
        """
        given = dict(options)
        queues, blobs = given.pop("queues", None), given.pop("blobs", None)
        key, sas, credential = given.pop("key", None), given.pop("sas", None), given.pop("credential", None)
        tokens = None if sas is None else Tokens(sas)
        renewable = tokens is not None and tokens.renewable
        unknown = sorted(given.keys() - _FIELDS)
        if unknown:
            known = ", ".join(sorted({"blobs", "credential", "key", "queues", "sas"} | _FIELDS))
            raise TypeError(f"connect() got an unknown option {unknown[0]!r} for an Azure URL; known are {known}")
        try:
            account = parse(url)
            if renewable:
                account = attrs.evolve(account, queue=None, blob=None)
            emulated, others = account.emulated, dict[str, Credential]()
            for service, place in (("queue", queues), ("blob", blobs)):
                if place is None:
                    continue
                other = parse(place, service)
                account = attrs.evolve(account, **{service: getattr(other, service)})
                emulated = emulated or other.emulated
                if other.key is not None or other.sas is not None:
                    others[service] = _credential(other, None, None, None)
                elif renewable:
                    raise NotSupported(
                        f"connect(): a function that supplies tokens opens tables only; give {service}s= with a SAS of "
                        "its own, or one token for all"
                    )
        except ValueError as error:
            raise NotSupported(f"connect(): {error}") from None
        if emulated:
            given.setdefault("keepalive", _EMULATOR_KEEPALIVE_SECONDS)
        opened = _credential(account, key, sas if isinstance(sas, str) else _PENDING if sas else None, credential)
        return cls(account, opened, Options(timeout=timeout, **given), tokens=tokens, others=others)

    @property
    def tables(self) -> TableStore:
        """
        The tables.

        Raises:
            NotSupported: The backend is not open, or the account has only queues or blobs.
        """
        if self._tables is None:
            raise NotSupported("the backend is not open, or has no tables; open it, and give the URL of the tables")
        return self._tables

    @property
    def access(self) -> AccessControl:
        """What gives others access to the tables."""
        return self._access

    @property
    def queues(self) -> QueueStore | None:
        """The queues, None if there are none."""
        return self._queues

    @property
    def blobs(self) -> BlobStore | None:
        """The blobs, None if there are none."""
        return self._blobs

    async def open(self) -> None:
        """
        Make the pool of connections; nothing is sent.

        Raises:
            NotSupported: The credential does not fit the endpoint: a token over http.
        """
        account = self.account
        capabilities = Capabilities(retries=True, faithful=not account.emulated)
        self._flights = Flights()
        async with AsyncExitStack() as opened:
            transport = make_transport(self.options)
            await opened.enter_async_context(transport)
            try:
                if account.table is not None:
                    self._tables = await opened.enter_async_context(self._open_tables(transport, account.table))
                if account.queue is not None:
                    service = QueueServiceClient(
                        account.queue, **self._storage_options(transport, "queue", account.queue)
                    )
                    self._queues = AzureQueues(await opened.enter_async_context(service), capabilities)
                if account.blob is not None:
                    blobs = BlobServiceClient(
                        account.blob,
                        max_single_put_size=MAX_SINGLE_PUT_BYTES,
                        max_block_size=BLOCK_BYTES,
                        max_single_get_size=BLOCK_BYTES,
                        max_chunk_get_size=BLOCK_BYTES,
                        **self._storage_options(transport, "blob", account.blob),
                    )
                    self._blobs = AzureBlobs(await opened.enter_async_context(blobs), capabilities)
            except ValueError as error:
                raise NotSupported(f"connect(): {error}") from error
            self._open = opened.pop_all()

    @asynccontextmanager
    async def _open_tables(self, transport: AsyncHttpTransport[Any, Any], url: str) -> AsyncGenerator[TableStore]:
        account, options = self.account, self.options
        signing = authentication(self._credential, url, options, cosmos=account.cosmos)
        pipeline = Pipeline(transport, policies(url, signing, options, self.traffic), options, self._flights)
        # For the tables themselves. It wants a credential, and signs; what goes out is signed again, by ours.
        service = TableServiceClient(
            url,
            credential=self._credential,
            audience=_bare(options.audience),
            api_version=options.api_version,
            **self._sdk_options(transport, url, signing),
        )
        capabilities = Capabilities(ordered=not account.cosmos, retries=True, faithful=not account.emulated)
        async with service:
            self._access = AzureAccess(service, self._credential, account)
            tables = AzureTables(
                url,
                pipeline,
                cast("TableService", service),
                capabilities,
                cosmos=account.cosmos,
                emulated=account.emulated,
            )
            yield tables if not isinstance(self._credential, AzureSasCredential) else self._guarded(tables)

    def _guarded(self, tables: AzureTables) -> GuardedStore:
        """The tables behind the token: what it does not allow is refused before it is sent."""
        credential = self._credential
        assert isinstance(credential, AzureSasCredential)
        known: tuple[str, Rights | None] = "", None

        async def admit(token: str) -> Rights | None:
            nonlocal known
            if known[0] != token:
                known = token, rights_of(token)
            if credential.signature.lstrip("?") != token:
                credential.update(token)
            return known[1]

        renewable = self._tokens is not None and self._tokens.renewable
        return GuardedStore(tables, self._tokens if self._tokens and renewable else _Signature(credential), admit)

    def _storage_options(self, transport: AsyncHttpTransport[Any, Any], service: str, url: str) -> dict[str, Any]:
        """What the clients of queues and blobs take. They sign, too; a key's signature is made again, by ours."""
        options, credential = self.options, self._others.get(service, self._credential)
        found = self._sdk_options(transport, url, storage_authentication(credential, url))
        found["credential"] = credential
        if options.storage_api_version is not None:
            found["api_version"] = options.storage_api_version
        if options.audience is not None and not self.account.cosmos:
            found["audience"] = _bare(options.audience)
        return found

    def _sdk_options(self, transport: AsyncHttpTransport[Any, Any], url: str, signing: Policy | None) -> dict[str, Any]:
        """What every client of the SDK takes, so that its requests go the way of all."""
        options = self.options
        way = policies(url, signing, options, self.traffic, within_sdk=True)
        pipeline = Pipeline(transport, way, options, self._flights)
        return {
            "transport": ThroughPipeline(pipeline),
            "retry_total": 0,  # our pipeline repeats
            "user_agent": user_agent(options),
        }

    async def close(self) -> None:
        """Wait for the requests that are under way, and close the connections. Idempotent."""
        self._tables = self._queues = self._blobs = None
        self._access = AzureAccess(None, self._credential, self.account)
        try:
            await self._flights.landed(self.options.timeout + _LANDING_SECONDS)
        finally:
            await self._open.aclose()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()


def _bare(audience: str | None) -> str | None:
    """An audience as clients of the SDK take it, which make a scope of it."""
    return None if audience is None else audience.removesuffix("/.default")


class _Signature:
    """The token of a credential, which whoever gave it may change: `credential.update(token)`."""

    def __init__(self, credential: AzureSasCredential) -> None:
        self._credential = credential

    async def current(self) -> str:
        """The token to use now."""
        return self._credential.signature.lstrip("?")

    async def renew(self, used: str) -> bool:
        """Whether it was changed meanwhile."""
        return await self.current() != used


# In place of a token, until the first request asks for one.
_PENDING = "sig=pending"


def _credential(account: Account, key: str | None, sas: str | None, credential: Credential | None) -> Credential:
    """The one credential among what was given and what the URL says."""
    given = [name for name, value in (("key", key), ("sas", sas), ("credential", credential)) if value is not None]
    if account.key is not None:
        given.append("the connection string's AccountKey")
    elif account.sas is not None:
        given.append("the URL's SAS")
    if len(given) > 1:
        raise TypeError(f"connect() got {' and '.join(given)}; give one of them")
    if credential is not None:
        return credential
    sas = sas or (account.sas if key is None else None)
    if sas is not None:
        return AzureSasCredential(sas.strip().lstrip("?"))
    key = key or account.key
    if key is None:
        raise NotSupported(
            f"connect(): nothing opens the account {account.name!r}; give key=, sas= or credential=, for example "
            "credential=DefaultAzureCredential() of azure-identity"
        )
    if not account.name:
        raise NotSupported(
            "connect(): the host does not tell the name of the account, which a key needs; give "
            "credential=AzureNamedKeyCredential(name, key) of azure.core.credentials"
        )
    try:
        decode_key(key)
    except ValueError as error:
        raise NotSupported(f"connect(): {error}") from None
    return AzureNamedKeyCredential(account.name, key)
