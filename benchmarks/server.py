"""
The table server against Azurite, over loopback with a thin client, in one run:

    python -m benchmarks.server [--azurite COMMAND]

Both run on disk, as processes of their own, one after the other. Without COMMAND only the server is measured. Azurite
acknowledges writes before they are durable; the server does not.
"""

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from email.utils import formatdate
from pathlib import Path
from statistics import median, quantiles

import attrs

from tableorm.protocol.shared_key import SignedParts, authorization, decode_key
from tableorm_local.server import DEVELOPMENT_ACCOUNT, DEVELOPMENT_KEY

KEY = decode_key(DEVELOPMENT_KEY)
ROWS = 100_000
GUID = "c9da6455-213d-42c9-9a79-3e9149a57833"  # of boundaries: Azurite takes no others
ROOT = f"/{DEVELOPMENT_ACCOUNT}"


@attrs.define
class Connection:
    """One connection that sends a request and waits for its answer."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def ask(self, verb: str, path: str, body: bytes = b"", kind: str = "application/json", *more: str) -> bytes:
        date = formatdate(usegmt=True)
        parts = SignedParts(
            verb=verb,
            account=DEVELOPMENT_ACCOUNT,
            path=(ROOT + path).partition("?")[0],
            date=date,
            content_type=kind if body else "",
        )
        lines = [
            f"{verb} {ROOT}{path} HTTP/1.1",
            "Host: 127.0.0.1",
            f"x-ms-date: {date}",
            "x-ms-version: 2019-02-02",
            f"Authorization: {authorization(parts, KEY)}",
            "Accept: application/json;odata=minimalmetadata",
            *([f"Content-Type: {kind}"] if body else []),
            f"Content-Length: {len(body)}",
            *more,
        ]
        self.writer.write("\r\n".join([*lines, "", ""]).encode() + body)
        head = await self.reader.readuntil(b"\r\n\r\n")
        status = int(head[9:12])
        if status >= 300:
            raise RuntimeError(head.decode() + (await self.reader.read(1000)).decode())
        return await self._body(head.lower())

    async def _body(self, head: bytes) -> bytes:
        if b"transfer-encoding: chunked" in head:
            parts = list[bytes]()
            while size := int(await self.reader.readline(), 16):
                parts.append(await self.reader.readexactly(size))
                await self.reader.readexactly(2)
            await self.reader.readexactly(2)
            return b"".join(parts)
        at = head.find(b"content-length: ")
        return b"" if at < 0 else await self.reader.readexactly(int(head[at + 16 :].split(b"\r\n", 1)[0]))


async def connect(port: int) -> Connection:
    return Connection(*await asyncio.open_connection("127.0.0.1", port, limit=16 * 1024 * 1024))


def row(partition: str, key: int) -> dict[str, object]:
    return {"PartitionKey": partition, "RowKey": f"{key:06d}", "Name": f"name {key}", "Age": key % 90, "Office": "B2"}


def transaction(partition: str, first: int, count: int) -> bytes:
    lines = [f"--batch_{GUID}", f"Content-Type: multipart/mixed; boundary=changeset_{GUID}", ""]
    for key in range(first, first + count):
        lines += [f"--changeset_{GUID}", "Content-Type: application/http", "Content-Transfer-Encoding: binary", ""]
        lines += [f"POST http://127.0.0.1{ROOT}/Bench HTTP/1.1", "Content-Type: application/json"]
        lines += ["Accept: application/json", "Prefer: return-no-content", "DataServiceVersion: 3.0;", ""]
        lines.append(json.dumps(row(partition, key)))
    return "\r\n".join([*lines, f"--changeset_{GUID}--", f"--batch_{GUID}--", ""]).encode()


Times = dict[str, list[float]]


async def timed(count: int, action: Callable[[int], Awaitable[object]]) -> list[float]:
    """Seconds of each call, one after the other."""
    times = list[float]()
    for number in range(count):
        start = time.perf_counter()
        await action(number)
        times.append(time.perf_counter() - start)
    return times


async def measure(port: int) -> Times:
    one = await connect(port)
    await one.ask("POST", "/Tables", b'{"TableName":"Bench"}')
    batch = f"multipart/mixed; boundary=batch_{GUID}"
    for first in range(0, ROWS, 100):
        await one.ask("POST", "/$batch", transaction(f"p{first * 10 // ROWS}", first, 100), batch)
    times: Times = {}

    def getting(connection: Connection) -> Callable[[int], Awaitable[object]]:
        async def get(number: int) -> None:
            key = number * 7919 % ROWS
            await connection.ask("GET", f"/Bench(PartitionKey='p{key * 10 // ROWS}',RowKey='{key:06d}')")

        return get

    times["point read"] = await timed(1000, getting(one))
    many = [await connect(port) for _ in range(32)]
    start = time.perf_counter()
    await asyncio.gather(*(timed(60, getting(each)) for each in many))
    times["point read, 32 at once"] = [(time.perf_counter() - start) / (32 * 60)]
    where = "$filter=PartitionKey%20eq%20'p3'"
    times["page of 1,000"] = await timed(15, lambda _: one.ask("GET", f"/Bench()?{where}"))
    part = f"{where}%20and%20RowKey%20ge%20'030500'%20and%20RowKey%20lt%20'030600'"
    times["range of 100 in 100,000"] = await timed(20, lambda _: one.ask("GET", f"/Bench()?{part}"))
    times["insert"] = await timed(300, lambda n: one.ask("POST", "/Bench", json.dumps(row("new", n)).encode()))
    times["transaction of 100"] = await timed(
        30, lambda n: one.ask("POST", "/$batch", transaction("new", 1000 + 100 * n, 100), batch)
    )
    writing = asyncio.create_task(
        timed(300, lambda n: many[0].ask("POST", "/Bench", json.dumps(row("mixed", n)).encode()))
    )
    mixed = await asyncio.gather(*(timed(60, getting(each)) for each in many[1:17]))
    await writing
    times["point read among writes, p99"] = [quantiles([each for some in mixed for each in some], n=100)[98]]
    for connection in (one, *many):
        connection.writer.close()
    return times


def memory(process: "subprocess.Popen[bytes]") -> float:
    """MiB of a process, if the system tells."""
    try:
        text = Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8")
    except OSError:
        return float("nan")
    return int(text.partition("VmRSS:")[2].split()[0]) / 1024


async def run(command: list[str], port: int) -> tuple[Times, float]:
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # noqa: ASYNC220
    try:
        for _ in range(300):
            try:
                (await connect(port)).writer.close()
                break
            except OSError:
                await asyncio.sleep(0.1)
        times = await measure(port)
        return times, memory(process)
    finally:
        process.terminate()
        process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0] if __doc__ else "")
    parser.add_argument("--azurite", metavar="COMMAND", help="how to start it; its options follow")
    azurite: str | None = parser.parse_args().azurite
    with tempfile.TemporaryDirectory() as folder:
        serve = [sys.executable, "-m", "tableorm.cli", "serve", "--data", f"{folder}/bench.tables", "--port", "10702"]
        ours, our_memory = asyncio.run(run(serve, 10702))
        theirs: Times = {}
        their_memory = float("nan")
        if azurite is not None:
            options = ["--tablePort", "10703", "--location", f"{folder}/azurite", "--silent", "--skipApiVersionCheck"]
            theirs, their_memory = asyncio.run(run([*azurite.split(), *options], 10703))
    print(f"{'':32}{'tableorm':>12}{'Azurite':>12}{'ratio':>8}")
    for name, seconds in ours.items():
        mine, other = median(seconds), median(theirs.get(name, [float("nan")]))
        print(f"{name:32}{mine * 1e3:9.3f} ms{other * 1e3:9.3f} ms{other / mine:8.2f}")
    ratio = their_memory / our_memory
    print(f"{'memory with 100,000 entities':32}{our_memory:8.0f} MiB{their_memory:8.0f} MiB{ratio:8.2f}")


if __name__ == "__main__":
    main()
