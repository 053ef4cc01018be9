"""
The flights example on Azurite: the same program and the same answers; only the connection string is another.
"""

import re

import pytest

from examples.flights.demo import run
from examples.flights.source import Source, january
from tableorm import connect
from tests.azurite import KEY, Azurite
from tests.torture import Rounds

# What was asked for and found is compared; how long it took, and in how many pages it came, is the store's.
_COSTS = re.compile(r"^loaded .*$|(cost|names of all airports).*$", re.MULTILINE)

ASKED = {"1", "8", "30"}
"""The days of January that single questions are about; the others are for sums and scans."""


def days_asked_about(source: Source) -> Source:
    """Return the source with every fourth flight of a few days, one that is asked for, and everything else."""
    header, *lines = source.texts["flights.csv"].splitlines(keepends=True)
    of_days = [line for line in lines if line.split(",")[2] in ASKED]
    chosen = [line for number, line in enumerate(of_days) if number % 4 == 0 or ",UA,1545," in line]
    return Source(source.name, source.sha256, {**source.texts, "flights.csv": "".join([header, *chosen])})


@pytest.mark.one_of(9, group="elsewhere")
async def test_answers_are_the_same(azurite: Azurite, rounds: Rounds, capsys: pytest.CaptureFixture[str]) -> None:
    """Some flights of three days, or all 34,026 rows, are loaded and asked on the embedded engine and on Azurite."""
    source = january() if rounds(0, 1) else days_asked_about(january())

    printed: list[str] = []
    for url in ("local::memory:", azurite.connection_string):
        await run(url, source, tasks=4)
        output, progress = capsys.readouterr()
        assert KEY not in output + progress
        printed.append(_COSTS.sub("", output))
    # The emulator outlives the test, and the next one begins with nothing.
    async with connect(azurite.connection_string) as db:
        for name in await db.tables():
            await db.drop_table(name)

    assert "UA1545 to IAH: flown, left at 05:17, 2 min late" in printed[0]
    assert printed[0] == printed[1]
