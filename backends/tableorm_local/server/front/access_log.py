"""
The access log: a line of JSON for each request, written by a thread, so that no slow reader of it stops the server.

It shows neither signatures nor `Authorization` headers; nor does the log of errors.
"""

import contextlib
import logging
import queue
import threading
import time
from typing import IO

import msgspec

from tableorm.protocol.redaction import without_signature

__all__ = ["AccessLog", "Entry", "shorten", "show_target"]

_MAX_WAITING = 10_000
_MAX_TEXT = 2000

_encode = msgspec.json.Encoder().encode


class Entry(msgspec.Struct, kw_only=True, omit_defaults=True):
    """
    The entry of a request.

    Args:
        time: The time of the answer, in UTC.
        id: `x-ms-request-id`.
        client: The client's address.
        verb: The verb of the request line.
        url: Path and query, without the signature of a token.
        operation: The service's name of the operation.
        status: The status of HTTP.
        code: The code of the error, if the answer is one.
        seconds: Time from the end of the headers until the answer was handed on.
        received: Bytes of the request's body.
        sent: Bytes of the answer's body.
        client_id: `x-ms-client-request-id`.
        agent: `User-Agent`.
        lost: Number of entries before this one that were dropped, because the reader of the log was too slow.
    """

    time: str
    id: str
    client: str
    verb: str
    url: str
    operation: str
    status: int
    code: str = ""
    seconds: float
    received: int
    sent: int
    client_id: str = ""
    agent: str = ""
    lost: int = 0


def show_target(target: str) -> str:
    """Return the target of a request without signatures, and of a bounded length. What is not shown is not decoded."""
    return shorten(without_signature(target[: 3 * _MAX_TEXT]))


def shorten(text: str) -> str:
    """Return what a client sent as valid text of a bounded length."""
    return text[:_MAX_TEXT].encode("utf-8", "backslashreplace").decode("utf-8")


def _redact_record(record: logging.LogRecord) -> bool:
    """Leave signatures out of what is logged about an error, which may quote what a client sent."""
    record.msg, record.args = without_signature(record.getMessage()), ()
    if record.exc_info:
        # Handlers show this text, and cannot make another one.
        record.exc_text, record.exc_info = without_signature(_FORMATTER.formatException(record.exc_info)), None
    return True


_FORMATTER = logging.Formatter()

# What goes wrong in the server itself.
logging.getLogger("tableorm.server").addFilter(_redact_record)


class AccessLog:
    """
    Writes entries to a stream.

    Args:
        stream: A stream of bytes, which is not closed.
    """

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream, self._lost = stream, 0
        self._waiting: queue.Queue[bytes | None] = queue.Queue(_MAX_WAITING)
        # A reader that takes nothing stops the thread for ever, but not the process.
        self._thread = threading.Thread(target=self._write, name="access log", daemon=True)
        self._thread.start()

    def add(self, entry: Entry) -> None:
        """Write an entry soon. If too many wait already it is dropped, and the next one counts it."""
        entry.lost, self._lost = self._lost, 0
        try:
            self._waiting.put_nowait(_encode(entry) + b"\n")
        except queue.Full:
            self._lost = entry.lost + 1

    def close(self, seconds: float = 5.0) -> None:
        """Write the entries that wait, for so many seconds at most."""
        until = time.monotonic() + seconds
        with contextlib.suppress(queue.Full):
            self._waiting.put(None, timeout=seconds)
        self._thread.join(max(0.0, until - time.monotonic()))

    def _write(self) -> None:
        while (line := self._waiting.get()) is not None:
            with contextlib.suppress(OSError, ValueError):
                self._stream.write(line)
                self._stream.flush()
