"""
A server gets no secret for elsewhere: it cannot send a client to another address, and no error of a client shows the
token that it was opened with.
"""

import json
import traceback
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from tableorm import TableOrmError
from tests.azure.stub import KEY, Answer, Stub
from tests.security.test_client_parsed import CALLS
from tests.security.world import Thing, client_of, client_of_bytes

ACCOUNT_SAS = "sv=2022-11-02&ss=bqt&srt=sco&sp=rwdlacup&se=2099-01-01T00%3A00%3A00Z&sig=ABC%3D"


@pytest.mark.parametrize("credential", [{"key": KEY}, {"sas": ACCOUNT_SAS}], ids=["key", "token"])
@pytest.mark.parametrize("status", [302, 307])
@pytest.mark.parametrize("what", CALLS)
async def test_no_request_follows_a_redirection(what: str, status: int, credential: dict[str, Any]) -> None:
    """Lists that a server answers with another address are errors, and nothing is sent to that address."""
    async with Stub() as other:
        other.handler = lambda _: Answer(404)
        answer = Answer(status, {"Location": f"{other.url}/Secrets()?comp=acl"})
        async with client_of(answer, **{"key": None, **credential}) as (db, _):
            with pytest.raises(TableOrmError, match="another address"):
                await CALLS[what](db)
    assert other.requests == []


SECRET = "SECRETSIGNATURE"
SAS = f"sv=2019-02-02&tn=Tab&se=2099-01-01T00%3A00%3A00Z&sp=raud&spk=a&epk=a&sig={SECRET}%2BABC%3D"


def _refusal(head: bytes) -> bytes:
    code = json.dumps({"odata.error": {"code": "AuthenticationFailed", "message": {"value": head.decode()}}}).encode()
    return b"HTTP/1.1 403 No\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(code), code)


ANSWERS: dict[str, Callable[[bytes], bytes]] = {
    "a status that is none": lambda _head: b"HTTP/1.1 abc\r\n\r\n",
    "a header that is none": lambda _head: b"HTTP/1.1 200 OK\r\nBad Header\r\n\r\n",
    "a chunk that is none": lambda _head: b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n",
    "a refusal that quotes the request": _refusal,
    "a code that quotes the URL": lambda head: (
        b"HTTP/1.1 403 No\r\nContent-Length: 0\r\nx-ms-error-code: " + head.split(b" ")[1] + b"\r\n\r\n"
    ),
}


@pytest.mark.parametrize("name", ANSWERS)
@pytest.mark.parametrize("verb", ["get", "insert"])
async def test_no_error_shows_the_token(name: str, verb: str) -> None:
    """An answer that is not HTTP, or that quotes the request, does not put the signature into an error."""

    async def answer(head: bytes) -> AsyncIterator[bytes]:
        yield ANSWERS[name](head)

    async with client_of_bytes(answer, sas=SAS) as db:
        with pytest.raises(TableOrmError) as caught:
            await (db.get(Thing, p="a", r="b") if verb == "get" else db.insert(Thing(p="a", r="b")))
    assert SECRET not in "".join(traceback.format_exception(caught.value))
