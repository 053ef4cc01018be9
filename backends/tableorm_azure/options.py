"""
The options of `connect` for Azure: what an account's requests and connections are made with.
"""

from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from typing import Any

import attrs
from attrs.validators import ge, gt, instance_of
from azure.core.credentials import AzureNamedKeyCredential, AzureSasCredential
from azure.core.credentials_async import AsyncTokenCredential
from azure.core.pipeline.policies import AsyncHTTPPolicy, SansIOHTTPPolicy, UserAgentPolicy
from azure.core.pipeline.transport import AsyncHttpTransport

from tableorm.stores import RetryPolicy

Credential = AsyncTokenCredential | AzureNamedKeyCredential | AzureSasCredential
"""What opens an account, in the types of azure-core."""

Policy = AsyncHTTPPolicy[Any, Any] | SansIOHTTPPolicy[Any, Any]
"""A step that a request passes, in the types of azure-core."""

# What azure-data-tables 12.7 sends. Source: "Versioning for the Azure Storage services".
API_VERSION = "2019-02-02"

_OURS = f"tableorm/{version('tableorm')}"


@attrs.frozen(kw_only=True)
class Options:
    """
    The options of `connect` for an Azure URL, besides its credentials; see `AzureBackend.from_url`.
    """

    timeout: float = attrs.field(default=30.0, validator=[instance_of(float | int), gt(0)])
    api_version: str = attrs.field(default=API_VERSION, validator=instance_of(str))
    storage_api_version: str | None = None
    audience: str | None = None
    connections: int = attrs.field(default=100, validator=[instance_of(int), ge(1)])
    keepalive: float = attrs.field(default=15.0, validator=[instance_of(float | int), gt(0)])
    proxies: Mapping[str, str] | None = None
    retry: RetryPolicy = attrs.field(factory=RetryPolicy, validator=instance_of(RetryPolicy))
    transport: AsyncHttpTransport[Any, Any] | None = None
    per_call_policies: Sequence[Policy] = ()
    per_retry_policies: Sequence[Policy] = ()
    raw_request_hook: Callable[[Any], Any] | None = None
    raw_response_hook: Callable[[Any], Any] | None = None
    logging_enable: bool = False
    user_agent: str | None = None


def user_agent(options: Options) -> str:
    """Return the User-Agent: the user's name, ours, azure-core's, and what the environment adds."""
    name = f"{options.user_agent} {_OURS}" if options.user_agent else _OURS
    return UserAgentPolicy(user_agent=name).user_agent
