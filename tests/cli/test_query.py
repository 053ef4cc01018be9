"""
`tableorm query`, `get` and `show`: which rows they print, in which forms, and what they refuse to read.
"""

import argparse
import contextlib
import csv
import datetime as dt
import io
import json
import os
import re
import sys
import unicodedata
from collections.abc import AsyncIterator
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tableorm import EncodeError, Entity, Expression, Index, Key, Mapped, ModelError, Timestamp, field
from tableorm.cli import main
from tableorm.cli.conditions import parse_where
from tableorm.cli.output import report
from tableorm.cli.tabular import print_rows, print_table
from tests.commandline import insert_all, posix_only, show_on_terminal
from tests.commandline import run_command as tableorm


class Sailor(Entity, table="Crew", partition_key="{ship}", row_key="sailor_{id:04d}"):
    ship: Mapped[str]
    id: Mapped[int]
    name: Mapped[str]
    age: Mapped[int]
    pay: Mapped[Decimal]
    born: Mapped[dt.date | None]
    aboard: Mapped[bool]
    by_name = Index(row_key="name_{name}_{id:04d}")


class Port(Entity, table="Ports", partition_key="{country}", row_key="{name}"):
    country: Mapped[str]
    name: Mapped[str]
    note: Mapped[str]


MODEL = f"{__name__}:Sailor"
CREW = [
    Sailor(
        ship="Argo" if number % 2 else "北",
        id=number,
        name=f"Jürgen {number}",
        age=20 + number % 30,
        pay=Decimal(number) / 4,
        born=None if number % 3 else dt.date(1990, 1, 1 + number % 28),
        aboard=number % 5 > 0,
    )
    for number in range(250)
]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A database with two partitions of sailors."""
    url = f"local:{tmp_path_factory.mktemp('query') / 'crew.tables'}"
    ports = [Port(country="France", name=f"Saint-Jean-de-{name}", note="x" * 30) for name in ("Losse", "Moirans")]
    insert_all(url, *CREW, *ports)
    return url


def ids(*arguments: str) -> list[int]:
    done = tableorm("query", *arguments, "--json")
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith(f"tableorm: {done.stdout.count(chr(10))} row")
    return [json.loads(line)["id"] for line in done.stdout.splitlines()]


def test_entities_of_a_model(url: str) -> None:
    """A condition is typed by the fields; the query is what `db.select` makes of it."""
    where = "ship == 'Argo' and (age > 47 or born < '1990-01-04') and not aboard == false and 5 <= id < 200"

    found = ids(url, MODEL, "--where", where)

    assert found == [
        each.id
        for each in CREW
        if each.ship == "Argo"
        and (each.age > 47 or (each.born is not None and each.born < dt.date(1990, 1, 4)))
        and each.aboard
        and 5 <= each.id < 200
    ]
    assert ids(url, MODEL, "--where", where, "--top", "2") == found[:2]


def test_rows_of_a_table(url: str) -> None:
    """Of a table it prints rows, whatever they are, by a filter in OData; `--only` chooses their properties."""
    where = "PartitionKey eq 'Argo' and RowKey ge 'sailor_' and age gt 47"
    done = tableorm("query", url, "Crew", "--where", where, "--only", "RowKey,age", "--json")

    wanted = [{"RowKey": f"sailor_{each.id:04d}", "age": each.age} for each in CREW if each.id % 2 and each.age > 47]
    assert [json.loads(line) for line in done.stdout.splitlines()] == wanted


@pytest.mark.parametrize("target", ["Crew", MODEL])
def test_a_table_is_not_read_by_accident(url: str, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading a whole table has to be allowed; its first rows may be read, and a plan tells without reading."""
    monkeypatch.setenv("COLUMNS", "120")
    where = "age eq 30" if target == "Crew" else "age == 30"
    for refused in ([], ["--where", where], ["--where", where, "--top", "3"]):
        done = tableorm("query", url, target, *refused)
        assert (done.returncode, done.stdout) == (1, "")
        assert "--all" in done.stderr and "allow_scan" not in done.stderr and done.stderr.count("\n") == 1
        assert "refused without --all" in tableorm("query", url, target, *refused, "--explain").stdout

    # Entities of a model may be behind many rows of others.
    assert tableorm("query", url, target, "--top", "3").stdout.count("\n") == (4 if target == "Crew" else 0)
    assert tableorm("query", url, target, "--where", where, "--all").returncode == 0
    plan = json.loads(tableorm("query", url, target, "--where", where, "--all", "--explain", "--json").stdout)
    assert (plan["access"], plan["refused"]) == ("table scan", False)


