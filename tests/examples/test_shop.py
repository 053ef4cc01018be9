"""
The shop example: its own tests, which run in memory with all others, pass elsewhere too; and the audit that its
README names works.
"""

import asyncio
import os
import re
import sys
from pathlib import Path

import pytest

from examples import shop
from examples.shop.models import MODELS, Customer
from tableorm import connect
from tableorm_local import serve
from tests.azurite import ACCOUNT, KEY, Azurite
from tests.commandline import run_command

FOLDER = Path(shop.__file__).parent
ROOT = FOLDER.parents[1]


async def run_its_tests(*arguments: str) -> None:
    """Run them as a user does, in a process of their own."""
    # Not those of the run that this is a part of.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(FOLDER), *arguments),
        cwd=ROOT,
        env=environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    printed, _ = await done.communicate()
    assert done.returncode == 0, printed.decode()
    assert re.search(r"^1\d passed", printed.decode(), re.MULTILINE)


@pytest.mark.one_of(9, group="elsewhere")
async def test_on_the_server(tmp_path: Path) -> None:
    """The tables are in a file, behind HTTP."""
    async with serve(tmp_path / "shop.tables", port=0) as server:
        await run_its_tests("--tableorm-url", f"AccountName={ACCOUNT};AccountKey={KEY};TableEndpoint={server.url}")


@pytest.mark.one_of(9, group="elsewhere")
async def test_on_azurite(azurite: Azurite) -> None:
    """The tables are those of the emulator, through Azure's SDK."""
    await run_its_tests("--tableorm-url", azurite.connection_string)


def test_the_audit_of_its_readme(tmp_path: Path) -> None:
    """The command finds the models, and nothing wrong."""
    url = f"local:{tmp_path / 'shop.tables'}"

    async def fill() -> None:
        async with connect(url) as db:
            await db.create_tables(*MODELS)
            await db.insert(Customer(tenant="acme", id="ann", email="ann@example.com"))

    asyncio.run(fill())
    command = "examples.shop.models:Customer examples.shop.models:Order"
    done = run_command("audit", url, *command.split())

    assert f"tableorm audit $SHOP_URL {command}\n" in (FOLDER / "README.md").read_text(encoding="utf-8")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("1 entity and 1 derived row checked: nothing found")
