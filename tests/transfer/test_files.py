"""
`export_rows` and `import_rows`: rows come back from files exactly, and a bad file writes nothing.
"""

import datetime as dt
import enum
import io
import json
import stat
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tableorm import (
    AccessDenied,
    Database,
    Entity,
    InvalidInput,
    Mapped,
    ModelError,
    NotSupported,
    PropertyBag,
    Series,
    TableNotFound,
    connect,
    field,
    series,
)
from tableorm.queries.arrow import load_pyarrow
from tableorm.stores import Row
from tests.azurite import Azurite
from tests.commandline import run_command
from tests.databases import database_fixture
from tests.transfer.rows import TABLE, content_of, fill, make_rows, row_lists

pa: Any = pytest.importorskip("pyarrow")
pq: Any = pytest.importorskip("pyarrow.parquet")
FORMATS = ["jsonl", "csv", "parquet"]

db = database_fixture()


def files_in(folder: Path) -> list[Path]:
    return [*folder.iterdir()]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(row_lists, st.sampled_from(FORMATS), st.booleans())
async def test_there_and_back(tmp_path: Path, rows: list[Row], form: str, system: bool) -> None:
    """Every row that is exported is imported as it was, with each type, in each format."""
    path = tmp_path / f"rows.{form}"
    async with connect("local::memory:") as db:
        await fill(db.store, rows)
        report = await db.export_rows(TABLE, path, system=system, overwrite=True)
        assert (report.entities, report.written) == (len(rows), len(rows))
        assert (await db.import_rows(path, TABLE)).equal == len(rows)
        assert (await db.import_rows(path, "Again")).written == len(rows)

        before, after = await content_of(db), await content_of(db, "Again")
        if form == "jsonl":
            assert after == before
        else:  # the order of properties is that of columns
            assert [*map(_sort, after)] == [*map(_sort, before)]


def _sort(line: str) -> str:
    return json.dumps(json.loads(line), sort_keys=True)


async def test_types_stand_before_their_values(tmp_path: Path, db: Database) -> None:
    """However a row has come about, its line has each type directly before the value, as the service sends it."""
    path = tmp_path / "rows.jsonl"
    await db.create_tables(TABLE)
    await db.insert(
        PropertyBag(TABLE, "p", "r", {"n": 1, "s": "x", "m": 2, "at": dt.datetime(2026, 1, 1, tzinfo=dt.UTC)})
    )
    await db.merge(PropertyBag(TABLE, "p", "r", {"n": 3, "k": 4}), if_match="*")
    await db.merge(PropertyBag(TABLE, "p", "r", {"m": "text"}), if_match="*")
    await db.export_rows(TABLE, path)

    assert path.read_text(encoding="utf-8") == (
        '{"PartitionKey":"p","RowKey":"r","n@odata.type":"Edm.Int64","n":"3","s":"x","m":"text",'
        '"at@odata.type":"Edm.DateTime","at":"2026-01-01T00:00:00.0000000Z","k@odata.type":"Edm.Int64","k":"4"}\n'
    )