@pytest.mark.parametrize(
    ("odata", "python"),
    [
        ("ship eq 'Argo' and (age gt 47 or id le 5L)", "ship == 'Argo' and (age > 47 or id <= 5)"),
        ("ship eq 'Argo' and not (name eq 'it''s an eq 1')", "ship == 'Argo' and not name == \"it's an eq 1\""),
        ("PartitionKey eq 'Argo' and aboard eq true and pay ge '5'", "ship == 'Argo' and aboard == True and pay >= 5"),
        ("ship eq 'Argo' and Timestamp lt datetime'2000-01-01T00:00:00Z'", "ship == 'Argo' and id < 0"),
    ],
)
def test_odata_with_a_model(url: str, odata: str, python: str) -> None:
    """A condition that is not Python's is read as OData, on the same fields; a plan says as what it was read."""
    assert ids(url, MODEL, "--where", odata) == ids(url, MODEL, "--where", python)
    for where, language in ((odata, "OData"), (python, "Python")):
        plan = tableorm("query", url, MODEL, "--where", where, "--explain")
        assert f"  --where: read as {language}\n" in plan.stdout
        assert (
            json.loads(tableorm("query", url, MODEL, "--where", where, "--explain", "--json").stdout)["where"]
            == language
        )


class Task(Entity, table="Tasks", partition_key="{ship}", row_key="task_{number}"):
    ship: Mapped[str]
    number: Mapped[int]
    by: Mapped[Key[Sailor] | None]
    tags: Mapped[list[str]]
    days: Mapped[list[dt.date]]
    paid: Mapped[dt.datetime] = field(name="PayDay")


@pytest.mark.parametrize(
    ("target", "conditions"),
    [
        ("Crew", ["PartitionKey eq 'Argo' or PartitionKey eq '北'", "age gt 47 and RowKey ge 'sailor_'"]),
        (MODEL, ["ship == 'Argo' or ship == '北'", "age gt 47"]),
    ],
)
def test_options_that_add_up(url: str, target: str, conditions: list[str]) -> None:
    """All of several conditions hold, each in its own language, and several lists of fields are one."""
    given = [text for each in conditions for text in ("--where", each)]
    done = tableorm("query", url, target, *given, "--only", "name", "--only", "age", "--json", "--all")
    plan = json.loads(tableorm("query", url, target, *given, "--explain", "--json", "--all").stdout)

    found = sorted((json.loads(line) for line in done.stdout.splitlines()), key=lambda row: int(row["name"][7:]))
    assert found == [{"name": each.name, "age": each.age} for each in CREW if each.age > 47]
    assert plan["where"] == ("OData" if target == "Crew" else "OData and Python")


def test_odata_has_the_names_of_properties() -> None:
    """It may name the property in which a field is stored."""
    assert str(parse_where("PayDay gt datetime'2026-01-01T00:00:00Z'", Task)) == str(
        Task.paid > dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    )


def test_csv(url: str) -> None:
    """CSV has a header and all rows, more than are laid out together."""
    done = tableorm("query", url, MODEL, "--all", "--csv", "--only", "id,name,born")

    header, *rows = csv.reader(io.StringIO(done.stdout))
    assert header == ["id", "name", "born"]
    by_key = sorted(CREW, key=lambda each: (each.ship, each.id))
    assert rows == [[str(each.id), each.name, each.born.isoformat() if each.born else ""] for each in by_key]


