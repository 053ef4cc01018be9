"""
What opens an account, as policies of azure-core: a key, which signs tables by the code that a server verifies with, and
queues and blobs by the SDK's own; and a token.
"""

import re
import time
from collections.abc import Generator
from contextlib import contextmanager
from email.utils import formatdate
from functools import lru_cache
from types import TracebackType
from typing import Any, Self

import aiohttp
from azure.core.credentials import AccessToken, AccessTokenInfo, AzureNamedKeyCredential
from azure.core.credentials_async import AsyncTokenCredential
from azure.core.exceptions import AzureError, ClientAuthenticationError
from azure.core.pipeline import PipelineRequest, PipelineResponse
from azure.core.pipeline.policies import AsyncBearerTokenCredentialPolicy, SansIOHTTPPolicy
from azure.storage.blob.aio import BlobServiceClient
from yarl import URL

from tableorm.protocol.shared_key import SignedParts, authorization, decode_key

from .faults import NoToken

__all__ = ["SharedKeyPolicy", "StorageKeyPolicy", "TokenPolicy", "TokenSource"]

# Source: Table service REST, "Authorize with Microsoft Entra ID", bearer challenge.
_TENANT = re.compile(r'\bauthorization(?:_uri)?="?https?://[^/"\s]+/([0-9a-z.-]+)', re.IGNORECASE)


@lru_cache(maxsize=1)
def _date(second: int) -> str:
    """The text of a time; requests of one second share it."""
    return formatdate(second, usegmt=True)


class SharedKeyPolicy(SansIOHTTPPolicy[Any, Any]):
    """
    Dates and signs each attempt anew: a signature is good for 15 minutes, and a retry may come later.

    Args:
        credential: Name and key of the account; `update()` of it changes what the next request is signed with.
    """

    def __init__(self, credential: AzureNamedKeyCredential) -> None:
        self._credential = credential
        self._text, self._key = "", b""

    def on_request(self, request: PipelineRequest[Any]) -> None:
        """Set `x-ms-date` and `Authorization`."""
        http = request.http_request
        account, text = self._credential.named_key
        if text != self._text:
            self._text, self._key = text, decode_key(text)
        headers = http.headers
        date = headers["x-ms-date"] = _date(int(time.time()))
        if "Date" in headers:  # the SDK's clients set both, and there are servers that prefer this one
            headers["Date"] = date
        # As it will be on the wire: aiohttp sends what yarl makes of a URL.
        url = URL(http.url)
        parts = SignedParts(
            verb=http.method,
            account=account,
            path=url.raw_path,
            date=date,
            content_md5=headers.get("Content-MD5", ""),
            content_type=headers.get("Content-Type", ""),
            comp=url.query.get("comp") if "comp=" in http.url else None,
        )
        headers["Authorization"] = authorization(parts, self._key)


class StorageKeyPolicy(SansIOHTTPPolicy[Any, Any]):
    """
    The same for queues and blobs, which sign more: the SDK's policy, after all that may change a request.

    In the SDK's own pipeline that stands before our retries and the user's policies, and keeps its first key.

    Args:
        credential: Name and key of the account.
        url: An endpoint of the account.
    """

    def __init__(self, credential: AzureNamedKeyCredential, url: str) -> None:
        self._credential = credential
        # A client that sends nothing: its `credential` is the policy that signs with a key.
        self._signer: Any = BlobServiceClient(url, credential).credential

    def on_request(self, request: PipelineRequest[Any]) -> None:
        """Set `x-ms-date` and `Authorization`."""
        self._signer.account_name, self._signer.account_key = self._credential.named_key
        request.http_request.headers["x-ms-date"] = _date(int(time.time()))
        self._signer.on_request(request)


class TokenPolicy(AsyncBearerTokenCredentialPolicy[Any, Any]):
    """
    A token of the account's tenant, which need not be the credential's own: the service names it in refusing the first
    request, which is sent again with a token of that. So do the policies of the SDK.

    Args:
        credential: Where tokens come from.
        scope: What they are for.
    """

    def __init__(self, credential: AsyncTokenCredential, scope: str) -> None:
        super().__init__(credential, scope)
        self._scope = scope

    async def on_challenge(self, request: PipelineRequest[Any], response: PipelineResponse[Any, Any]) -> bool:
        """Get the token that a refusal asks for; whether there is one to send."""
        if await super().on_challenge(request, response):
            return True
        found = _TENANT.search(response.http_response.headers.get("WWW-Authenticate") or "")
        if found is None:
            return False
        await self.authorize_request(request, self._scope, tenant_id=found.group(1))
        return True


class TokenSource:
    """
    A token credential that tells its own failures from the service's: what an issuer of tokens answers is no answer of
    the tables, and without a token nothing was sent.

    Args:
        credential: As the user gave it, who closes it.
    """

    def __init__(self, credential: AsyncTokenCredential) -> None:
        self._credential: Any = credential
        if hasattr(credential, "get_token_info"):  # azure-core asks whether there is one
            self.get_token_info = self._get_token_info

    async def get_token(self, *scopes: str, **options: Any) -> AccessToken:
        """As the credential."""
        with _told_apart():
            token: AccessToken = await self._credential.get_token(*scopes, **options)
            return token

    async def _get_token_info(self, *scopes: str, **options: Any) -> AccessTokenInfo:
        with _told_apart():
            token: AccessTokenInfo = await self._credential.get_token_info(*scopes, **options)
            return token

    async def close(self) -> None:
        """Nothing: it is the user's."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc_value: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        pass


@contextmanager
def _told_apart() -> Generator[None]:
    try:
        yield
    except ClientAuthenticationError as error:
        raise ClientAuthenticationError(f"the credential got no token: {error.message}") from error
    except (AzureError, aiohttp.ClientError, OSError) as error:
        raise NoToken(f"the credential got no token: {str(error) or type(error).__name__}") from error
