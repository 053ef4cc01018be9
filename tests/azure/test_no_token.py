"""
A token credential that fails: what the issuer of tokens says is told from what the service says.
"""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import pytest
from azure.core.credentials import AccessToken
from azure.core.exceptions import ClientAuthenticationError, HttpResponseError, ServiceRequestError

from tableorm.protocol.codes import Code
from tableorm.stores import Operation, RetryPolicy, Verb
from tableorm.testing.contract.base import refusal, row
from tableorm_azure import AzureBackend
from tests.azure.stub import Token, secure_stub


def _queues(backend: AzureBackend) -> Any:
    return backend.queues


def _blobs(backend: AzureBackend) -> Any:
    return backend.blobs


# Reads and writes, by our own requests and through each client of the SDK.
CALLS: dict[str, Callable[[AzureBackend], Awaitable[object]]] = {
    "get": lambda backend: backend.tables.get("Table1", "p", "r"),
    "write": lambda backend: backend.tables.write("Table1", Operation(Verb.INSERT, row())),
    "tables": lambda backend: backend.tables.list_tables(),
    "create": lambda backend: backend.tables.create_table("Table1"),
    "length": lambda backend: _queues(backend).length("queue1"),
    "put": lambda backend: _queues(backend).put("queue1", b"x"),
    "info": lambda backend: _blobs(backend).info("box", "name"),
    "upload": lambda backend: _blobs(backend).put("box", "name", b"x"),
}


class Failing(Token):
    """A credential that gets no token: what azure-identity raises, with the answer of the issuer."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error

    async def get_token(self, *scopes: str, **_: Any) -> AccessToken:
        self.scopes += scopes
        raise self.error


class Refusal:
    """An answer of the issuer, as an error holds it."""

    def __init__(self, status: int) -> None:
        self.status_code, self.reason, self.headers = status, "X", dict[str, str]()
        self.content_type, self.content = "application/json", b'{"error": "invalid_client"}'

    def text(self) -> str:
        return self.content.decode()


NO_TOKENS: dict[str, tuple[Exception, Code]] = {
    "refused": (
        ClientAuthenticationError("invalid_client", response=cast("Any", Refusal(400))),
        Code.AUTHENTICATION_FAILED,
    ),
    "unavailable": (ClientAuthenticationError("no managed identity"), Code.AUTHENTICATION_FAILED),
    "broken": (HttpResponseError("gateway", response=cast("Any", Refusal(503))), Code.NO_ANSWER),
    "cut": (ServiceRequestError("Server disconnected"), Code.NO_ANSWER),
    "reset": (ConnectionResetError(), Code.NO_ANSWER),
}


@pytest.mark.one_of(4)
@pytest.mark.parametrize(("error", "code"), NO_TOKENS.values(), ids=NO_TOKENS)
@pytest.mark.parametrize("name", list(CALLS))
async def test_a_credential_that_gets_no_token(certificate: Path, name: str, error: Exception, code: Code) -> None:
    """What the issuer of tokens answers is not taken for the service's, and no write is in doubt: none was sent."""
    async with secure_stub(certificate) as stub:
        options = {
            "credential": Failing(error),
            "queues": stub.url,
            "blobs": stub.url,
            "retry": RetryPolicy(base=0.0),
        }
        async with AzureBackend.from_url(stub.url, timeout=10.0, options=options) as backend:
            fault = await refusal(CALLS[name](backend))

    assert (fault.code, fault.doubt) == (code, False)
    assert "the credential got no token" in fault.message
    assert stub.requests == []
