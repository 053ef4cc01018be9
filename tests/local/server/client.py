"""
A client that sends exactly what a test says, signed or not.
"""

import asyncio
import base64
import contextlib
import datetime as dt
import html
import io
import subprocess
from collections.abc import AsyncGenerator, Generator, Mapping
from email.utils import format_datetime
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import aiohttp
import attrs
import msgspec
from yarl import URL

from tableorm.protocol.shared_key import Scheme, SignedParts, authorization, decode_key
from tableorm_local.server import DEVELOPMENT_ACCOUNT, DEVELOPMENT_KEY, Server, serve

T = TypeVar("T")

NO_METADATA = "application/json;odata=nometadata"
FULL_METADATA = "application/json;odata=fullmetadata"

KEYS = [base64.b64encode(bytes([number]) * 64).decode() for number in range(3)]


@attrs.frozen
class Reply:
    """What was answered."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)

    @property
    def rows(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.json["value"]
        return rows

    @property
    def code(self) -> str:
        """The code of the error, which body and header agree on."""
        code = self.headers.get("x-ms-error-code", "")
        if self.headers["Content-Type"] == "application/xml":
            assert f"<Code>{code}</Code>" in self.body.decode()
        elif self.body:
            assert self.json["odata.error"]["code"] == code
        return code

    @property
    def message(self) -> str:
        return str(self.json["odata.error"]["message"]["value"])

    @property
    def said(self) -> str:
        """The message of the error, without the name of the request and the time, which differ each time."""
        is_xml = self.headers["Content-Type"] == "application/xml"
        text = html.unescape(self.body.decode().partition("<Message>")[2]) if is_xml else self.message
        return text.partition("\nRequestId:")[0]

    @property
    def etag(self) -> str:
        return self.headers["ETag"]


def http_date(moment: dt.datetime | None = None) -> str:
    return format_datetime(moment or dt.datetime.now(dt.UTC), usegmt=True)


@attrs.frozen
class Api:
    """Sends requests to one account of a server."""

    session: aiohttp.ClientSession
    root: str  # without the account
    account: str = DEVELOPMENT_ACCOUNT
    key: str = DEVELOPMENT_KEY
    location: str | None = None  # the first segment of the path, if that is not the account

    @property
    def port(self) -> int | None:
        return URL(self.root).port

    async def __call__(
        self,
        verb: str,
        path: str,
        body: object = None,
        /,
        *,
        query: str = "",
        scheme: Scheme | None = Scheme.SHARED_KEY,
        date: dt.datetime | None = None,
        signed_path: str | None = None,
        headers: Mapping[str, str] | None = None,
        **more: str,
    ) -> Reply:
        """
        Send a request; `path` follows the account and is sent as it is, `If_Match="*"` is a header, as are `headers`.
        """
        sent = {name.replace("_", "-"): value for name, value in {**(headers or {}), **more}.items()}
        data = body if isinstance(body, bytes) or body is None else msgspec.json.encode(body)
        if data is not None:
            sent.setdefault("Content-Type", "application/json")
        full = f"/{self.location or self.account}{path}"
        if scheme is not None:
            sent["x-ms-date"] = http_date(date)
            comp = next((part[5:] for part in query.split("&") if part.startswith("comp=")), None)
            parts = SignedParts(
                verb=verb,
                account=self.account,
                path=signed_path or full,
                date=sent["x-ms-date"],
                content_md5=sent.get("Content-MD5", ""),
                content_type=sent.get("Content-Type", ""),
                comp=comp,
            )
            sent["Authorization"] = authorization(parts, decode_key(self.key), scheme)
        url = URL(self.root + full + (f"?{query}" if query else ""), encoded=True)
        skip = {"Content-Type", "Accept", "Accept-Encoding", "User-Agent"} - sent.keys()
        stream = None if data is None else io.BytesIO(data)
        if data is not None:
            sent["Content-Length"] = str(len(data))
        async with self.session.request(verb, url, data=stream, headers=sent, skip_auto_headers=skip) as response:
            return Reply(response.status, response.headers, await response.read())


def finish(steps: Generator[None, None, T]) -> T:
    """What work in steps returns, once all of them are done."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result


class Clock:
    """A clock that goes on by so many seconds each time it is asked."""

    def __init__(self, step: float) -> None:
        self.now, self.step = 0.0, step

    def perf_counter(self) -> float:
        self.now += self.step
        return self.now

    def monotonic(self) -> float:
        return self.now


def root_of(server: Server) -> str:
    """The URL of a server, without an account."""
    return server.url.rpartition("/")[0]


@contextlib.asynccontextmanager
async def served(*tables: str, **options: Any) -> AsyncGenerator[Api]:
    """A client of a server in memory with these options and tables."""
    async with serve(None, port=0, **options) as server, aiohttp.ClientSession() as session:
        api = Api(session, root_of(server))
        for table in tables:
            assert (await api("POST", "/Tables", {"TableName": table})).status == 201
        yield api


def head(verb: str, path: str, *headers: str, kind: str = "application/json") -> bytes:
    """A signed request up to its body, as bytes."""
    date, full = http_date(), f"/{DEVELOPMENT_ACCOUNT}{path}"
    bare = full.partition("?")[0]
    parts = SignedParts(verb=verb, account=DEVELOPMENT_ACCOUNT, path=bare, date=date, content_type=kind)
    signed = authorization(parts, decode_key(DEVELOPMENT_KEY))
    lines = [f"{verb} {full} HTTP/1.1", "Host: localhost", f"x-ms-date: {date}", f"Authorization: {signed}"]
    return "\r\n".join([*lines, f"Content-Type: {kind}", *headers, "", ""]).encode()


class Wire:
    """A bare connection, which is closed at the end of the test."""

    opened: ClassVar[set["Wire"]] = set()

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.opened.add(self)

    @classmethod
    async def connect(cls, server: "Server | Api", sent: bytes = b"") -> "Wire":
        """Open a connection, and send something."""
        wire = cls(*await asyncio.open_connection("127.0.0.1", server.port))
        wire.writer.write(sent)
        return wire

    @classmethod
    async def ask(cls, server: Server, request: bytes) -> int:
        """Send a request by a connection of its own, and return the status of the answer."""
        wire = await cls.connect(server, request)
        status = await wire.status()
        await wire.close()
        return status

    async def status(self) -> int:
        """The status of the next answer, whose head is read."""
        text = await self.reader.readuntil(b"\r\n\r\n")
        return int(text.split()[1])

    async def everything(self) -> bytes:
        """All that comes until the server closes."""
        try:
            return await self.reader.read()
        except ConnectionResetError:
            return b""

    async def close(self) -> None:
        self.opened.discard(self)
        self.writer.close()
        with contextlib.suppress(ConnectionError):
            await self.writer.wait_closed()


def make_certificate(folder: Path) -> tuple[Path, Path]:
    """Make a certificate for this machine, signed with itself, and its key, in a new folder."""
    folder.mkdir()
    kind = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost"
    command = f"openssl req -x509 {kind} -addext subjectAltName=IP:127.0.0.1 -keyout key.pem -out cert.pem"
    subprocess.run(command.split(), cwd=folder, capture_output=True, check=True)
    return folder / "cert.pem", folder / "key.pem"
