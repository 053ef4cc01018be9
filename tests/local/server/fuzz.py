"""
A fuzzer of the table server: mutated requests over sockets, to a server in a process of its own.

    python -m tests.local.server.fuzz --inputs 300000 --seed 1 [--first N]

Two thirds of the inputs are sent; the others go straight to what reads filters, transactions, entities, XML and tokens.
Found is what makes an answer of 5xx (other than 501, 503 and an OperationTimedOut), no answer and no close, something
in the log, a server that is gone or keeps something of what it was sent, and an exception that is none of ours.
`--first N --inputs 1` repeats input N by itself.
"""

import argparse
import asyncio
import datetime as dt
import errno
import faulthandler
import logging
import re
import sys
import tempfile
import time
from asyncio.subprocess import PIPE, Process
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import attrs

from tableorm.protocol.codes import Fault
from tableorm.protocol.filter_text import FilterSyntaxError, parse_filter
from tableorm.protocol.rights import read_token
from tableorm.protocol.shared_key import date_fault, parse_authorization
from tableorm_local.server import DEVELOPMENT_ACCOUNT, Limits, serve
from tableorm_local.server.wire import multipart, options, xml
from tableorm_local.server.wire.addressing import resource_of
from tableorm_local.server.wire.bodies import read_entity
from tests.local.server.client import finish
from tests.local.server.fuzz_inputs import BOUNDARY, KEY, Input, of_number, text_of_number

# Far more than any input may take, on a machine that does other things too.
HANG_SECONDS = 30.0
# The server's own patience, so that what is cut off ends soon.
_LIMITS = Limits(idle_seconds=1.0, body_seconds=1.0, write_seconds=5.0, body_bytes=256 * 1024)
_CONNECTIONS = 128


@attrs.define
class Outcome:
    """
    What became of the inputs.

    Args:
        statuses: How often each was answered; 0 is a connection that was closed without.
        found: What should not be, with the numbers of the inputs.
        slowest: Seconds of the slowest input, and its number.
    """

    statuses: Counter[int] = attrs.field(factory=Counter[int])
    found: list[str] = attrs.field(factory=list[str])
    slowest: tuple[float, int] = (0.0, 0)

    def took(self, seconds: float, number: int) -> None:
        self.slowest = max(self.slowest, (seconds, number))


_STATUS = re.compile(rb"HTTP/1\.[01] (\d{3}) ")


