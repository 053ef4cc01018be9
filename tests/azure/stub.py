"""
A server on a loopback port that answers requests as it was told, and remembers them.

It stands for what no emulator does: throttling, gateways, odd errors.
"""

import asyncio
import json
import ssl
from base64 import b64encode
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Self

import attrs
from azure.core.credentials import AccessToken
from azure.core.pipeline.transport import AioHttpTransport

from tableorm.stores import RetryPolicy, Row
from tableorm_azure import AzureBackend

KEY = b64encode(b"k" * 64).decode()
ETAG = "W/\"datetime'2024-02-29T12%3A34%3A56.7891234Z'\""


@attrs.frozen
class Request:
    """What arrived: the target as it was sent, header names in lower case."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes


@attrs.frozen
class Answer:
    """
    What to answer.

    Args:
        status: Of the answer; 0 to close the connection without one.
        headers: Besides the length.
        body: Its body.
        before: Waited for first.
        missing: Bytes of the body that are promised and never sent.
    """

    status: int = 200
    headers: dict[str, str] = attrs.field(factory=dict[str, str])
    body: bytes = b""
    before: Callable[[], Awaitable[object]] | None = None
    missing: int = 0


def row_answer(**properties: Any) -> Answer:
    """A row, as a point read gets it."""
    row = {"odata.etag": ETAG, "PartitionKey": "p", "RowKey": "r", "Timestamp": "2024-02-29T12:34:56.7891234Z"}
    return Answer(200, {"Content-Type": "application/json"}, json.dumps({**row, **properties}).encode())


def page_answer(*rows: Row, **headers: str) -> Answer:
    """A page of rows, or of tables."""
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    return Answer(200, {"Content-Type": "application/json", **given}, json.dumps({"value": rows}).encode())


def error_answer(status: int, code: str, text: str = "No.", **headers: str) -> Answer:
    """An error as the Table service words it."""
    message = {"lang": "en-US", "value": f"{text}\nRequestId:0\nTime:2024-02-29T12:34:56.7891234Z"}
    body = json.dumps({"odata.error": {"code": code, "message": message}}).encode()
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    return Answer(status, {"Content-Type": "application/json", "x-ms-error-code": code, **given}, body)


NO_CONTENT = Answer(204, {"ETag": ETAG})


class Stub:
    """
    The server. `answers` are given in order, the last one for ever; or `handler` makes one for each request.

    Args:
        tls: To serve https.
        port: Where to listen; 0 for any free port.
        transport: What a client needs to trust it.
    """

    def __init__(self, tls: ssl.SSLContext | None = None, port: int = 0, transport: Any = None) -> None:
        self.transport = transport
        self._tls, self._port = tls, port
        self.requests: list[Request] = []
        self.answers: list[Answer] = [row_answer()]
        self.handler: Callable[[Request], Answer] | None = None
        self.connections = 0
        self._writers: set[asyncio.StreamWriter] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port, limit=2**20, ssl=self._tls)
        return self

    async def __aexit__(self, *error: object) -> None:
        self._server.close()
        for writer in list(self._writers):
            writer.close()
        await self._server.wait_closed()

    @property
    def port(self) -> int:
        """Where it listens."""
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    @property
    def url(self) -> str:
        """The endpoint of an account on it, in path style."""
        return f"http{'s' if self._tls else ''}://127.0.0.1:{self.port}/stub"

    def backend(self, *, timeout: float = 30.0, **options: Any) -> AzureBackend:
        """The Azure backend of that account with its queues and blobs, which waits little between attempts."""
        given = {"key": KEY, "queues": self.url, "blobs": self.url, "retry": RetryPolicy(base=0.0), **options}
        if self.transport is not None:
            given["transport"] = self.transport
        return AzureBackend.from_url(self.url, timeout=timeout, options=given)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.add(writer)
        try:
            while await self._answer(reader, writer):
                pass
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        method, target, _ = lines[0].split(" ")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:] if line)}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        request = Request(method, target, headers, body)
        self.requests.append(request)
        if self.handler is not None:
            answer = self.handler(request)
        else:
            answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if answer.before is not None:
            await answer.before()
        if answer.status == 0:
            return False
        head = "".join(f"{name}: {value}\r\n" for name, value in answer.headers.items())
        length = len(answer.body) + answer.missing
        writer.write(f"HTTP/1.1 {answer.status} X\r\n{head}Content-Length: {length}\r\n\r\n".encode())
        if method != "HEAD":
            writer.write(answer.body)
        await writer.drain()
        return True


def secure_stub(certificate: Path) -> Stub:
    """A stub that is served over https, with a transport that trusts its certificate."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate)
    return Stub(tls, transport=AioHttpTransport(connection_verify=str(certificate), use_env_settings=False))


def batch_answer(*parts: Answer) -> Answer:
    """The answer to a transaction with these parts."""
    text = b"--batchresponse_1\r\nContent-Type: multipart/mixed; boundary=changesetresponse_1\r\n\r\n"
    for part in parts:
        head = "".join(f"{name}: {value}\r\n" for name, value in part.headers.items())
        text += b"--changesetresponse_1\r\nContent-Type: application/http\r\nContent-Transfer-Encoding: binary\r\n\r\n"
        text += f"HTTP/1.1 {part.status} X\r\n{head}\r\n".encode() + part.body + b"\r\n"
    text += b"--changesetresponse_1--\r\n--batchresponse_1--\r\n"
    return Answer(202, {"Content-Type": "multipart/mixed; boundary=batchresponse_1"}, text)


class Token:
    """A token credential as azure-identity's are."""

    def __init__(self) -> None:
        self.scopes: list[str] = []
        self.tenants: list[str | None] = []

    async def get_token(self, *scopes: str, **options: Any) -> AccessToken:
        self.scopes += scopes
        self.tenants.append(options.get("tenant_id"))
        return AccessToken("secret-token", 4_000_000_000)

    async def close(self) -> None:
        pass

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        pass
