"""
The flights example on Azurite: the same program and the same answers; only the connection string is another.
"""

import re
import subprocess
import sys
from pathlib import Path

from examples.flights import source
from tableorm import connect
from tests.azurite import KEY, Azurite

DEMO = Path(source.__file__).with_name("demo.py")
# What was asked for and found is compared; how long it took, and in how many pages it came, is the store's.
_COSTS = re.compile(r"^(database:|loaded |  \[).*$|(cost|names of all airports).*$", re.MULTILINE)


def answers(*url: str) -> str:
    """What the demo prints, without times."""
    done = subprocess.run([sys.executable, DEMO, *url], capture_output=True, encoding="utf-8", check=False)
    assert done.returncode == 0, done.stderr
    assert KEY not in done.stdout + done.stderr
    return _COSTS.sub("", done.stdout)


async def test_answers_are_the_same(azurite: Azurite) -> None:
    """January's 34,026 rows are loaded and asked on the embedded engine and on Azurite."""
    on_azurite = answers(azurite.connection_string)
    async with connect(azurite.connection_string) as db:
        for name in await db.tables():
            await db.drop_table(name)

    assert on_azurite == answers()