class _Connection:
    """A connection that is kept while inputs leave it in order."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def send(self, given: Input) -> bytes:
        """All that is answered until the server has nothing to add. Raises TimeoutError if that does not end."""
        try:
            async with asyncio.timeout(HANG_SECONDS):
                kept = self._streams is not None
                answer = await self._send(given)
                # As clients do: the server may have closed after the answer before.
                return await self._send(given) if kept and not answer else answer
        except BaseException:
            self.close()
            raise

    async def _send(self, given: Input) -> bytes:
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port, limit=16 * 1024 * 1024)
        reader, writer = self._streams
        answer = b""
        try:
            for piece in given.pieces:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0)
            answer = await reader.readuntil(b"\r\n\r\n")
            if given.whole:
                length = re.search(rb"(?i)\r\ncontent-length: (\d+)", answer)
                body = await reader.readexactly(int(length.group(1))) if length else b""
                if answer.startswith(b"HTTP/1.1") and not re.search(rb"(?i)\r\nconnection: close", answer):
                    return answer + body
                answer += body
            elif writer.can_write_eof():
                # What else there is to answer is answered; nothing of what was begun is waited for.
                writer.write_eof()
            answer += await reader.read()
        except asyncio.IncompleteReadError as error:
            answer += error.partial
        except ConnectionError:
            pass
        except OSError as error:
            if error.errno != errno.ENOTCONN:  # it was closed before all of it was sent
                raise
        self.close()
        return answer

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].transport.abort()
            self._streams = None


def _unexpected(answer: bytes) -> list[int]:
    """The statuses of faults of the server, also within transactions."""
    return [
        int(found.group(1))
        for found in _STATUS.finditer(answer)
        if found.group(1)[:1] == b"5" and found.group(1) not in (b"501", b"503") and b"OperationTimedOut" not in answer
    ]


async def _work(port: int, seed: int, numbers: Iterator[int], outcome: Outcome) -> None:
    connection = _Connection(port)
    for number in numbers:
        given, start = of_number(seed, number), time.perf_counter()
        try:
            answer = await connection.send(given)
        except TimeoutError:
            outcome.found.append(f"input {number}: no answer and no close in {HANG_SECONDS} s: {given.pieces!r:.2000}")
            continue
        except OSError as error:
            outcome.found.append(f"input {number}: the server is gone: {error}")
            return
        seconds = time.perf_counter() - start
        outcome.took(seconds, number)
        # Of what is sent in pieces the first may be rejected, and the others, which nobody reads, cost the answer.
        if given.whole and not answer and len(given.pieces) == 1 and seconds < _LIMITS.idle_seconds:
            outcome.found.append(f"input {number}: closed without an answer: {given.pieces!r:.2000}")
        first = _STATUS.match(answer)
        outcome.statuses[int(first.group(1)) if first else 0] += 1
        outcome.found += [f"input {number}: {status}: {given.pieces!r:.2000}" for status in _unexpected(answer)]
    connection.close()


_GAUGES = ("requests_at_work", "connections")


async def _settled(port: int) -> str:
    """What the server still holds when it has been asked everything; empty if nothing."""
    text = ""
    for _ in range(100):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        text = (await reader.read()).decode()
        writer.close()
        values = {name: float(value) for name, value in re.findall(r"^tableorm_(\w+) (\S+)$", text, re.MULTILINE)}
        if [values.get(name) for name in _GAUGES] == [0, 1]:
            return ""
        await asyncio.sleep(0.1)
    return text[-400:]


def _beginning(log: Path) -> str:
    return log.read_text(encoding="utf-8", errors="replace")[:4000]


async def _start(log: Path) -> tuple[Process, int]:
    with log.open("wb") as stream:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.local.server.fuzz", "--serve", stdin=PIPE, stdout=PIPE, stderr=stream
        )
    assert process.stdout is not None
    return process, int(await process.stdout.readline())


async def fuzz_sockets(seed: int, numbers: range) -> Outcome:
    """Send the inputs of these numbers to a server that is started for them."""
    outcome, left = Outcome(), iter(numbers)
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "log")
        process, port = await _start(log)
        try:
            await asyncio.gather(*(_work(port, seed, left, outcome) for _ in range(min(_CONNECTIONS, len(numbers)))))
            held = await _settled(port)
            if held:
                outcome.found.append(f"the server still holds something: {held}")
        except OSError as error:
            outcome.found.append(f"the server is gone: {error}")
        finally:
            if process.stdin is not None:
                process.stdin.close()
            status = await process.wait()
        if status:
            outcome.found.append(f"the server ended with status {status}")
        text = _beginning(log)
        if text:
            outcome.found.append(f"the log of the server:\n{text}")
    return outcome


_READERS: dict[str, Callable[[str], object]] = {
    "filter": parse_filter,
    "path": resource_of,
    "query": options.options_of,
    "authorization": parse_authorization,
    "date": lambda text: date_fault(text, dt.datetime.now(dt.UTC)),
    "token": lambda text: read_token(text, DEVELOPMENT_ACCOUNT, [KEY]),
    "multipart": lambda text: finish(multipart.read(f"multipart/mixed; boundary={BOUNDARY}", _bytes(text))),
    "entity": lambda text: read_entity(_bytes(text)),
    "xml": lambda text: xml.parse(_bytes(text), "StorageServiceProperties"),
}


# How each says that it takes something for wrong.
_REFUSALS: dict[str, type[Exception]] = {"filter": FilterSyntaxError, "authorization": ValueError}


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def fuzz_texts(seed: int, numbers: range) -> Outcome:
    """Call what reads parts of requests with the texts of these numbers."""
    outcome = Outcome()
    for number in numbers:
        given, start = text_of_number(seed, number), time.perf_counter()
        try:
            _READERS[given.what](given.text)
            outcome.statuses[200] += 1
        except _REFUSALS.get(given.what, Fault):
            outcome.statuses[400] += 1
        except Exception as error:  # noqa: BLE001 - each is one of ours, or a finding
            outcome.found.append(f"text {number}: {given.what}: {error!r}: {given.text!r:.2000}")
        outcome.took(time.perf_counter() - start, number)
    return outcome


async def _serve() -> None:
    async with serve(None, port=0, limits=_LIMITS) as server:
        print(server.port, flush=True)
        # Until whoever started it has enough, or is gone.
        await asyncio.to_thread(sys.stdin.read)


def _tell(what: str, outcome: Outcome, seconds: float) -> None:
    count = sum(outcome.statuses.values())
    print(f"{count} {what} in {seconds:.0f} s; the slowest, {outcome.slowest[1]}, took {outcome.slowest[0]:.2f} s")
    print(
        "  answered:", ", ".join(f"{status or 'closed'} {times}" for status, times in sorted(outcome.statuses.items()))
    )
    for text in outcome.found:
        print("FOUND", text)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0] if __doc__ else "")
    parser.add_argument("--inputs", type=int, default=300_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="number of the first input")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        logging.basicConfig()
        asyncio.run(_serve())
        return 0
    middle = given.first + (given.inputs * 2 + 2) // 3
    start = time.perf_counter()
    sent = asyncio.run(fuzz_sockets(given.seed, range(given.first, middle)))
    _tell("inputs over sockets", sent, time.perf_counter() - start)
    start, texts = time.perf_counter(), Outcome()
    for first in range(middle, given.first + given.inputs, 1000):
        # Nothing else ends what goes on for ever in here.
        faulthandler.dump_traceback_later(60, exit=True)
        part = fuzz_texts(given.seed, range(first, min(first + 1000, given.first + given.inputs)))
        faulthandler.cancel_dump_traceback_later()
        texts.statuses += part.statuses
        texts.found += part.found
        texts.took(*part.slowest)
    _tell("texts", texts, time.perf_counter() - start)
    return 1 if sent.found or texts.found else 0


if __name__ == "__main__":
    sys.exit(main())