def test_without_pyarrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the extra to install."""
    monkeypatch.setitem(sys.modules, "pyarrow", None)

    with pytest.raises(NotSupported, match=r"^Parquet needs pyarrow: install tableorm with its extra 'arrow'$"):
        load_pyarrow("Parquet")


@pytest.mark.parametrize("form", FORMATS)
async def test_many_rows(form: str, db: Database) -> None:
    """More rows than a page, a chunk and a transaction have, through an open file that cannot be read twice."""
    rows = make_rows(2_345, text="x" * 90)
    await fill(db.store, rows)
    file = io.BytesIO()
    await db.export_rows(TABLE, file, format=form, where="n lt 2000")  # type: ignore[arg-type]
    file.seek(0)
    shares: list[float] = []
    pipe = io.BufferedReader(Unseekable(file.read()))
    report = await db.import_rows(
        pipe,
        "Again",
        format=form,  # type: ignore[arg-type]
        on_progress=lambda report: shares.append(report.share),
    )

    assert (report.entities, report.written, len(await content_of(db, "Again"))) == (2_000, 2_000, 2_000)
    assert (report.share, max(shares) <= 1.0) == (1.0, True)


class Unseekable(io.RawIOBase):
    """A pipe."""

    def __init__(self, data: bytes) -> None:
        self._file = io.BytesIO(data)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self._file.readinto(buffer)


async def test_half_of_a_surrogate_pair(azurite: Azurite, tmp_path: Path) -> None:
    """Text that has no form in UTF-8 comes back from JSON Lines as the service has it; other formats refuse it."""
    rows: list[Row] = [{"PartitionKey": "p", "RowKey": str(number), "text": f"a\ud83d{number}"} for number in range(3)]
    async with connect(azurite.connection_string) as db:
        await fill(db.store, rows)
        await db.export_rows(TABLE, tmp_path / "rows.jsonl")
        assert (await db.import_rows(tmp_path / "rows.jsonl", "Again")).complete
        assert await content_of(db, "Again") == await content_of(db)
        for form in FORMATS[1:]:
            with pytest.raises(NotSupported, match=r"\('p', '0'\).*export JSON Lines"):
                await db.export_rows(TABLE, tmp_path / f"rows.{form}")
        await db.drop_table(TABLE)
        await db.drop_table("Again")


BAD: dict[str, tuple[str, str]] = {
    '{"PartitionKey":"p","RowKey":"r","n":3000000000}': ("('p', 'r').n: 3000000000", "jsonl"),
    '{"PartitionKey":"p","RowKey":"a/b"}': ("('p', 'a/b').RowKey: 'a/b'", "jsonl"),
    '{"PartitionKey":"p"}': ("line 1501: ['PartitionKey'] are there, but no RowKey", "jsonl"),
    '{"PartitionKey":"p","RowKey":"r","a":[1]}': ("is not a row", "jsonl"),
    '["PartitionKey"]': ("is not a row", "jsonl"),
    '{"PartitionKey":"p"': ("is not a row", "jsonl"),
    "PartitionKey,RowKey,n,n@type\np,r,5.5,Edm.Int32": ("('p', 'r').n: '5.5' is not of the type 'Edm.Int32'", "csv"),
    "PartitionKey,RowKey,n,n@type\np,r,5,": ("('p', 'r').n: '5' is not of the type ''", "csv"),
    "PartitionKey,RowKey,n\np,r": ("are not 3 cells", "csv"),
    "PartitionKey,RowKey,n,n\np,r,1,2": ("'n' is the name of several columns", "csv"),
    'PartitionKey,RowKey\np,"r': ("is not CSV", "csv"),
    "Key\np": ("line 2: ['Key'] are there, but no PartitionKey and no RowKey", "csv"),
}


@pytest.mark.parametrize("line", BAD)
async def test_a_bad_line(tmp_path: Path, line: str, db: Database) -> None:
    """It is told by file, line, keys and property; and no row of the file is written, not even those before it."""
    problem, form = BAD[line]
    good = [json.dumps(row) for row in make_rows(1_500)] if form == "jsonl" else []
    path = tmp_path / f"rows.{form}"
    path.write_text("\n".join([*good, line]))
    with pytest.raises(InvalidInput) as caught:
        await db.import_rows(path, TABLE)

    assert problem in str(caught.value)
    assert f"{path}, line {len(good) + line.count(chr(10)) + 1 - line.count('n,n' + chr(10))}" in str(caught.value)
    assert await db.tables() == []


async def test_what_storage_explorer_writes(tmp_path: Path, db: Database) -> None:
    """Types without Edm, a mark at the beginning, and a Timestamp, which is the table's own. Untyped cells are text."""
    path = tmp_path / "explorer.csv"
    path.write_text(
        '\ufeffPartitionKey,RowKey,Timestamp,Age,Age@type,Ok,Ok@type,Note\r\np,r,2020-01-01T00:00:00Z,5,Int32,True,Boolean,"a\r\nb"\r\np,s,,,,,,\r\n',
        newline="",
    )
    await db.import_rows(path, TABLE)
    assert [json.loads(row) for row in await content_of(db)] == [
        {"PartitionKey": "p", "RowKey": "r", "Age": 5, "Ok": True, "Note": "a\r\nb"},
        {"PartitionKey": "p", "RowKey": "s"},
    ]


async def test_parquet_for_others(tmp_path: Path, db: Database) -> None:
    """Columns have types, also for a property that has two; a file of another program is read by its types."""
    rows: list[Row] = [
        {
            "PartitionKey": "p",
            "RowKey": "1",
            "a": 5,
            "at": "2024-02-29T12:00:00.1234560Z",
            "at@odata.type": "Edm.DateTime",
        },
        {"PartitionKey": "p", "RowKey": "2", "a": "x", "n": "7", "n@odata.type": "Edm.Int64"},
    ]
    await fill(db.store, rows)
    await db.export_rows(TABLE, tmp_path / "rows.parquet")
    table = pq.read_table(tmp_path / "rows.parquet")
    assert dict(zip(table.schema.names, map(str, table.schema.types), strict=True)) == {
        "PartitionKey": "string",
        "RowKey": "string",
        "a@Edm.Int32": "int32",
        "at": "timestamp[us, tz=UTC]",
        "a@Edm.String": "string",
        "n": "int64",
    }
    moment = dt.datetime(2024, 2, 29, tzinfo=dt.UTC)
    made = pa.table({"PartitionKey": ["p"], "RowKey": ["3"], "n": [7], "x": [1.5], "at": [moment], "b": [b"\0"]})
    pq.write_table(made, tmp_path / "other.parquet")
    await db.import_rows(tmp_path / "other.parquet", "Other")
    bag = await db.get(PropertyBag.key("Other", "p", "3"))
    assert dict(bag) == {"n": 7, "x": 1.5, "at": moment, "b": b"\0"}


