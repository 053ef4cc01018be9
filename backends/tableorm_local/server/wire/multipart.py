"""
Multipart: reads the requests in the body of a transaction, and writes the body with their answers.

A delimiter is a line of its own. JSON escapes line ends, so no value can be taken for a delimiter.
"""

import re
from collections.abc import Generator, Sequence
from functools import lru_cache
from http import HTTPStatus
from uuid import uuid4

import attrs
from multidict import CIMultiDict

from tableorm.protocol.codes import Code, Fault

from .calls import Answer, invalid_input
from .options import read_media_type

# The limits of a part are far more than clients send.
_MAX_HEADERS = 64
_MAX_HEAD_BYTES = 16 * 1024
_SHORT_HEAD = 200
# One more than the operations that a transaction may have: a larger number need not be known.
MAX_PARTS = 101
# Lines that begin like a delimiter and go on: those of a change set whose boundary begins with the outer one.
_MAX_LONGER = 2 * MAX_PARTS


@attrs.frozen(kw_only=True)
class Part:
    """
    A request in a transaction.

    Args:
        verb: The verb of its request line.
        url: The URL of its request line: absolute, or a path.
        headers: Its own headers.
        body: The bytes between the headers and the delimiter.
        content_id: The client's name of it; None if it has none.
    """

    verb: str
    url: str
    headers: CIMultiDict[str]
    body: bytes
    content_id: str | None


@attrs.frozen
class Parts:
    """
    The requests in the body of a transaction: those of its change set, or a single query.
    """

    parts: Sequence[Part]
    is_query: bool


def _malformed_fault(why: str) -> Fault:
    return invalid_input(f"the transaction {why}.")


