"""
Policies: the steps that a request passes on its way, in their order, and the one that signs it.
"""

import re
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

from tableorm.stores import Traffic

from .options import Credential, Options, Policy
from .retries import RetryPolicy
from .signing import SharedKeyPolicy, StorageKeyPolicy, TokenPolicy

__all__ = ["authentication", "policies", "storage_authentication"]

_STORAGE_SCOPE = "https://storage.azure.com/.default"
_COSMOS_SCOPE = "https://cosmos.azure.com/.default"

_SIGNATURE = re.compile(r"([?&]sig=)[^&]*", re.IGNORECASE)


def policies(
    url: str, signing: Policy | None, options: Options, traffic: Traffic, *, within_sdk: bool = False
) -> list[Policy]:
    """
    What a request passes, in order; whatever it is for, the user's policies and hooks see it before it is signed.

    Args:
        url: The endpoint, for the environment's proxies.
        signing: What signs it, last of all that may change it; None if nothing is left to do.
        options: Everything else.
        traffic: Where to count.
        within_sdk: Whether it comes through a client of the SDK, which gives it an id, notes it and traces it.
    """
    way: list[Policy] = [
        *_shared(options.per_call_policies),
        *_proxy(url, options),
        RetryPolicy(traffic, options),
        *_shared(options.per_retry_policies),
    ]
    # Each policy costs a request some microseconds: those that have nothing to do are left out.
    hooks = {"raw_request_hook": options.raw_request_hook, "raw_response_hook": options.raw_response_hook}
    if any(hooks.values()):
        way.append(CustomHookPolicy[Any, Any](**hooks))
    if signing is not None:
        way.append(signing)
    if options.logging_enable:
        way.append(_TraceLoggingPolicy(logging_enable=True))
    return way if within_sdk else [*way, DistributedTracingPolicy[Any, Any](), HttpLoggingPolicy()]


def authentication(credential: Credential, url: str, options: Options, *, cosmos: bool = False) -> Policy:
    """
    What opens the tables of an account, as a policy.

    Args:
        credential: As the user gave it.
        url: The endpoint.
        options: `audience` is what a token is for.
        cosmos: Whether it is Cosmos DB's.

    Raises:
        ValueError: A token would be sent in the clear.
    """
    if isinstance(credential, AzureNamedKeyCredential):
        return SharedKeyPolicy(credential)
    if isinstance(credential, AzureSasCredential):
        return AzureSasCredentialPolicy[Any, Any](credential)
    if urlsplit(url).scheme != "https":
        raise ValueError(f"a token is sent over HTTPS only, and {url!r} is not; give key= or sas= there")
    scope = options.audience or (_COSMOS_SCOPE if cosmos else _STORAGE_SCOPE)
    scope = scope if scope.endswith("/.default") else f"{scope.rstrip('/')}/.default"
    return TokenPolicy(credential, scope)


def storage_authentication(credential: Credential, url: str) -> Policy | None:
    """Likewise of queues and blobs, whose clients add a SAS or a token themselves; None for these."""
    return StorageKeyPolicy(credential, url) if isinstance(credential, AzureNamedKeyCredential) else None


def _proxy(url: str, options: Options) -> list[Policy]:
    proxies = _proxies_for(url, options)
    return [ProxyPolicy(proxies)] if proxies else []


def _proxies_for(url: str, options: Options) -> dict[str, str]:
    """The proxies of a host: those that were given, else the environment's, looked up once."""
    if options.proxies is not None:
        return dict(options.proxies)
    parts = urlsplit(url)
    found = getproxies().get(parts.scheme)
    return {parts.scheme: found} if found and not proxy_bypass(parts.netloc) else {}


class _Shared(AsyncHTTPPolicy[Any, Any]):
    """
    A user's policy in one of several pipelines. It knows one next policy only, which azure-core sets when it makes a
    pipeline; here that is a signpost, and each request carries where it points.
    """

    def __init__(self, policy: AsyncHTTPPolicy[Any, Any]) -> None:
        self._policy = policy
        policy.next = _Signpost(policy)

    async def send(self, request: PipelineRequest[Any]) -> PipelineResponse[Any, Any]:
        request.context[_Signpost.name_of(self._policy)] = self.next
        return await self._policy.send(request)


class _Signpost(AsyncHTTPPolicy[Any, Any]):
    """What comes next in the pipeline of a request."""

    def __init__(self, policy: AsyncHTTPPolicy[Any, Any]) -> None:
        self._name = self.name_of(policy)

    @staticmethod
    def name_of(policy: AsyncHTTPPolicy[Any, Any]) -> str:
        """Under what a request carries it."""
        return f"tableorm_next_{id(policy)}"

    async def send(self, request: PipelineRequest[Any]) -> PipelineResponse[Any, Any]:
        following: AsyncHTTPPolicy[Any, Any] = request.context[self._name]
        return await following.send(request)


def _shared(given: Sequence[Policy]) -> list[Policy]:
    return [_Shared(policy) if isinstance(policy, AsyncHTTPPolicy) else policy for policy in given]


class _TraceLoggingPolicy(NetworkTraceLoggingPolicy):
    """azure-core's log of whole requests and answers, of which the signature is blotted out."""

    def on_request(self, request: PipelineRequest[Any]) -> None:
        shown = copy(request.http_request)
        shown.url = _SIGNATURE.sub(r"\1REDACTED", shown.url)
        shown.headers = {n: "REDACTED" if n.lower() == "authorization" else v for n, v in shown.headers.items()}
        super().on_request(PipelineRequest(shown, request.context))
