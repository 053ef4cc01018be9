"""
The access log: a line of JSON for each request, written by a thread, so that no slow reader of it stops the server.

Of what a client sent it shows only the parts that can hold no secret, because they have the form of what the service
knows. The log of errors shows texts, and leaves out what looks like a secret.
"""

import contextlib
import logging
import queue
import re
import threading
import time
import traceback
from functools import lru_cache
from http import HTTPStatus
from typing import IO
from urllib.parse import unquote

import attrs
import msgspec

from tableorm.protocol.codes import Fault
from tableorm.protocol.limits import check_table_name, key_fault
from tableorm.protocol.redaction import REDACTED, without_secrets
from tableorm.protocol.sas import AccountSas, TableSas

from ..wire.addressing import SECONDARY, FindAccount, Kind, entity_path, place_of, resource_of, table_path

_MAX_WAITING = 10_000
_MAX_QUERY = 4000
_MAX_PARAMETERS = 64  # the rest is shown as one
_MAX_HEADER = 500

_encode = msgspec.json.Encoder().encode


class Entry(msgspec.Struct, kw_only=True, omit_defaults=True):
    """
    The entry of a request.

    Args:
        time: The time of the answer, in UTC.
        id: `x-ms-request-id`.
        client: The client's address.
        verb: The verb of the request line.
        url: Path and query, as `show_target` shows them.
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


def show_target(find: FindAccount, host: str, target: str) -> str:
    """
    Return what the target of a request asks for: account, table, keys, and the values of some parameters.

    Args:
        find: Looks an account up.
        host: The header `Host`.
        target: The target of the request line.
    """
    query = target.partition("?")[2][:_MAX_QUERY]
    shown = _show_path(find, host, target)
    return f"{shown}?{'&'.join(map(_show_parameter, query.split('&', _MAX_PARAMETERS)))}" if query else shown


def _show_path(find: FindAccount, host: str, target: str) -> str:
    try:
        place = place_of(find, "http", host, target)
    except Fault:
        return f"/{REDACTED}"
    account = place.account + SECONDARY if place.secondary else place.account
    return f"/{account}/{_show_resource(place.resource_path)}"


def _show_resource(path: str) -> str:
    try:
        resource = resource_of(path)
        if resource.table:
            check_table_name(resource.table)
    except Fault:
        return REDACTED
    table = without_secrets(resource.table)
    if resource.kind is Kind.ENTITY:
        keys = (resource.partition_key, resource.row_key)
        return entity_path(table, *(REDACTED if key_fault(key) else without_secrets(key) for key in keys))
    if resource.kind is Kind.TABLE:
        return table_path(table)
    if resource.kind is Kind.BELOW_TABLE:
        return f"{table}/{REDACTED}"
    return {Kind.TABLES: "Tables", Kind.TRANSACTION: "$batch"}.get(resource.kind, table)


# The parameters whose values are shown if they are as short and plain as the service's own: words and times.
_SHOWN_PARAMETERS = frozenset({"comp", "restype", "timeout", "$top", "sv", "st", "se", "sp"})
_PLAIN_VALUE = re.compile(r"[a-z]{0,13}|[0-9TZ:.-]{1,28}")
_PARAMETERS = (
    _SHOWN_PARAMETERS
    | {"$filter", "$select", "$format", "NextPartitionKey", "NextRowKey", "NextTableName", "sig"}
    | {field.name for token in (TableSas, AccountSas) for field in attrs.fields(token)}
)


def _show_parameter(parameter: str) -> str:
    name, value = map(unquote, parameter.partition("=")[::2])
    if name not in _PARAMETERS:
        return REDACTED
    return f"{name}={value if name in _SHOWN_PARAMETERS and _PLAIN_VALUE.fullmatch(value) else REDACTED}"


# The names and versions of programs, and ids of requests.
_PLAIN_HEADER = re.compile(r"[A-Za-z0-9_ ./();:,+-]*")


@lru_cache  # a client sends most headers with every request
def show_header(text: str) -> str:
    """Return the value of a header if it is plain and short."""
    return without_secrets(text) if len(text) <= _MAX_HEADER and _PLAIN_HEADER.fullmatch(text) else REDACTED


def _redact_record(record: logging.LogRecord) -> bool:
    """Leave secrets out of what is logged about an error, which may quote what a client sent."""
    record.msg, record.args = without_secrets(record.getMessage()), ()
    if record.exc_info and record.exc_info[1] is not None:
        # Handlers show this text, and cannot make another one. Frames are of the program alone, and name files.
        parts = traceback.TracebackException.from_exception(record.exc_info[1]).format()
        shown = [part if part.startswith("  File ") else without_secrets(part) for part in parts]
        record.exc_text, record.exc_info = "".join(shown).rstrip("\n"), None
    return True


# What goes wrong in the server itself.
logging.getLogger("tableorm.server").addFilter(_redact_record)


def _is_own_error(record: logging.LogRecord) -> bool:
    """Leave out what a client did wrong: it was told, in the answer 400."""
    error = record.exc_info and record.exc_info[1]
    return getattr(error, "code", None) != HTTPStatus.BAD_REQUEST


HTTP_LOGGER = logging.getLogger("tableorm.server.http")
"""What goes wrong in aiohttp's part of the server."""
HTTP_LOGGER.addFilter(_is_own_error)
HTTP_LOGGER.addFilter(_redact_record)


class AccessLog:
    """
    Writes entries to a stream.

    Args:
        stream: A stream of bytes, which is not closed. A line that cannot be written is lost.
    """

    def __init__(self, stream: IO[bytes]) -> None:
        self._lost = 0
        self._waiting: queue.Queue[bytes | None] = queue.Queue(_MAX_WAITING)
        # A reader that takes nothing stops the thread for ever, but not the process.
        self._thread = threading.Thread(target=_write_lines, args=(stream, self._waiting), daemon=True)
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
            self._thread.join(until - time.monotonic())


def _write_lines(stream: IO[bytes], waiting: "queue.Queue[bytes | None]") -> None:
    while (line := waiting.get()) is not None:
        with contextlib.suppress(OSError, ValueError):
            stream.write(line)
            stream.flush()
