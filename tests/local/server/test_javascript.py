"""
The unmodified `@azure/data-tables` for JavaScript against the server, in both styles of addresses.
"""

import asyncio
import shutil
import subprocess
from pathlib import Path

import pytest

from tableorm_local.server import DEVELOPMENT_ACCOUNT, DEVELOPMENT_KEY, serve
from tests.local.server.client import root_of

FOLDER = Path(__file__).with_name("javascript")
NODE, NPM = shutil.which("node"), shutil.which("npm")


def run(*command: str) -> str:
    done = subprocess.run(command, cwd=FOLDER, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.skipif(NODE is None or NPM is None, reason="needs Node.js and npm; install them")
async def test_the_javascript_client() -> None:
    """Everything that the client can do works: types, conditions, transactions, queries, pages, policies, tokens."""
    if not (FOLDER / "node_modules" / ".package-lock.json").exists():
        await asyncio.to_thread(run, str(NPM), "ci", "--no-audit", "--no-fund")
    for style in ("path", "host"):
        async with serve(None, port=0) as server:
            url = server.url if style == "path" else root_of(server)
            host = [] if style == "path" else [f"{DEVELOPMENT_ACCOUNT}.table.core.localhost:{server.port}"]
            said = await asyncio.to_thread(
                run, str(NODE), "drive.mjs", url, DEVELOPMENT_ACCOUNT, DEVELOPMENT_KEY, *host
            )
        assert said == "ok\n"
