"""
Entity group transactions on the wire: writes the multipart body of `$batch`, and reads the answer.

Source: Table service REST, "Performing entity group transactions".
"""

import re
from collections.abc import Sequence
from itertools import islice
from uuid import uuid4

from tableorm.protocol.codes import THROTTLING, Code, Fault
from tableorm.protocol.limits import MAX_TRANSACTION_OPERATIONS

from .faults import fault_of_response

_HEADERS = "Accept: application/json\r\nDataServiceVersion: 3.0\r\n"
# The patterns begin with plain text, which is found without looking at every line.
_STATUS = re.compile(rb"\nHTTP/\d(?:\.\d)? (\d{3})[^\r\n]{0,1000}(?=\r?\n)")
_BUSY = re.compile(rb"\nHTTP/\d(?:\.\d)? (?:429|503)")
_ETAG = re.compile(rb"\nETag:[ \t]*([^\r\n]+)")
_ETAG_OF_ANY_CASE = re.compile(_ETAG.pattern, re.IGNORECASE)
# Of a part that failed more is not read: no error of the service, with its headers, has as many bytes.
_LONGEST_FAILURE = 32 * 1024


Request = tuple[str, str, dict[str, str], bytes | None]
"""An operation as a request: method, absolute URL, headers, and JSON; no body for a delete."""


def content_type_of(boundary: str) -> str:
    """Return the Content-Type of a body with this boundary."""
    return f"multipart/mixed; boundary={boundary}"


def write_batch(requests: Sequence[Request]) -> tuple[str, bytes]:
    """
    Return the boundary and the body of a transaction.

    Neither JSON nor URLs have line ends, so no part has a line that looks like a boundary.
    """
    unique = uuid4()
    batch, changes = f"batch_{unique}", f"changeset_{unique}"
    lead = f"--{changes}\r\nContent-Type: application/http\r\nContent-Transfer-Encoding: binary\r\nContent-ID: "
    pieces = [f"--{batch}\r\nContent-Type: multipart/mixed; boundary={changes}\r\n\r\n".encode()]
    for number, (method, url, headers, body) in enumerate(requests):
        lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
        head = f"{lead}{number}\r\n\r\n{method} {url} HTTP/1.1\r\n{_HEADERS}{lines}"
        if body is None:
            pieces.append(f"{head}\r\n\r\n".encode())
        else:
            pieces += (f"{head}Content-Length: {len(body)}\r\n\r\n".encode(), body, b"\r\n")
    pieces.append(f"--{changes}--\r\n--{batch}--\r\n".encode())
    return batch, b"".join(pieces)


def read_etags(body: bytes, count: int) -> list[str | None]:
    """
    Return the ETags in the answer to a transaction that succeeded, in order; None for an operation without one.

    Args:
        body: The answer.
        count: How many operations were sent.

    Raises:
        Fault: An operation failed, `index` says which if the service does; or the answer has not `count` parts.
    """
    starts = list(islice(_STATUS.finditer(body), MAX_TRANSACTION_OPERATIONS + 1))
    tags: list[str | None] = []
    for number, match in enumerate(starts):
        end = starts[number + 1].start() if number + 1 < len(starts) else len(body)
        if not match.group(1).startswith(b"2"):
            raise _read_failure(int(match.group(1)), body[match.end() : min(end, match.end() + _LONGEST_FAILURE)])
        found = _ETAG.search(body, match.end(), end) or _ETAG_OF_ANY_CASE.search(body, match.end(), end)
        tags.append(None if found is None else found.group(1).decode("latin-1"))
    if len(tags) != count:
        raise Fault(
            Code.INTERNAL_ERROR, f"The answer to a transaction of {count} operations has {len(tags)} parts.", doubt=True
        )
    return tags


def find_throttled_part(body: bytes) -> Fault | None:
    """
    Return the fault of a transaction that was rejected for its rate; None if it was not.

    Args:
        body: The answer to the transaction, or to any other request, which has no such part.
    """
    if _BUSY.search(body) is None:
        return None
    try:
        read_etags(body, 0)
    except Fault as fault:
        return fault if fault.code in THROTTLING and not fault.doubt else None
    return None


def _read_failure(status: int, part: bytes) -> Fault:
    head, body = part, b""
    for blank in (b"\r\n\r\n", b"\n\n"):
        if blank in part:
            head, _, body = part.partition(blank)
            break
    headers: dict[str, str] = {}
    for line in head.decode("latin-1").split("\n"):
        name, colon, value = line.partition(":")
        if colon:
            headers[name.lower()] = value.strip(" \t\r")
    # The body ends before the delimiter: JSON and XML have no line that begins with two dashes.
    body = re.split(rb"\r?\n--", body, maxsplit=1)[0]
    return fault_of_response(status, headers, body, write=True, transaction=True)
