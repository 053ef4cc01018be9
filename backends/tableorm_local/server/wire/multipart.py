"""
Multipart: the requests in the body of a transaction, and the answers in the body of its own.

A delimiter is a line of its own. JSON escapes line ends, so that no value can be taken for one.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from http import HTTPStatus
from uuid import uuid4

import attrs

from tableorm.protocol.codes import Code, Fault

from .calls import Answer

__all__ = ["Part", "PartHeaders", "Parts", "read", "write"]

# Of a part: far more than clients send.
_MAX_HEADERS = 64
_MAX_HEAD_BYTES = 64 * 1024
# One more than a transaction may have operations tells as much as all of them.
MAX_PARTS = 101


class PartHeaders(Mapping[str, str]):
    """Headers by name in any letter case; of several with one name the last."""

    def __init__(self, headers: Sequence[tuple[str, str]]) -> None:
        self.all = tuple(headers)
        self._values = {name.lower(): value for name, value in headers}

    def __getitem__(self, name: str) -> str:
        return self._values[name.lower()]

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name.lower() in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


@attrs.frozen
class Part:
    """
    A request in a transaction.

    Args:
        verb: As in its request line.
        url: Likewise: absolute, or a path.
        headers: Its own.
        body: What follows them, up to the delimiter.
        content_id: What the client calls it; None if it does not.
    """

    verb: str
    url: str
    headers: PartHeaders
    body: bytes
    content_id: str | None


@attrs.frozen
class Parts:
    """
    What is in the body of a transaction: the requests of its change set, or a single query by itself.
    """

    parts: Sequence[Part]
    is_query: bool


def _malformed(why: str) -> Fault:
    return Fault(Code.INVALID_INPUT, f"One of the request inputs is not valid: the transaction {why}.")


def read(content_type: str, body: bytes) -> Parts:
    """
    Read the body of a transaction.

    Raises:
        Fault: MediaTypeNotSupported; InvalidInput if it is malformed, or has several change sets.
    """
    outer = _boundary(content_type)
    if outer is None:
        raise Fault(
            Code.MEDIA_TYPE_NOT_SUPPORTED,
            f"None of the provided media types are supported: {content_type[:80]!r}; send multipart/mixed; boundary=",
        )
    parts = _split(body, outer, 2)
    if not parts:
        return Parts([], is_query=False)
    if len(parts) > 1:
        raise _malformed("has more than one change set, or a change set and queries")
    headers, content = _headers(parts[0])
    kind = headers.get("Content-Type", "")
    inner = _boundary(kind)
    if inner is not None:
        # A change set of nothing has a part of nothing.
        inside = [part for part in _split(content, inner, MAX_PARTS) if part.strip()]
        return Parts([_request(part) for part in inside], is_query=False)
    if _is_http(kind):
        return Parts([_parse_request(content, headers)], is_query=True)
    raise _malformed(f"has a part of type {kind[:80]!r}")


_BOUNDARY = re.compile(
    r"""multipart/mixed\s*;(?:[^;"]*;)*?\s*boundary=(?:"([^"\r\n]{1,200})"|([^\s;"]{1,200}))\s*(?:;.*)?""",
    re.IGNORECASE,
)


def _boundary(content_type: str) -> bytes | None:
    found = _BOUNDARY.fullmatch(content_type.strip()) if len(content_type) <= 1000 else None
    if found is None:
        return None
    try:
        return (found.group(1) or found.group(2)).encode("ascii")
    except UnicodeEncodeError:
        return None


def _is_http(content_type: str) -> bool:
    return content_type.partition(";")[0].strip().lower() == "application/http"


def _split(body: bytes, boundary: bytes, most: int) -> list[bytes]:
    """What is between the delimiter lines; no more than `most` parts."""
    mark = b"--" + boundary
    parts = list[bytes]()
    start: int | None = None
    at = 0
    while True:
        found = body.find(mark, at)
        if found < 0:
            raise _malformed(f"ends without its last delimiter line {mark[:80].decode()!r}--")
        at = found + len(mark)
        # First of all: looking for the end of a line that has it many times would take the square of its length.
        if found and body[found - 1 : found] != b"\n":
            continue
        line_end = body.find(b"\n", found)
        rest = body[at : len(body) if line_end < 0 else line_end].strip()
        if rest not in (b"", b"--"):
            continue  # a longer delimiter
        if start is not None:
            end = found - 2 if body[found - 2 : found] == b"\r\n" else found - 1
            parts.append(body[start : max(start, end)])
        if rest == b"--" or len(parts) >= most:
            return parts
        if line_end < 0:
            raise _malformed("ends within a part")
        start = at = line_end + 1


_BLANK = re.compile(rb"\r?\n[ \t]*\r?\n|\A\r?\n")


def _headers(part: bytes) -> tuple[PartHeaders, bytes]:
    """The lines up to the first that is blank, and what follows."""
    found = _BLANK.search(part, 0, _MAX_HEAD_BYTES)
    if found is None and len(part) > _MAX_HEAD_BYTES:
        raise _malformed(f"has a part with headers of more than {_MAX_HEAD_BYTES} bytes")
    head, rest = (part, b"") if found is None else (part[: found.start()], part[found.end() :])
    headers: list[tuple[str, str]] = []
    for line in head.splitlines():
        name, colon, value = line.partition(b":")
        if not colon or not name.strip():
            if line.strip():
                raise _malformed(f"has a line that is no header: {line[:40]!r}")
            continue
        try:
            headers.append((name.decode("ascii").strip(), value.decode("utf-8").strip()))
        except UnicodeDecodeError:
            raise _malformed(f"has a header that is not UTF-8: {line[:40]!r}") from None
    if len(headers) > _MAX_HEADERS:
        raise _malformed(f"has a part with {len(headers)} headers, {_MAX_HEADERS} are allowed")
    return PartHeaders(headers), rest


def _request(part: bytes) -> Part:
    headers, content = _headers(part)
    if not _is_http(headers.get("Content-Type", "")):
        raise _malformed(f"has a part that is no application/http, but {headers.get('Content-Type', '')[:80]!r}")
    return _parse_request(content, headers)


_CONTENT_ID = re.compile(r"[!-~]{0,100}")
_REQUEST_LINE = re.compile(rb"([A-Z]{1,20}) (\S+) HTTP/1\.[01][ \t]*")


def _parse_request(content: bytes, outer: PartHeaders) -> Part:
    content = content.lstrip(b"\r\n")
    line, _, rest = content.partition(b"\n")
    found = _REQUEST_LINE.fullmatch(line.rstrip(b"\r"))
    if found is None or len(line) > _MAX_HEAD_BYTES:
        raise _malformed(f"has a part without a request line: {line[:80]!r}")
    try:
        url = found.group(2).decode("utf-8")
    except UnicodeDecodeError:
        raise _malformed("has a URL that is not UTF-8") from None
    headers, body = _headers(rest)
    content_id = outer.get("Content-ID", headers.get("Content-ID"))
    if content_id is not None and not _CONTENT_ID.fullmatch(content_id):
        raise _malformed(f"has the Content-ID {content_id[:40]!r}, which is not up to 100 visible characters")
    return Part(found.group(1).decode("ascii"), url, headers, body, content_id)


def write(answers: Sequence[Answer], content_ids: Sequence[str | None], *, is_query: bool) -> tuple[bytes, str]:
    """
    The body with these answers, and its content type.

    Args:
        answers: In order.
        content_ids: What each request called itself.
        is_query: Whether it answers a query by itself, not a change set.
    """
    outer, inner = f"batchresponse_{uuid4()}", f"changesetresponse_{uuid4()}"
    lines = [f"--{outer}"]
    mark = outer
    if not is_query:
        lines += [f"Content-Type: multipart/mixed; boundary={inner}", ""]
        mark = inner
    parts = [] if is_query else [f"--{inner}"]
    written = list[bytes]()
    for number, (answer, content_id) in enumerate(zip(answers, content_ids, strict=True)):
        if number:
            written.append(f"--{mark}\r\n".encode())
        written.append(_answer(answer, content_id))
    head = "\r\n".join(lines + (parts if answers else [])) + "\r\n"
    tail = f"--{outer}--\r\n" if is_query else f"--{inner}--\r\n--{outer}--\r\n"
    return b"".join([head.encode(), *written, tail.encode()]), f"multipart/mixed; boundary={outer}"


def _answer(answer: Answer, content_id: str | None) -> bytes:
    lines = [
        "Content-Type: application/http",
        "Content-Transfer-Encoding: binary",
        "",
        f"HTTP/1.1 {answer.status} {HTTPStatus(answer.status).phrase}",
    ]
    if content_id is not None:
        lines.append(f"Content-ID: {content_id}")
    lines += ["X-Content-Type-Options: nosniff", "Cache-Control: no-cache", "DataServiceVersion: 3.0;"]
    lines += [f"{name}: {value}" for name, value in answer.headers.items()]
    if answer.body:
        lines.append(f"Content-Type: {answer.content_type}")
    # The blank line after the headers is needed without a body too.
    return "\r\n".join([*lines, "", ""]).encode() + answer.body + b"\r\n"