@pytest.mark.parametrize(
    ("target", "only", "header"),
    [(MODEL, [], "ship,id,name,age,pay,born,aboard\n"), (MODEL, ["--only", "id"], "id\n"), ("Crew", [], "")],
)
def test_csv_without_rows(url: str, target: str, only: list[str], header: str) -> None:
    """It has the header if the columns are known."""
    done = tableorm("query", url, target, "--where", "PartitionKey eq 'none'", "--csv", *only)

    assert (done.returncode, done.stdout) == (0, header)


def test_one_entity(url: str) -> None:
    """`get` takes the fields of the key as text, and prints one entity."""
    found = tableorm("get", url, MODEL, "ship=Argo", "id=7", "--json")
    row = tableorm("get", url, "Crew", "PartitionKey=Argo", "RowKey=sailor_0007")

    assert json.loads(found.stdout)["pay"] == "1.75"
    assert "name          Jürgen 7\n" in row.stdout


def test_show_by_models(url: str) -> None:
    """With models `show` prints entities by their fields, and all other rows as they are."""
    shown = [
        json.loads(line) for line in tableorm("show", url, "Crew", MODEL, "--partition", "Argo").stdout.splitlines()
    ]

    assert len(shown) == 250
    assert [each["id"] for each in shown if each.get("model") == "Sailor"] == [each.id for each in CREW if each.id % 2]
    assert {each["EntityType"] for each in shown if "model" not in each} == {"Sailor#by_name"}


VALUES: dict[str, st.SearchStrategy[Any]] = {
    "id": st.integers(-(2**31), 2**31),
    "name": st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=5),
    "aboard": st.booleans(),
    "born": st.dates(dt.date(1900, 1, 1)),
}
SIGNS = {"==": "__eq__", "!=": "__ne__", "<": "__lt__", "<=": "__le__", ">": "__gt__", ">=": "__ge__"}


@st.composite
def comparisons(draw: st.DrawFn) -> tuple[str, Expression]:
    name, sign = draw(st.sampled_from([*VALUES])), draw(st.sampled_from([*SIGNS]))
    value = draw(VALUES[name])
    field: Any = getattr(Sailor, name)
    written = repr(value.isoformat() if isinstance(value, dt.date) else value)
    if draw(st.booleans()):
        return f"{name} {sign} {written}", getattr(field, SIGNS[sign])(value)
    others: list[tuple[str, Expression]] = [
        (f"{name} in [{written}, {written}]", field.in_([value, value])),
        (f"{name} not in ({written},)", ~field.in_([value])),
        (f"{name} is None", field.is_none()),
        (f"{name} is not None", ~field.is_none()),
    ]
    return draw(st.sampled_from(others))


def combine(inner: st.SearchStrategy[tuple[str, Expression]]) -> st.SearchStrategy[tuple[str, Expression]]:
    two = st.tuples(inner, inner)
    return st.one_of(
        two.map(lambda each: (f"({each[0][0]}) and ({each[1][0]})", each[0][1] & each[1][1])),
        two.map(lambda each: (f"({each[0][0]}) or ({each[1][0]})", each[0][1] | each[1][1])),
        inner.map(lambda each: (f"not ({each[0]})", ~each[1])),
    )


@given(st.recursive(comparisons(), combine, max_leaves=6))
def test_conditions(case: tuple[str, Expression]) -> None:
    """A text is read as the condition that the same operators make in Python."""
    text, condition = case

    assert str(parse_where(text, Sailor)) == str(condition)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("age > 'x'", "the value"),
        ("age", "is not understood; compare fields with values"),
        ("age < None", "cannot compare Sailor.age with None"),
        ("age > pay", "'pay' is not understood"),
        ("__import__('os').system('ls')", "is not understood"),
        ("[x for x in age] == 3", "is not understood"),
        ("age in {1: 2}", "is not understood"),
        ("age.real == 3", "has no field 'age.real'"),
        ("name == f'{age}'", "is not understood"),
        ("name == {[1]: 2}", "is not understood"),
        ("(" * 500 + "age" + ")" * 500, "--where"),
        ("not " * 20_000 + "age == 3", "--where is rejected"),
    ],
)
def test_what_is_no_condition(text: str, problem: str) -> None:
    """It is rejected by the part that is not understood; nothing of it is run."""
    with pytest.raises((ModelError, ValueError)) as refused:
        parse_where(text, Sailor)
    assert problem in str(refused.value)


