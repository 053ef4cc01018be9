"""
The access log: a line of JSON for each request, written by a thread so that no slow reader of it stops the server.

Neither signatures nor `Authorization` headers are in it.
"""

import contextlib
import queue
import threading
from collections.abc import Callable
from typing import IO
from urllib.parse import unquote

import msgspec

__all__ = ["AccessLog", "Entry", "shown", "without_signature"]

_MAX_WAITING = 10_000
_MAX_TEXT = 2000


class Entry(msgspec.Struct, kw_only=True, omit_defaults=True):
    """
    A request.

    Args:
        time: When it was answered, in UTC.
        id: `x-ms-request-id`.
        client: Address.
        verb: As in the request line.
        url: Path and query, without the signature of a token.
        operation: In the service's words.
        status: Of HTTP.
        code: Of the error, if it is one.
        seconds: From the end of the headers until the answer was handed on.
        received: Bytes of the body.
        sent: Likewise.
        client_id: `x-ms-client-request-id`.
        agent: `User-Agent`.
        lost: Entries before this one that were dropped, because what reads the log was too slow.
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
    """Path and query as they were sent, except that no signature is left in it."""
    path, mark, query = target.partition("?")
    if mark:
        query = "&".join(_cleaned(part) for part in query.split("&"))
    return shown(path + mark + query)


def shown(text: str) -> str:
    """What a client sent, as text of a bounded length."""
    return text[:_MAX_TEXT].encode("utf-8", "backslashreplace").decode("utf-8")


def _cleaned(part: str) -> str:
    name = part.partition("=")[0]
    # A token that was appended with its own question mark is good for nothing here, and elsewhere it is.
    return f"{name}=REDACTED" if unquote(name).strip(" ?+").lower() == "sig" else part


class AccessLog:
    """
    Writes entries to a stream.

    Args:
        stream: Of bytes; it is flushed after each batch, and not closed.
    """

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._lost = 0
        self._waiting: queue.Queue[Entry | None] = queue.Queue(_MAX_WAITING)
        self._thread = threading.Thread(target=self._write, name="tableorm access log", daemon=True)
        self._thread.start()

    def add(self, entry: Entry) -> None:
        """Write it soon; drop it if the stream takes nothing."""
        entry.lost, self._lost = self._lost, 0
        try:
            self._waiting.put_nowait(entry)
        except queue.Full:
            self._lost = entry.lost + 1

    def close(self, seconds: float = 5.0) -> None:
        """Write what waits, for so long at most."""
        with contextlib.suppress(queue.Full):
            self._waiting.put(None, timeout=seconds)
        self._thread.join(seconds)

    def _write(self) -> None:
        encode: Callable[[Entry], bytes] = msgspec.json.Encoder().encode
        while (entry := self._waiting.get()) is not None:
            with contextlib.suppress(OSError, ValueError):
                self._stream.write(encode(entry) + b"\n")
                if self._waiting.empty():
                    self._stream.flush()
