"""
Signing: policies of azure-core that sign requests. With a key, requests for tables are signed by the code that our
server verifies with, and those for queues and blobs by the SDK's own; a token is sent as it is.
"""

import re
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from email.utils import formatdate
from functools import lru_cache
from types import CoroutineType
from typing import Any, Self

import aiohttp
from azure.core.credentials import AccessToken, AzureNamedKeyCredential
from azure.core.credentials_async import AsyncTokenCredential
from azure.core.exceptions import AzureError, ClientAuthenticationError
from azure.core.pipeline import PipelineRequest, PipelineResponse
from azure.core.pipeline.policies import AsyncBearerTokenCredentialPolicy, SansIOHTTPPolicy
from azure.storage.blob.aio import BlobServiceClient
from yarl import URL

from tableorm.protocol.shared_key import SignedParts, authorization, decode_key

from .faults import NoToken

# Source: Table service REST, "Authorize with Microsoft Entra ID", bearer challenge.
_TENANT = re.compile(r'\bauthorization(?:_uri)?="?https?://[^/"\s]+/([0-9a-z.-]+)', re.IGNORECASE)


@lru_cache(maxsize=1)
def _date(second: int) -> str:
    """Return the text of a time, which the requests of one second share."""
    return formatdate(second, usegmt=True)


class SharedKeyPolicy(SansIOHTTPPolicy[Any, Any]):
    """
    Dates and signs each attempt anew: a signature is valid for 15 minutes, and a retry may come later.

    Args:
        credential: Name and key of the account. After its `update()` the next request is signed with the new key.
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
        # The URL that is sent: aiohttp sends what yarl makes of a URL.
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
    Signs requests for queues and blobs, with the SDK's policy, after all others that may change a request.

    In the SDK's own pipeline that policy comes before our retries and the user's policies, and keeps its first key.

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
    Sends a token of the account's tenant, which need not be the credential's own. The service names it when it refuses
    the first request, which is sent again with a token of that tenant. The policies of the SDK do the same.

    Args:
        credential: Supplies the tokens.
        scope: The scope of the tokens.
    """

    def __init__(self, credential: AsyncTokenCredential, scope: str) -> None:
        super().__init__(credential, scope)
        self._scope = scope

    async def on_challenge(self, request: PipelineRequest[Any], response: PipelineResponse[Any, Any]) -> bool:
        """Get the token that a refusal asks for. Return whether there is one to send."""
        if await super().on_challenge(request, response):
            return True
        found = _TENANT.search(response.http_response.headers.get("WWW-Authenticate") or "")
        if found is None:
            return False
        await self.authorize_request(request, self._scope, tenant_id=found.group(1))
        return True


class _UsersCredential:
    """A token credential that a client of the SDK may close: nothing happens, since it is the user's."""

    async def close(self) -> None:
        """Do nothing."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object, **named: object) -> None:
        pass


class TokenSource(_UsersCredential):
    """
    A token credential whose failures differ from the service's: the answer of an issuer of tokens is not an answer of
    the tables, and without a token nothing was sent.

    Args:
        credential: The user's credential, which the user closes.
    """

    get_token: "Callable[..., CoroutineType[Any, Any, AccessToken]]"

    def __init__(self, credential: AsyncTokenCredential) -> None:
        self._credential = credential

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._credential, name)  # azure-core asks whether there is also `get_token_info`

        async def ask(*scopes: str, **options: Any) -> Any:
            with _mark_credential_errors():
                return await found(*scopes, **options)

        return ask


class SignedBelow(_UsersCredential):
    """
    Stands for a token credential in a client of the SDK, which needs one, where `TokenPolicy` signs after the client's
    own policy. That policy asks for tokens for whatever resource a server names: it gets none.
    """

    async def get_token(self, *scopes: str, **options: Any) -> AccessToken:
        """Return what is never sent."""
        del scopes, options
        return AccessToken("", _NEVER)


_NEVER = 1 << 40  # seconds since 1970


@contextmanager
def _mark_credential_errors() -> Generator[None]:
    try:
        yield
    except ClientAuthenticationError as error:
        raise ClientAuthenticationError(f"the credential got no token: {error.message}") from error
    except (AzureError, aiohttp.ClientError, OSError) as error:
        raise NoToken(f"the credential got no token: {str(error) or type(error).__name__}") from error
