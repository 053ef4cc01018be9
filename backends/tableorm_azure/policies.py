"""
Policies: the steps that a request passes on its way, in their order, and the one that signs it.
"""

from collections.abc import Sequence
from copy import copy
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from azure.core.credentials import AzureNamedKeyCredential, AzureSasCredential
from azure.core.pipeline import PipelineRequest, PipelineResponse
from azure.core.pipeline.policies import (
    AsyncHTTPPolicy,
    AzureSasCredentialPolicy,
    CustomHookPolicy,
    DistributedTracingPolicy,
    HttpLoggingPolicy,
    NetworkTraceLoggingPolicy,
    ProxyPolicy,
)

from tableorm.protocol.redaction import without_secrets
from tableorm.stores import Traffic

from .options import Credential, Options, Policy
from .retries import RepeatPolicy
from .signing import SharedKeyPolicy, StorageKeyPolicy, TokenPolicy

_STORAGE_SCOPE = "https://storage.azure.com/.default"
_COSMOS_SCOPE = "https://cosmos.azure.com/.default"


def make_policies(
    url: str,
    signing: Policy | None,
    options: Options,
    traffic: Traffic,
    answered: set[str],
    *,
    within_sdk: bool = False,
) -> list[Policy]:
    """
    Make the policies that a request passes, in order. The user's policies and hooks see it before it is signed.

    Args:
        url: The endpoint, for the environment's proxies.
        signing: The policy that signs it, after all others that may change it; None if the SDK has signed it.
        options: All other settings.
        traffic: Counts the attempts.
        answered: The hosts, with ports, that have answered; all policies of a backend share it.
        within_sdk: Whether requests come through a client of the SDK, which gives them ids, logs and traces them.
    """
    proxies = _find_proxies(url, options)
    chain: list[Policy] = [
        *_share(options.per_call_policies),
        *([ProxyPolicy(proxies)] if proxies else []),
        RepeatPolicy(traffic, options.retry, urlsplit(url).netloc, answered),
        *_share(options.per_retry_policies),
    ]
    # Each policy takes some microseconds of a request: those that have nothing to do are left out.
    hooks = {"raw_request_hook": options.raw_request_hook, "raw_response_hook": options.raw_response_hook}
    if any(hooks.values()):
        chain.append(CustomHookPolicy[Any, Any](**hooks))
    if signing is not None:
        chain.append(signing)
    if options.logging_enable:
        chain.append(_TraceLoggingPolicy(logging_enable=True))
    return chain if within_sdk else [*chain, DistributedTracingPolicy[Any, Any](), HttpLoggingPolicy()]


def make_signing_policy(
    credential: Credential, url: str, options: Options, *, tables: bool, cosmos: bool
) -> Policy | None:
    """
    Make the policy that signs requests; None if a client of the SDK for queues or blobs adds a SAS.

    Its own policies would get a token for whatever resource a server names that refuses the first one.

    Args:
        credential: The user's credential.
        url: The endpoint.
        options: `audience` is the audience of tokens.
        tables: Whether the requests are for tables.
        cosmos: Whether the tables are in Cosmos DB, and that audience is of them alone.

    Raises:
        ValueError: A token would be sent without encryption.
    """
    if isinstance(credential, AzureNamedKeyCredential):
        return SharedKeyPolicy(credential) if tables else StorageKeyPolicy(credential, url)
    if isinstance(credential, AzureSasCredential):
        return AzureSasCredentialPolicy[Any, Any](credential) if tables else None
    if urlsplit(url).scheme != "https":
        raise ValueError(f"a token is sent over HTTPS only, and {url!r} is not; give key= or sas= there")
    audience = options.audience if tables or not cosmos else None
    scope = audience or (_COSMOS_SCOPE if tables and cosmos else _STORAGE_SCOPE)
    scope = scope if scope.endswith("/.default") else f"{scope.rstrip('/')}/.default"
    return TokenPolicy(credential, scope)


def _find_proxies(url: str, options: Options) -> dict[str, str]:
    """Return the proxies of a host: those that were given, else the environment's, looked up once."""
    if options.proxies is not None:
        return dict(options.proxies)
    parts = urlsplit(url)
    found = getproxies().get(parts.scheme)
    return {parts.scheme: found} if found and not proxy_bypass(parts.netloc) else {}


class _SharedPolicy(AsyncHTTPPolicy[Any, Any]):
    """
    A user's policy, shared by several pipelines. It knows one next policy only, which azure-core sets when it makes a
    pipeline. Here that is a `_NextPolicy`, which each request carries the real next policy for.
    """

    def __init__(self, policy: AsyncHTTPPolicy[Any, Any]) -> None:
        self._policy, self._key = policy, f"tableorm_next_{id(policy)}"
        policy.next = _NextPolicy(self._key)

    async def send(self, request: PipelineRequest[Any]) -> PipelineResponse[Any, Any]:
        request.context[self._key] = self.next
        return await self._policy.send(request)


class _NextPolicy(AsyncHTTPPolicy[Any, Any]):
    """Sends a request to the next policy of the pipeline that it passes, which the request carries under a key."""

    def __init__(self, key: str) -> None:
        self._key = key

    async def send(self, request: PipelineRequest[Any]) -> PipelineResponse[Any, Any]:
        following: AsyncHTTPPolicy[Any, Any] = request.context[self._key]
        return await following.send(request)


def _share(given: Sequence[Policy]) -> list[Policy]:
    return [_SharedPolicy(policy) if isinstance(policy, AsyncHTTPPolicy) else policy for policy in given]


class _TraceLoggingPolicy(NetworkTraceLoggingPolicy):
    """azure-core's log of whole requests and answers, without signatures."""

    def on_request(self, request: PipelineRequest[Any]) -> None:
        shown = copy(request.http_request)
        shown.url = without_secrets(shown.url)
        shown.headers = {n: "REDACTED" if n.lower() == "authorization" else v for n, v in shown.headers.items()}
        super().on_request(PipelineRequest(shown, request.context))
