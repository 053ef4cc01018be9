"""
The flights example: its data is what it says, it loads in full, and each answer is the one that the CSV has.
"""

import asyncio
import datetime as dt
import io
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from hashlib import sha256
from pathlib import Path

import pytest

from examples.flights import demo
from examples.flights import source as source_module
from examples.flights.load import LoadError, load
from examples.flights.make_data import cut, pack
from examples.flights.models import Airport, Flight, Load, Origin, Outcome, Weather
from examples.flights.progress import Progress
from examples.flights.questions import upgrade_old_rows
from examples.flights.records import Batches
from examples.flights.source import JANUARY, JANUARY_SHA256, SDIST_SHA256, Source, SourceError, january
from tableorm import Database, connect

DEMO = Path(demo.__file__)
ANSWERS = Path(__file__).with_name("flights_answers.txt")
"""What the demo prints below its first two lines, without the times. Plain Python found the same in the CSV."""


DAYS = {"1", "8", "30", "31"}
"""The days that questions are about; the flights of others would only take longer."""


@pytest.fixture(scope="module")
def month() -> Source:
    """January with the flights of these days."""
    source = january()
    header, *lines = source.texts["flights.csv"].splitlines(keepends=True)
    chosen = [line for line in lines if line.split(",")[2] in DAYS]
    return Source(source.name, source.sha256, {**source.texts, "flights.csv": "".join([header, *chosen])})


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory, month: Source) -> str:
    """A database that holds the month; no test changes what it says."""
    url = f"local:{tmp_path_factory.mktemp('flights') / 'flights.tables'}"

    async def fill() -> None:
        async with connect(url) as db:
            await load(db, month, progress_to=io.StringIO())

    asyncio.run(fill())
    return url


@pytest.fixture
async def db(url: str) -> AsyncIterator[Database]:
    async with connect(url) as db:
        yield db


@pytest.fixture
async def empty(tmp_path: Path) -> AsyncIterator[Database]:
    async with connect(f"local:{tmp_path / 'empty.tables'}") as db:
        yield db


# The data


def test_archive_is_the_published_one() -> None:
    """The archive has the SHA-256 that source.py and the README state, and is smaller than 1 MiB."""
    content = JANUARY.read_bytes()
    readme = JANUARY.with_name("README.md").read_text(encoding="utf-8")

    assert sha256(content).hexdigest() == JANUARY_SHA256
    assert JANUARY_SHA256 in readme
    assert SDIST_SHA256 in readme
    assert f"{len(content):,} bytes" in readme
    assert len(content) < 2**20


def test_archive_is_reproducible() -> None:
    """Cutting January and packing it gives the archive of the tree, bit for bit."""
    content = pack(cut(january()))

    assert content == JANUARY.read_bytes()


