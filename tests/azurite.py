"""
The emulator Azurite as a process of the tests: tables, queues and blobs on free loopback ports, data in memory.

`scripts/azurite.py` installs it. Each worker of pytest starts one of its own, when a test first asks for it.
"""

import contextlib
import re
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Generator
from pathlib import Path

import attrs
import pytest

from scripts.azurite import PROGRAM

ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="

_LISTENING = re.compile(r"Azurite (Blob|Queue|Table) service is successfully listening at (\S+)")
_PATIENCE_SECONDS = 120


@attrs.frozen
class Azurite:
    """
    Where it listens.

    Args:
        table: URL of the account's tables.
        queue: URL of its queues.
        blob: URL of its blobs.
    """

    table: str
    queue: str
    blob: str

    @property
    def connection_string(self) -> str:
        """What opens all three."""
        return (
            f"AccountName={ACCOUNT};AccountKey={KEY};"
            f"TableEndpoint={self.table};QueueEndpoint={self.queue};BlobEndpoint={self.blob}"
        )


@contextlib.contextmanager
def running_azurite(*arguments: str) -> Generator[Azurite]:
    """Start it, wait until all three listen, and stop it in the end. Skips the test where it is not installed."""
    node = shutil.which("node")
    if node is None or not PROGRAM.exists():
        pytest.skip("Azurite is not installed; it needs Node.js: python3 scripts/azurite.py")
    with tempfile.TemporaryDirectory(prefix="azurite-") as folder:
        log = Path(folder) / "log.txt"
        command = [
            node,
            str(PROGRAM),
            "--silent",
            "--disableTelemetry",
            "--inMemoryPersistence",
            "--skipApiVersionCheck",
        ]
        command += ["--blobPort", "0", "--queuePort", "0", "--tablePort", "0", *arguments]
        with log.open("wb") as output:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=folder)
        try:
            yield _wait_for(process, log)
        finally:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait_for(process: "subprocess.Popen[bytes]", log: Path) -> Azurite:
    until = time.monotonic() + _PATIENCE_SECONDS
    found: dict[str, str] = {}
    while len(found) < 3:
        text = log.read_text(encoding="utf-8")
        assert process.poll() is None and time.monotonic() < until, f"Azurite does not start:\n{text}"
        found = {name.lower(): f"{url.rstrip('/')}/{ACCOUNT}" for name, url in _LISTENING.findall(text)}
        time.sleep(0.02)
    for url in found.values():
        host, port = url.split("/")[2].split(":")
        socket.create_connection((host, int(port)), _PATIENCE_SECONDS).close()
    return Azurite(found["table"], found["queue"], found["blob"])
