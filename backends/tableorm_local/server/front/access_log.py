"""
The access log: a line of JSON for each request, written by a thread, so that no slow reader of it stops the server.

It shows neither signatures nor `Authorization` headers.
"""

import contextlib
import logging
import queue
import threading
from logging.handlers import QueueListener
from typing import IO, cast
from urllib.parse import unquote

import msgspec

__all__ = ["AccessLog", "Entry", "shorten", "without_signature"]

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


def without_signature(target: str) -> str:
    """Return path and query of a request as they were sent, without the signature of a token."""
    path, mark, query = target.partition("?")
    if mark:
        query = "&".join(_redact(part) for part in query.split("&"))
    return shorten(path + mark + query)


def shorten(text: str) -> str:
    """Return what a client sent as valid text of a bounded length."""
    return text[:_MAX_TEXT].encode("utf-8", "backslashreplace").decode("utf-8")


def _redact(part: str) -> str:
    name = part.partition("=")[0]
    # A token that was appended with its own question mark opens nothing here, but it does elsewhere.
    return f"{name}=REDACTED" if unquote(name).strip(" ?+").lower() == "sig" else part


class _Writer(logging.Handler):
    """Writes the messages of records, which are lines of bytes."""

    def __init__(self, stream: IO[bytes]) -> None:
        super().__init__()
        self._stream = stream

    def emit(self, record: logging.LogRecord) -> None:
        with contextlib.suppress(OSError, ValueError):
            self._stream.write(cast("bytes", record.msg))
            self._stream.flush()


class AccessLog:
    """
    Writes entries to a stream.

    Args:
        stream: A stream of bytes, which is not closed.
    """

    def __init__(self, stream: IO[bytes]) -> None:
        self._lost = 0
        self._waiting: queue.Queue[logging.LogRecord] = queue.Queue(_MAX_WAITING)
        self._listener = QueueListener(self._waiting, _Writer(stream))
        self._listener.start()

    def add(self, entry: Entry) -> None:
        """Write an entry soon. If too many wait already it is dropped, and the next one counts it."""
        entry.lost, self._lost = self._lost, 0
        try:
            self._waiting.put_nowait(logging.makeLogRecord({"msg": _encode(entry) + b"\n"}))
        except queue.Full:
            self._lost = entry.lost + 1

    def close(self, seconds: float = 5.0) -> None:
        """Write the entries that wait, for so many seconds at most."""
        # `stop` waits for the listener's thread without a limit, and a reader that takes nothing never lets it end.
        ending = threading.Thread(target=self._stop, daemon=True)
        ending.start()
        ending.join(seconds)

    def _stop(self) -> None:
        self._waiting.join()  # a full queue has no room for the mark with which `stop` ends the listener
        self._listener.stop()