def test_damaged_archive_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is not the published one is named, with both checksums, and not read."""
    damaged = tmp_path / "january.zip"
    damaged.write_bytes(JANUARY.read_bytes()[:-1] + b"x")
    monkeypatch.setattr(source_module, "JANUARY", damaged)

    with pytest.raises(SourceError, match=rf"{damaged.name} has the SHA-256 [0-9a-f]{{64}}, not {JANUARY_SHA256}"):
        january()


# From lines to entities


async def test_a_day_comes_back_as_it_was(db: Database, month: Source) -> None:
    """A partition, read back, equals the entities that were made of its lines: every type, every missing value."""
    made = {
        entity.key: entity
        for batch in Batches(month)
        for entity in batch
        if isinstance(entity, (Flight, Weather)) and (entity.origin, entity.day.day) == (Origin.EWR, 31)
    }

    read = await db.select(Flight, Weather).where(Flight.origin == Origin.EWR, Flight.day == dt.date(2013, 1, 31)).all()

    assert {entity.key: entity for entity in read} == made
    assert [entity.at for entity in read] == sorted(entity.at for entity in read)


async def test_values_are_those_of_the_file(db: Database) -> None:
    """The first line of weather.csv and an airport without a known summer time, field by field."""
    observed = await db.get(
        Weather, origin=Origin.EWR, day=dt.date(2013, 1, 1), at=dt.datetime(2013, 1, 1, 6, tzinfo=dt.UTC)
    )
    airport = await db.get(Airport, code="ADK")

    assert (observed.temperature, observed.dew_point, observed.humidity) == (39.02, 26.06, 59.37)
    assert (observed.wind_direction, observed.wind_speed, observed.wind_gust) == (270, 10.357019999999999, None)
    assert (str(observed.rain), observed.pressure, observed.visibility) == ("0", 1012.0, 10.0)
    assert (airport.name, airport.altitude, airport.utc_offset) == ("Adak Airport", 18, -9)
    assert (airport.summer_time, airport.time_zone) == (True, "America/Anchorage")


# Loading again


async def test_second_load_writes_nothing(db: Database, month: Source) -> None:
    """A period that was loaded is not loaded again; its size is still told."""
    note = await db.get(Load, period="2013-01")

    again = await load(db, month, progress_to=io.StringIO())

    assert again.seconds is None
    assert again.rows == note.rows == Batches(month).total
    assert (await db.get(Load, period="2013-01")).etag == note.etag


async def test_interrupted_load_is_told(empty: Database, month: Source) -> None:
    """A load that did not end is not taken for a whole one, and says what to do."""
    await empty.create_tables(Load)
    await empty.insert(Load(period="2013-01", source_sha256=month.sha256, started=dt.datetime.now(dt.UTC)))

    with pytest.raises(LoadError, match="did not end; delete that database"):
        await load(empty, month)


def test_progress_tells_rows_written() -> None:
    """Off a terminal: a line per quarter, the last with the total, none that is ahead of the rows."""
    out = io.StringIO()
    with Progress(1000, out) as progress:
        for _ in range(10):
            progress.advance(100)

    shown = [line.split("]")[1].split("rows")[0].split() for line in out.getvalue().splitlines()]
    assert shown == [["300", "of", "1,000"], ["500", "of", "1,000"], ["800", "of", "1,000"], ["1,000", "of", "1,000"]]


async def test_old_rows_are_upgraded(db: Database) -> None:
    """A row of version 1 reads as it was loaded, whatever became of the flight; saved, it is stored as version 2."""
    done = await upgrade_old_rows(db)

    assert [one.read.outcome for one in done] == list(Outcome)
    for one in done:
        assert one.read == one.loaded
        assert (one.stored_before, one.stored_after) == ("Flight", "Flight:2")
        assert await db.get(one.loaded.key) == one.loaded


# The demo, as a user starts it


def test_demo_loads_and_answers(tmp_path: Path) -> None:
    """It loads the month into a new file, and prints each answer and its cost; stderr has the progress alone."""
    command = [sys.executable, "-W", "default", str(DEMO), f"local:{tmp_path / 'flights.tables'}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)

    assert done.returncode == 0, done.stderr
    _, loaded, answers = done.stdout.split("\n", 2)
    assert loaded.startswith("loaded 34,026 rows of 2013-01 in ")
    assert re.sub(r", [\d.,]+ ms$", "", answers, flags=re.MULTILINE) == ANSWERS.read_text(encoding="utf-8")
    assert all(line.startswith("  [") and line.endswith("rows/s") for line in done.stderr.splitlines())


def test_demo_without_arguments(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Without arguments it takes the month, and a temporary file that is gone in the end."""
    taken: list[tuple[str, bool, str]] = []

    async def note(url: str, source: Source, tasks: int) -> None:
        async with connect(url) as db:
            await db.create_tables(Load)
        existed = Path(url.removeprefix("local:")).exists()  # noqa: ASYNC240 - a test may look at its files
        taken.append((url, existed, f"{source.name} by {tasks} tasks"))

    monkeypatch.setattr(demo, "run", note)
    monkeypatch.setattr(sys, "argv", [str(DEMO)])
    status = demo.main()
    ((url, existed, what),) = taken

    assert (status, existed, what) == (0, True, "2013-01 by 4 tasks")
    assert not Path(url.removeprefix("local:")).parent.exists()
    assert capsys.readouterr() == (f"database: {url}\n", "")


def test_demo_tells_what_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A database that cannot be opened is one line on stderr, not a traceback."""
    monkeypatch.setattr(sys, "argv", [str(DEMO), f"local:{tmp_path / 'missing' / 'flights.tables'}"])

    assert demo.main() == 1
    errors = capsys.readouterr().err
    assert errors.startswith("demo: ") and errors.count("\n") == 1
