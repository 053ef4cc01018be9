"""
A Table service that does nothing but answer, in a process of its own: whatever is asked, the same bytes come back.

Run by `benchmarks.azure`, which measures what a client computes: `python -m benchmarks.azure_stub` prints its port.
"""

import asyncio
import re

import msgspec

from benchmarks.model import flight

_ETAG = "W/\"datetime'2024-02-29T12%3A34%3A56.7891234Z'\""
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


def wire_row(number: int) -> dict[str, object]:
    """A flight as the service sends it."""
    entity = flight("JFK", number)
    row = entity.__schema__.encode(entity.__dict__, *entity.__schema__.make_keys(entity.__dict__))[0]
    return {"odata.etag": _ETAG, **row, "Timestamp": "2024-02-29T12:34:56.7891234Z"}


def answer(status: str, body: bytes, content: str = "application/json;odata=minimalmetadata", *more: str) -> bytes:
    """A whole HTTP response."""
    lines = [f"HTTP/1.1 {status}", f"ETag: {_ETAG}", "x-ms-request-id: 0", "x-ms-version: 2019-02-02", *more]
    if body:
        lines.append(f"Content-Type: {content}")
    return ("\r\n".join([*lines, f"Content-Length: {len(body)}"]) + "\r\n\r\n").encode() + body


PAGE = answer("200 OK", msgspec.json.encode({"odata.metadata": "x", "value": [wire_row(n) for n in range(1000)]}))
ROW = answer("200 OK", msgspec.json.encode({"odata.metadata": "x", **wire_row(7)}))
CREATED = answer("201 Created", msgspec.json.encode({"odata.metadata": "x", **wire_row(7)}))
NO_CONTENT = answer("204 No Content", b"", "", "Preference-Applied: return-no-content")
PART = (
    "--changesetresponse_1\r\nContent-Type: application/http\r\nContent-Transfer-Encoding: binary\r\n\r\n"
    "HTTP/1.1 204 No Content\r\nX-Content-Type-Options: nosniff\r\nCache-Control: no-cache\r\n"
    f"DataServiceVersion: 1.0;\r\nETag: {_ETAG}\r\n\r\n\r\n"
)
BATCH = answer(
    "202 Accepted",
    (
        "--batchresponse_1\r\nContent-Type: multipart/mixed; boundary=changesetresponse_1\r\n\r\n"
        + PART * 100
        + "--changesetresponse_1--\r\n--batchresponse_1--\r\n"
    ).encode(),
    "multipart/mixed; boundary=batchresponse_1",
)


def respond(head: bytes) -> bytes:
    """What a request gets, by its first line and headers."""
    line = head[: head.index(b"\r\n")]
    if line.startswith(b"GET"):
        return PAGE if b"()" in line else ROW
    if b"batch" in line:
        return BATCH
    return NO_CONTENT if b"return-no-content" in head else CREATED


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer the requests of one connection."""
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            found = _LENGTH.search(head)
            if found is not None:
                await reader.readexactly(int(found.group(1)))
            writer.write(respond(head))
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


async def main() -> None:
    server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=2**20)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