async def test_files_appear_whole(tmp_path: Path, db: Database) -> None:
    """A file has its name when all of it is written; none is overwritten unless that is said, and none is left over."""
    path = tmp_path / "rows.jsonl"
    await fill(db.store, make_rows(2_000))

    def stop(_: object) -> None:
        assert not path.exists()
        raise InterruptedError

    with pytest.raises(InterruptedError):
        await db.export_rows(TABLE, path, on_progress=stop)
    assert files_in(tmp_path) == []
    await db.export_rows(TABLE, path, where="n lt 3")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(FileExistsError):
        await db.export_rows(TABLE, path)
    assert len(path.read_text().splitlines()) == 3
    assert (await db.export_rows(TABLE, path, overwrite=True)).written == 2_000
    assert len(path.read_text().splitlines()) == 2_000


async def test_what_is_refused(tmp_path: Path, db: Database) -> None:
    """A format that is none, a table that is not there, a scope."""
    await fill(db.store, [])
    with pytest.raises(ModelError, match="doesn't show its format"):
        await db.export_rows(TABLE, tmp_path / "rows.xlsx")
    with pytest.raises(TableNotFound):
        await db.export_rows("Nothing", tmp_path / "rows.csv")
    with pytest.raises(FileNotFoundError):
        await db.import_rows(tmp_path / "rows.csv", TABLE)
    with pytest.raises(AccessDenied, match="import_rows"):
        await db.scope(Reading, sensor="s").import_rows(tmp_path / "rows.csv", TABLE)
    assert files_in(tmp_path) == []


def test_commands(tmp_path: Path) -> None:
    """Rows on stdout have the report on stderr; rows of stdin are imported, and the same ones again are equal."""
    url = f"local:{tmp_path}/rows.tables"
    source = tmp_path / "in.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in make_rows(5)))
    assert run_command("import", url, TABLE, str(source)).stdout.startswith("5 rows read, 5 written, in")
    exported = run_command("export", url, TABLE, "-", "--where", "n ge 3")
    assert [json.loads(line)["n"] for line in exported.stdout.splitlines()] == [3, 4]
    assert exported.stderr.startswith("2 rows read, 2 written")
    again = run_command("import", url, TABLE, str(source), "--json", "--if-exists", "skip")
    assert (again.returncode, json.loads(again.stdout)["equal"]) == (0, 5)
    source.write_text('{"PartitionKey": "p1", "RowKey": "000001", "n": 7}\n')
    different = run_command("import", url, TABLE, str(source))
    assert (different.returncode, "with other content: n" in different.stdout) == (1, True)


# Entities as record batches


class Color(enum.Enum):
    RED = "red"


class Reading(Entity, table="ArrowReadings", partition_key="{sensor}", row_key="{at:ticks_desc}"):
    sensor: Mapped[str]
    at: Mapped[dt.datetime]
    value: Mapped[float | None] = field(default=None)
    count: Mapped[int] = field(default=0)
    day: Mapped[dt.date] = field(default=dt.date(2026, 1, 1))
    price: Mapped[Decimal] = field(default=Decimal("1.50"))
    color: Mapped[Color] = field(default=Color.RED)
    ident: Mapped[UUID] = field(default=UUID(int=5))
    raw: Mapped[bytes] = field(default=b"\0")
    tags: Mapped[list[str]] = field(factory=list[str])
    hours: Series[float] = series(length=3, default=0.0)


async def test_entities_as_record_batches(db: Database) -> None:
    """Each field is a column with the values of the entities; `only` leaves the others out; nothing is a batch too."""
    await db.create_tables(Reading)
    query = db.select(Reading).where(Reading.sensor == "s")
    (empty,) = [batch async for batch in query.arrow()]
    assert (empty.num_rows, empty.schema.names) == (0, [*Reading.__annotations__])
    noon = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)
    for number in range(5):
        at = noon - dt.timedelta(hours=number)
        await db.insert(Reading(sensor="s", at=at, value=number / 2, tags=["x"], hours=[1.0, 2.0, 3.0]))

    batches = [batch async for batch in query.arrow(size=2)]
    only = pa.Table.from_batches([batch async for batch in query.only(Reading.value).arrow()])

    assert [batch.num_rows for batch in batches] == [2, 2, 1]
    assert batches[0].to_pylist()[1] == {
        "sensor": "s",
        "at": noon - dt.timedelta(hours=1),
        "value": 0.5,
        "count": 0,
        "day": dt.date(2026, 1, 1),
        "price": "1.50",
        "color": "red",
        "ident": str(UUID(int=5)),
        "raw": b"\0",
        "tags": '["x"]',
        "hours": [1.0, 2.0, 3.0],
    }
    assert only.column_names == ["sensor", "at", "value"]
    with pytest.raises(ModelError, match="bags"):
        db.select(Reading, PropertyBag).arrow()