def test_lists_and_links_in_conditions() -> None:
    """Lists are asked for an element, which is of the type of their elements, and links by their halves."""
    day = dt.date(2026, 1, 1)
    assert str(parse_where("tags.contains('wet')", Task)) == str(Task.tags.contains("wet"))
    assert str(parse_where("'wet' in tags", Task)) == str(Task.tags.contains("wet"))
    assert str(parse_where("'wet' not in tags", Task)) == str(~Task.tags.contains("wet"))
    assert str(parse_where("not days.contains('2026-01-01')", Task)) == str(~Task.days.contains(day))
    where = parse_where("by.partition_key == 'Argo' and ship == 'Argo'", Task)
    assert str(where) == "(Task.by.partition_key == 'Argo') & (Task.ship == 'Argo')"
    for text in ("tags.contains(5)", "tags.startswith('wet')", "ship.contains('A')", "'A' in ship"):
        with pytest.raises((ModelError, EncodeError), match="is rejected"):
            parse_where(text, Task)


def test_system_properties_in_conditions() -> None:
    """Keys and Timestamp are compared as they are stored."""
    moment = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    assert str(parse_where("Timestamp >= '2026-01-01T00:00:00Z'", Sailor)) == str(Timestamp >= moment)
    with pytest.raises(ModelError, match="'2026-01-01' is rejected: write a time as in '2026-01-31T12:00:00Z'"):
        parse_where("Timestamp >= '2026-01-01'", Sailor)


CELLS = st.one_of(
    st.none(), st.integers(), st.booleans(), st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
)


JOINED = re.compile("[\u1160-\u11ff\u3164\ud7b0-\ud7fb\uffa0\U0001f3fb-\U0001f3ff]")
"""Parts of Korean syllables, fillers and tones of skin, which take no column of their own."""


def columns_of(char: str) -> int:
    """Return how many columns of a terminal a character takes; marks are shown above others."""
    if unicodedata.category(char).startswith("M") or JOINED.match(char):
        return 0
    return 1 + (unicodedata.east_asian_width(char) in "WF")


@given(st.lists(st.lists(CELLS, min_size=3, max_size=3), min_size=1, max_size=4), st.integers(22, 120))
def test_tables_fit(rows: list[list[object]], width: int) -> None:
    """No line is wider than the terminal, in which a wide character takes two columns; what fits is shown in full."""
    os.environ["COLUMNS"] = str(width)
    try:
        names = ["one", "two", "th\u202eree"]
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            print_table([dict(zip(names, row, strict=True)) for row in rows], names)
    finally:
        del os.environ["COLUMNS"]

    lines = printed.getvalue().splitlines()
    assert len(lines) == len(rows) + 1
    for line in lines:
        assert line.isprintable()
        assert sum(map(columns_of, line)) <= width


@given(st.lists(st.text("ab北", max_size=10), min_size=2, max_size=6, unique=True), st.integers(12, 60))
def test_keys_stay_distinct(keys: list[str], width: int) -> None:
    """Keys are not cut so that two of them become equal; if they don't fit, each value gets a line."""
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(io.StringIO()) as printed:
        patch.setenv("COLUMNS", str(width))
        print_table([{"key": key} for key in keys], ["key"], ["key"])

    lines = printed.getvalue().removesuffix("\n").split("\n")
    if max(map(len, lines)) <= width and len(lines) == len(keys) + 1:
        assert len({*lines}) == len(lines)
    else:
        assert lines == [line for key in keys for line in (f"key  {key}".rstrip(), "")]