def read(content_type: str, body: bytes) -> Generator[None, None, Parts]:
    """
    Read the body of a transaction, part by part.

    Raises:
        Fault: MediaTypeNotSupported; InvalidInput if the body is malformed, or has several change sets.
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
        raise _malformed_fault("has more than one change set, or a change set and queries")
    headers, content = _read_headers(parts[0])
    kind = headers.get("Content-Type", "")
    inner = _boundary(kind)
    if inner is not None:
        # An empty change set has an empty part.
        found = list[Part]()
        for part in filter(bytes.strip, _split(content, inner, MAX_PARTS)):
            found.append(_read_part(part))
            yield
        return Parts(found, is_query=False)
    if _is_http(kind):
        return Parts([_parse_request(content, headers)], is_query=True)
    raise _malformed_fault(f"has a part of type {kind[:80]!r}")


_MAX_BOUNDARY = 200


def _boundary(content_type: str) -> bytes | None:
    kind, parameters = read_media_type(content_type)
    boundary = parameters.get("boundary", "")
    if kind != "multipart/mixed" or not 1 <= len(boundary) <= _MAX_BOUNDARY or not boundary.isascii():
        return None
    return boundary.encode()


def _is_http(content_type: str) -> bool:
    return read_media_type(content_type)[0] == "application/http"


def _split(body: bytes, boundary: bytes, most: int) -> list[bytes]:
    """Return the parts between the delimiter lines, at most `most`."""
    # Searched for with the end of the line before: the same text within a line costs no step.
    mark = b"\n--" + boundary
    parts = list[bytes]()
    start: int | None = None
    at = longer = 0
    while True:
        try:
            found = -1 if not at and body.startswith(mark[1:]) else body.index(mark, at)
        except ValueError:
            raise _malformed_fault(f"ends without its last delimiter line {mark[1:80].decode()!r}--") from None
        at = found + len(mark)
        line_end = body.find(b"\n", at)
        if line_end == -1:
            line_end = len(body)
        rest = body[at:line_end].strip()
        if rest not in (b"", b"--"):
            longer += 1
            if longer > _MAX_LONGER:
                raise _malformed_fault(f"has more than {_MAX_LONGER} lines that begin like a delimiter and go on")
            continue
        if start is not None:
            end = found - 1 if body[found - 1 : found] == b"\r" else found
            parts.append(body[start : max(start, end)])
        if rest == b"--" or len(parts) >= most:
            return parts
        start = line_end + 1


# It begins with plain text, which is found at the speed of a search.
_BLANK = re.compile(rb"\n[ \t]*\r?\n")
_LINE_ENDS = (b"\n", b"\r\n")


def _read_headers(part: bytes) -> tuple[CIMultiDict[str], bytes]:
    """Read the lines up to the first blank one. Return them and the bytes that follow."""
    head, rest = _split_head(part)
    return _parse_head(head), rest


def _split_head(part: bytes) -> tuple[bytes, bytes]:
    """Return the lines up to the first blank one, which may be the first of all, and the bytes behind that."""
    found = _BLANK.search(part, 0, _MAX_HEAD_BYTES)
    if found is None:
        end, rest = len(part), b""
    else:
        start = found.start()
        end, rest = start - (part[start - 1 : start] == b"\r"), part[found.end() :]
    if end and part.startswith(_LINE_ENDS):
        return b"", part[part.index(b"\n") + 1 :]
    if found is None and len(part) > _MAX_HEAD_BYTES:
        raise _malformed_fault(f"has a part with headers of more than {_MAX_HEAD_BYTES} bytes")
    return part[:end], rest


def _parse_head(head: bytes) -> CIMultiDict[str]:
    headers: list[tuple[str, str]] = []
    lines = head.splitlines()
    if len(lines) > _MAX_HEADERS:
        raise _malformed_fault(f"has a part with {len(lines)} lines of headers, {_MAX_HEADERS} are allowed")
    for line in lines:
        name, colon, value = line.partition(b":")
        if not colon or not name.strip():
            if line.strip():
                raise _malformed_fault(f"has a line that is not a header: {line[:40]!r}")
            continue
        try:
            headers.append((name.decode("ascii").strip(), value.decode("utf-8").strip()))
        except UnicodeDecodeError:
            raise _malformed_fault(f"has a header that is not UTF-8: {line[:40]!r}") from None
    # Of several headers with one name the last one counts, which is the first one then.
    return CIMultiDict(reversed(headers))


# Before the request of a part there is little but its Content-ID, which counts from 0 or 1 in each transaction.
_parse_outer_head = lru_cache(maxsize=2 * MAX_PARTS)(_parse_head)


def _read_part(part: bytes) -> Part:
    head, content = _split_head(part)
    headers = _parse_outer_head(head) if len(head) <= _SHORT_HEAD else _parse_head(head)
    if not _is_http(headers.get("Content-Type", "")):
        raise _malformed_fault(f"has a part that is not application/http, but {headers.get('Content-Type', '')[:80]!r}")
    return _parse_request(content, headers)


_CONTENT_ID = re.compile(r"[!-~]{0,100}")
_REQUEST_LINE = re.compile(rb"([A-Z]{1,20}) (\S+) HTTP/1\.[01][ \t]*")


def _parse_request(content: bytes, outer: CIMultiDict[str]) -> Part:
    content = content.lstrip(b"\r\n")
    line, _, rest = content.partition(b"\n")
    if len(line) > _MAX_HEAD_BYTES:
        raise _malformed_fault(f"has a part with a request line of more than {_MAX_HEAD_BYTES} bytes")
    found = _REQUEST_LINE.fullmatch(line.rstrip(b"\r"))
    if found is None:
        raise _malformed_fault(f"has a part without a request line: {line[:80]!r}")
    try:
        url = found.group(2).decode("utf-8")
    except UnicodeDecodeError:
        raise _malformed_fault("has a URL that is not UTF-8") from None
    headers, body = _read_headers(rest)
    content_id = outer.get("Content-ID", headers.get("Content-ID"))
    if content_id is not None and not _CONTENT_ID.fullmatch(content_id):
        raise _malformed_fault(f"has the Content-ID {content_id[:40]!r}, which is not up to 100 visible characters")
    return Part(verb=found.group(1).decode("ascii"), url=url, headers=headers, body=body, content_id=content_id)


def write(answers: Sequence[Answer], content_ids: Sequence[str | None], *, is_query: bool) -> tuple[bytes, str]:
    """
    Return the body with these answers, and its content type.

    Args:
        answers: The answers, in order.
        content_ids: The Content-ID of each request.
        is_query: Whether the answer is to a single query, not to a change set.
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
        written.append(_encode_answer(answer, content_id))
    head = "\r\n".join(lines + (parts if answers else [])) + "\r\n"
    tail = f"--{outer}--\r\n" if is_query else f"--{inner}--\r\n--{outer}--\r\n"
    return b"".join([head.encode(), *written, tail.encode()]), f"multipart/mixed; boundary={outer}"


def _encode_answer(answer: Answer, content_id: str | None) -> bytes:
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
    # The blank line after the headers is needed even without a body.
    return "\r\n".join([*lines, "", ""]).encode() + answer.body + b"\r\n"
