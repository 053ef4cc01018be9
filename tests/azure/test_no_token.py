"""
A token credential that fails: what the issuer of tokens says is told from what the service says.
"""

from pathlib import Path
from typing import Any, cast

import pytest
from azure.core.credentials import AccessToken
from azure.core.exceptions import ClientAuthenticationError, HttpResponseError, ServiceRequestError

from tableorm.protocol.codes import Code
from tableorm.testing.contract.base import refusal
from tests.azure.stub import Token, secure_stub
from tests.azure.test_between import CALLS, Call
from tests.azure.test_pipeline import BESIDE


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
@pytest.mark.parametrize(
    "call", [*CALLS.values(), *BESIDE.values()], ids=[*CALLS, *(f"write {name}" for name in BESIDE)]
)
async def test_a_credential_that_gets_no_token(certificate: Path, call: Call, error: Exception, code: Code) -> None:
    """What the issuer of tokens answers is not taken for the service's, and no write is in doubt: none was sent."""
    async with secure_stub(certificate) as stub, stub.backend(key=None, credential=Failing(error)) as backend:
        fault = await refusal(call(backend))

    assert (fault.code, fault.doubt) == (code, False)
    assert "the credential got no token" in fault.message
    assert stub.requests == []