async def test_tables_behind_lists_have_a_header(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Keys that are alike for long keep no other rows out of a table; rows behind a list have a header again."""
    monkeypatch.setenv("COLUMNS", "40")
    print_table([{"RowKey": "k" * 60 + end, "note": "x" * 60} for end in "ab"], ["RowKey", "note"], ["RowKey"])
    assert capsys.readouterr().out.count("\n") == 3

    async def rows() -> AsyncIterator[dict[str, str]]:
        for number in range(101):
            yield {"RowKey": "k" * 19 + f"{number:03}", "a": "x" * 9, "b": "x" * 9, "c": "x" * 9}

    await print_rows(argparse.Namespace(json=False, csv=False), rows(), (), ["RowKey"])
    lines = capsys.readouterr().out.splitlines()
    assert (lines[0], lines[1], lines[4]) == ("RowKey  " + "k" * 19 + "000", "a       xxxxxxxxx", "")
    assert lines[500].split() == ["RowKey", "a", "b", "c"]


@pytest.mark.parametrize(("target", "key"), [("Ports", "RowKey"), (f"{__name__}:Port", "name")])
def test_keys_have_room_first(url: str, target: str, key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other columns are cut before rows of a table, or entities of a model, have keys that look alike."""
    monkeypatch.setenv("COLUMNS", "26")
    done = tableorm("query", url, target, "--only", f"note,{key}", "--all")

    rows = done.stdout.splitlines()[1:]
    assert rows == ["xxxxxx…  Saint-Jean-de-Lo…", "xxxxxx…  Saint-Jean-de-Mo…"]
    monkeypatch.setenv("COLUMNS", "24")
    assert (
        f"\n{key:<4}  Saint-Jean-de-Moirans\n"
        in tableorm("query", url, target, "--only", f"note,{key}", "--all").stdout
    )


def test_long_values_are_cut_at_once(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A value as long as a property may be is cut in one go."""
    monkeypatch.setenv("COLUMNS", "40")
    print_table([{"name": "é" * 32_000}], ["name"])
    assert capsys.readouterr().out == "name\n" + "é" * 39 + "…\n"


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        (["get", MODEL, "ship=Argo", "id=7"], "\nname    Jürgen 7\nage     27\n"),
        (["query", MODEL, "--where", "ship == 'Argo'", "--top", "3"], "\nname    Jürgen 5\nage     25\n"),
        (["audit", MODEL], "250 entities and 250\n      derived"),
    ],
)
def test_narrow_terminals(
    url: str, command: list[str], shown: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A line for each value, and the last line of an audit, are wrapped."""
    monkeypatch.setenv("COLUMNS", "20")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    status = main([command[0], url, *command[1:]])
    text = capsys.readouterr().out

    assert status == 0
    assert shown in text
    assert max(map(len, text.splitlines())) <= 20


@pytest.mark.parametrize("width", [19, 80])
def test_values_are_not_markup(width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A terminal shows what a value or a name holds, and neither a style nor an emoji that it names."""
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("NO_COLOR", "1")
    for stream in (sys.stdout, sys.stderr):
        monkeypatch.setattr(stream, "isatty", lambda: True)
    print_table([{"[red]one": "[b]a[/]", "two": ":smile:", "3": 1, "4": 2}], ["[red]one", "two", "3", "4"])
    report("[bold]:smile: [/]")
    shown = capsys.readouterr()

    assert shown.err == "tableorm: [bold]:smile: [/]\n"
    if width == 80:
        assert shown.out == "[red]one  two      3  4\n[b]a[/]   :smile:  1  2\n"
    else:
        assert shown.out == "[red]one  [b]a[/]\ntwo       :smile:\n3         1\n4         2\n\n"


@posix_only
@pytest.mark.one_of(2)
@pytest.mark.parametrize("plain", [False, True])
def test_colours(url: str, plain: bool) -> None:
    """A terminal gets a bold header, unless NO_COLOR is set, and no line that is wider than it."""
    command = "query", url, MODEL, "--all", "--top", "2", "--only", "ship,name,age,born,pay"
    header, *rows = show_on_terminal(40, *command, NO_COLOR="1" if plain else "").splitlines()

    assert header.startswith("\x1b[1m") is not plain
    assert all(0 < len(row) <= 40 for row in rows)
