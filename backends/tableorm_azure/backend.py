"""
The backend of `https:` URLs and connection strings: opens an account's tables, queues and blobs for the mapper.
"""

from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, ClassVar, Self
from urllib.parse import parse_qs

import attrs
from azure.core.credentials import AzureNamedKeyCredential, AzureSasCredential
from azure.core.credentials_async import AsyncTokenCredential
from azure.core.pipeline.transport import AsyncHttpTransport
from azure.data.tables.aio import TableServiceClient
from azure.storage.blob.aio import BlobServiceClient
from azure.storage.queue.aio import QueueServiceClient

from tableorm.errors import ModelError, NotSupported
from tableorm.protocol.codes import Code, Fault
from tableorm.protocol.rights import Rights
from tableorm.protocol.shared_key import decode_key
from tableorm.stores import (
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
from .endpoints import EMULATOR_ACCOUNT, EMULATOR_KEY, Account, handles, parse
from .options import Credential, Options, Policy, user_agent
from .pipeline import InFlight, Pipeline, PipelineTransport, make_transport
from .policies import make_policies, make_signing_policy
from .queues import AzureQueues
from .signing import SignedBelow, TokenPolicy, TokenSource
from .tables import AzureTables

# Azurite closes a connection that was idle for 5 seconds; a write must not meet that.
_EMULATOR_KEEPALIVE_SECONDS = 4.0
# The time that a request needs after its time-out, to give up and release its connection.
_GIVE_UP_SECONDS = 1.0
_FIELDS = {field.name for field in attrs.fields(Options)}


class AzureBackend:
    """
    Azure Storage tables, queues and blobs, or the tables of Cosmos DB, over one pool of connections.

    Made by `connect`; by hand it is `async with AzureBackend(account, credential) as backend: backend.tables`.

    Args:
        account: The account's endpoints.
        credential: The credential that opens it.
        options: All other settings.
        tokens: Supplies the shared access signature, if a function does.
        others: The credentials that open "queue" or "blob", if they differ.
    """

    joint: ClassVar[bool] = True
    known_options: ClassVar[frozenset[str]] = frozenset({"credential", "key", "sas"} | _FIELDS)

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
        self.url = self.place = account.table or account.queue or account.blob or ""
        self.traffic = Traffic()
        self._in_flight = InFlight()
        self._answered: set[str] = set()
        if not isinstance(credential, AzureNamedKeyCredential | AzureSasCredential):
            credential = TokenSource(credential)
        self._credential = credential
        self._others = dict(others or {})
        self._tokens = tokens
        self._tables: TableStore | None = None
        self.access = AzureAccess(None, credential, account)
        self.queues: QueueStore | None = None
        self.blobs: BlobStore | None = None
        self._open = AsyncExitStack()

    @classmethod
    def handles(cls, url: str) -> bool:
        """Return whether `url` is `https://...`, `http://...` or a connection string."""
        return handles(url)

    @classmethod
    def from_url(cls, url: str, *, timeout: float, options: dict[str, Any]) -> Self:
        """
        Make a backend, which is not open yet.

        Args:
            url: The tables' endpoint, with a SAS as its query if that is the credential; or a connection string.
            timeout: Seconds that a request may take in all, its repetitions included.
            options: One of `key` (an account key), `sas` (a token, or an async function that supplies one) and
                `credential` (one of azure-core: a token credential such as `DefaultAzureCredential`,
                `AzureNamedKeyCredential`, `AzureSasCredential`), unless `url` says it; `queues` and `blobs`, endpoints
                or connection strings, opened by their own credential or by the same; and the fields of `Options`.

        Raises:
            TypeError: There are other options, or more than one credential, or an option is of another type.
            ValueError: An option is too small.
            ModelError: The URL is not an endpoint, or there is no credential.
        """
        given = dict(options)
        queues, blobs = given.pop("queues", None), given.pop("blobs", None)
        key, sas, credential = given.pop("key", None), given.pop("sas", None), given.pop("credential", None)
        tokens = None if sas is None else Tokens(sas)
        renewable = tokens is not None and tokens.renewable
        unknown = sorted(given.keys() - _FIELDS)
        if unknown:
            known = ", ".join(sorted({"blobs", "queues"} | cls.known_options))
            retry = "retry=RetryPolicy(...) says how requests are repeated; " * unknown[0].startswith("retry_")
            raise TypeError(
                f"connect() got an unknown option {unknown[0]!r} for an Azure URL; {retry}known are {known}"
            )
        try:
            # A backend of queues or blobs alone is opened by their URL.
            account = parse(url, None if url in (queues, blobs) else "table")
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
                    others[service] = _choose_credential(other, None, None, None)
                elif renewable:
                    raise NotSupported(
                        f"connect(): a function that supplies tokens opens tables only; give {service}s= with a SAS of "
                        "its own, or one token for all"
                    )
        except ValueError as error:
            raise ModelError(f"connect(): {error}") from None
        if emulated:
            given.setdefault("keepalive", _EMULATOR_KEEPALIVE_SECONDS)
        opened = _choose_credential(
            account, key, sas if isinstance(sas, str) else _PENDING if sas else None, credential
        )
        return cls(
            account, opened, Options(timeout=timeout, **given), tokens=tokens if renewable else None, others=others
        )

    @classmethod
    def find_credential(cls, url: str) -> AsyncTokenCredential | None:
        """
        Return `DefaultAzureCredential` for a URL of Azure that has no credential, and None for every other.

        Its tokens are good for all that the user may do in Azure, so that no other host gets one.
        """
        try:
            account = parse(url, None)
        except ValueError:
            return None
        if account.key is not None or account.sas is not None or not account.in_azure:
            return None
        from azure.identity.aio import DefaultAzureCredential  # noqa: PLC0415 - takes a while, and few need it

        return DefaultAzureCredential()

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

    async def open(self) -> None:
        """
        Make the pool of connections. Nothing is sent.

        Raises:
            NotSupported: The credential does not fit the endpoint: a token is not sent over http.
        """
        account = self.account
        capabilities = Capabilities(retries=True, faithful=not account.emulated)
        self._in_flight = InFlight()
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
                    self.queues = AzureQueues(await opened.enter_async_context(service), capabilities)
                if account.blob is not None:
                    blobs = BlobServiceClient(
                        account.blob,
                        max_single_put_size=MAX_SINGLE_PUT_BYTES,
                        max_block_size=BLOCK_BYTES,
                        max_single_get_size=BLOCK_BYTES,
                        max_chunk_get_size=BLOCK_BYTES,
                        **self._storage_options(transport, "blob", account.blob),
                    )
                    self.blobs = AzureBlobs(await opened.enter_async_context(blobs), capabilities)
            except ValueError as error:
                raise _refused(error) from error
            self._open = opened.pop_all()

    @asynccontextmanager
    async def _open_tables(self, transport: AsyncHttpTransport[Any, Any], url: str) -> AsyncGenerator[TableStore]:
        account, options = self.account, self.options
        signing = make_signing_policy(self._credential, url, options, tables=True, cosmos=account.cosmos)
        # This client makes, deletes and lists tables. It needs a credential and signs; our policy signs again.
        service = TableServiceClient(
            url,
            credential=SignedBelow() if isinstance(signing, TokenPolicy) else self._credential,
            api_version=options.api_version,
            **self._sdk_options(transport, url, signing),
        )
        capabilities = Capabilities(ordered=not account.cosmos, retries=True, faithful=not account.emulated)
        async with service:
            self.access = AzureAccess(service, self._credential, account)
            tables = AzureTables(
                url,
                self._pipeline(transport, url, signing),
                service,
                capabilities,
                cosmos=account.cosmos,
                emulated=account.emulated,
            )
            yield tables if not isinstance(self._credential, AzureSasCredential) else self._guard(tables)

    def _guard(self, tables: AzureTables) -> GuardedStore:
        """Return tables that refuse what the token does not allow, before anything is sent."""
        credential = self._credential
        assert isinstance(credential, AzureSasCredential)
        known: tuple[str, Rights | None] = "", None

        async def admit(token: str) -> Rights | None:
            nonlocal known
            if known[0] != token:
                if not _is_token(token):
                    raise Fault(
                        Code.AUTHENTICATION_FAILED, "What sas= supplied has no parameter 'sig': it is no token."
                    )
                known = token, rights_of(token)
            if credential.signature.lstrip("?") != token:
                credential.update(token)
            return known[1]

        return GuardedStore(tables, self._tokens or _CredentialTokens(credential), admit)

    def _storage_options(self, transport: AsyncHttpTransport[Any, Any], service: str, url: str) -> dict[str, Any]:
        """Return the options of the SDK's clients of queues and blobs. With a key or a token our policy signs."""
        options, credential = self.options, self._others.get(service, self._credential)
        signing = make_signing_policy(credential, url, options, tables=False, cosmos=self.account.cosmos)
        found = self._sdk_options(transport, url, signing)
        found["credential"] = SignedBelow() if isinstance(signing, TokenPolicy) else credential
        if options.storage_api_version is not None:
            found["api_version"] = options.storage_api_version
        return found

    def _sdk_options(self, transport: AsyncHttpTransport[Any, Any], url: str, signing: Policy | None) -> dict[str, Any]:
        """Return the options that every client of the SDK gets, so that its requests pass our pipeline."""
        return {
            "transport": PipelineTransport(self._pipeline(transport, url, signing, within_sdk=True)),
            "retry_total": 0,  # our pipeline repeats requests
            "user_agent": user_agent(self.options),
        }

    def _pipeline(
        self, transport: AsyncHttpTransport[Any, Any], url: str, signing: Policy | None, *, within_sdk: bool = False
    ) -> Pipeline:
        chain = make_policies(url, signing, self.options, self.traffic, self._answered, within_sdk=within_sdk)
        return Pipeline(transport, chain, self.options, self._in_flight)

    async def close(self) -> None:
        """Wait for the requests that are under way, and close the connections. Idempotent."""
        self._tables = self.queues = self.blobs = None
        self.access = AzureAccess(None, self._credential, self.account)
        try:
            await self._in_flight.wait_until_none(self.options.timeout + _GIVE_UP_SECONDS)
        finally:
            await self._open.aclose()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()


class _CredentialTokens(Tokens):
    """The token of a credential, which the user may replace: `credential.update(token)`."""

    def __init__(self, credential: AzureSasCredential) -> None:
        self._credential = credential

    async def current(self) -> str:
        """Return the token to use now."""
        return self._credential.signature.lstrip("?")

    async def renew(self, used: str) -> bool:
        """Return whether the token was replaced meanwhile."""
        return await self.current() != used


def _refused(error: ValueError) -> NotSupported:
    """Return the error of arguments that the SDK refuses: on one line, and with the names that they have here."""
    text, _, versions = str(error).partition("Please select from:")
    if versions:
        given = "api_version= is for tables, storage_api_version= for queues and blobs"
        text = f"{text.strip()} {given}; the SDK knows {', '.join(versions.split())}"
    return NotSupported(f"connect(): {text}")


# Stands for a token until the first request asks for one.
_PENDING = "sig=pending"


def _is_token(text: str) -> bool:
    """Return whether a text has a signature. Otherwise one that is spelled otherwise would be logged as a name."""
    return "sig" in parse_qs(text, keep_blank_values=True)


def _choose_credential(account: Account, key: str | None, sas: str | None, credential: Credential | None) -> Credential:
    """Return the one credential among those given and the URL's."""
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
        token = sas.strip().lstrip("?")
        if not _is_token(token):
            raise ModelError("connect(): the SAS has no parameter 'sig', its signature; give the token as it was made")
        return AzureSasCredential(token)
    key = key or account.key
    if key is None and account.emulated and account.on_this_machine:
        key = EMULATOR_KEY
    if key is None:
        where = f"the account {account.name!r}" if account.name else "the URL, which names no account"
        remedy = "give key=, sas= or credential=, for example credential=DefaultAzureCredential() of azure-identity"
        if not account.name and account.on_this_machine:
            remedy = f"an emulator's URL ends with its account, /{EMULATOR_ACCOUNT}; for any other, {remedy}"
        published = "; its published key is taken only where every host is this machine" if account.emulated else ""
        raise ModelError(f"connect(): there is no credential for {where}; {remedy}{published}")
    if not account.name:
        raise ModelError(
            "connect(): the URL does not tell the name of the account, which a key needs; end it with /ACCOUNT, or "
            "give credential=AzureNamedKeyCredential(name, key) of azure.core.credentials"
        )
    try:
        decode_key(key)
    except ValueError as error:
        raise NotSupported(f"connect(): {error}") from None
    return AzureNamedKeyCredential(account.name, key)
