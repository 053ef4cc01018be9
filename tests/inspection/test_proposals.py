"""
What `inspect` says of rows that no layout explains: kinds, types, samples, and what it leaves alone.
"""

import asyncio
import datetime as dt
import gc
import json
import re
from pathlib import Path

import pytest

from tableorm import Entity, Feed, Index, Mapped, ModelError, TableNotFound
from tableorm.advice import inspect_table
from tableorm.inspection import propose
from tableorm.keys.format import Format
from tableorm.keys.formats import make_format
from tableorm.models.periods import is_of_period
from tableorm.protocol.codes import Code, Fault
from tableorm.protocol.edm import ANNOTATION
from tableorm.stores import Row, StoreRequest
from tests.commandline import run_command
from tests.databases import memory_database
from tests.faults import before_requests
from tests.inspection.layouts import Long, fill, make_row
from tests.rows import insert_row


def proposed(rows: list[Row], table: str = "ForeignThings", *others: str) -> str:
    """Return the module that is proposed for a table, whose only model reads all of its rows exactly."""
    proposal = propose(table, rows, tables=[table, *others])
    assert [(model.rows, model.exact) for model in proposal.models] == [(len(rows), len(rows))]
    return proposal.text


class Person(Entity, table="InspectedPeople", partition_key="{town}", row_key="person_{id:03d}"):
    town: Mapped[str]
    id: Mapped[int]
    email: Mapped[str]

    by_email = Index(row_key="email_{email}", unique=True)


def test_rows_that_are_not_read_exactly(tmp_path: Path) -> None:
    """Rows of a kind in a version are not those of the kind: each is an example, with the reason; the status is 1."""
    url = f"local:{tmp_path / 'odd.tables'}"
    rows = [make_row("p", f"{number:03d}", EntityType="Order" if number < 20 else "Order:2") for number in range(30)]
    asyncio.run(fill(url, "ForeignOrders", rows))

    done = run_command("inspect", url, "ForeignOrders")

    assert done.returncode == 1
    assert "Order: 20 of 20 rows read exactly" in done.stderr
    assert "0 of 10 rows read exactly\n  ('p', '020'): " in done.stderr
    assert "#   ('p', '020'): " in done.stdout

    shown = json.loads(run_command("inspect", url, "ForeignOrders", "--json").stdout)
    assert shown["module"] == done.stdout
    assert shown["models"] == re.findall(r"^class (\w+)\(", done.stdout, re.MULTILINE)


def test_properties_without_a_field() -> None:
    """The module says why a property has no field: its types, or its name. Of numbers the wider type is taken."""
    rows = [
        make_row("p", f"{n:03d}", a="x" if n % 2 else 1.5, n=Long(n) if n % 2 else n, d=0.5 if n % 2 else n, _ix="{}")
        for n in range(10)
    ]

    text = proposed(rows)

    assert "# No field has the property 'a', which is Edm.Double in 5, Edm.String in 5 rows." in text
    assert "# No field has the property '_ix', which has a name that no field can have." in text
    assert "    n: Mapped[int] = field(stored=True)\n    d: Mapped[float]\n" in text


def test_broken_values_and_names() -> None:
    """What is stored in names and values of rows is text in the module, never code."""
    name, key = "x\u0027\u0022\u2028import os", "\u0022\u0022\u0022{}{{é\u2028"
    rows = [
        make_row(key, f"{key}{n}", **{name: "x"}) | {"Odd": "?", f"Odd{ANNOTATION}": "Edm.Nothing"} for n in range(3)
    ]

    proposed(rows)  # which imports the module


@pytest.mark.parametrize("kind", ["None", "true", "1²", "\uff21bc", "\uff25ntity", "\U00010107", "\u01f0\u0390"])
def test_names_are_names_of_python(kind: str) -> None:
    """Python reads letters of other widths as plain ones, and has words and digits that no name may be."""
    odd = {"\uff53tr": "x", "\ufb01": "y", "fi": "z", "after": "text"}
    rows = [make_row("p", f"\U0001f600\u200b_{n}", EntityType=kind, **odd) for n in range(7)]

    text = proposed(rows)

    for field in ("str_", "fi", "fi_2", "after"):
        assert f"    {field}: Mapped[str]" in text


def test_rows_with_properties_of_their_own() -> None:
    """They are of one kind, and no model is proposed for each row."""
    rows = [make_row("p", f"r{n}", **{f"P{n * at % 997}": "x" for at in range(1, 41)}) for n in range(1, 61)]

    assert [model.rows for model in propose("ForeignThings", rows).models] == [60]


async def test_rows_of_tableorm() -> None:
    """Index entries are no rows of a kind, and the kind is that of the model which wrote the rows."""
    async with memory_database(Person) as db:
        for number in range(10):
            await db.insert(Person(town="Lund", id=number, email=f"{number}@contoso.com"))
        proposal = await inspect_table(db, "InspectedPeople")

    assert (proposal.rows, [model.name for model in proposal.models]) == (10, ["Person"])
    assert 'kind="Person"' in proposal.text


def test_what_is_proposed_hinders_no_model() -> None:
    """A program that has looked at a proposal can declare models of the table that go with no kind=None."""
    propose("Claims", [make_row(f"{number}", "x1", a=1) for number in range(3)])

    class Claim(Entity, table="Claims", partition_key="{town}", row_key="claim_{id:03d}"):
        town: Mapped[str]
        id: Mapped[int]

        changes = Feed(keep=dt.timedelta(days=1))

    assert Claim.kind == "Claim"


@pytest.mark.parametrize(
    ("table", "others", "template"),
    [
        ("Logs2026", ["Logs2025"], "Logs{day:%Y}"),
        ("Logs202603", ["Logs202602"], "Logs{day:%Y%m}"),
        ("Logs20260307", ["Logs20260306"], "Logs{day:%Y%m%d}"),
        ("Logs0042", ["Logs0001"], "Logs{batch:04d}"),
        ("Logs42", ["Logs07"], "Logs{batch:02d}"),
        ("Logs202603", [], None),  # no other table
        ("Logs202603", ["Logs2026", "Log202602", "Logs202602x"], None),  # none that differs in the month only
        ("Logs202604", ["Logs202603"], None),  # another month than that of the rows
        ("Logs043", ["Logs042"], None),
    ],
)
def test_tables_of_periods(table: str, others: list[str], template: str | None) -> None:
    """A period in the name of a table, which keys and other tables show, is in the model; others are not."""
    rows = [make_row("batch=42", f"2026-03-07_{n:02d}", v=n) for n in range(20)]

    text = proposed(rows, table, *others)

    assert f'table="{template or table}"' in text
    said = f"# A table for each period: 2 tables have such names. Only rows of {table} were read.\n"
    assert (said in text) == (template is not None)


def test_periods_that_are_proposed_are_forgotten() -> None:
    """A table that only a proposal took for one of a period isn't made by the first write."""
    rows = [make_row("p", f"2026-03-07_{n}") for n in range(9)]
    proposal = propose("Forgotten202603", rows, tables=["Forgotten202602", "Forgotten202603"])
    gc.collect()

    assert 'table="Forgotten{day:%Y%m}"' in proposal.text
    assert not is_of_period("Forgotten202604")


def test_periods_of_some_kinds() -> None:
    """If one kind of row has no period in its keys, the table is a plain one for all kinds."""
    rows = [make_row("p", f"log_2026-03-{n + 1:02d}", EntityType="Log") for n in range(9)]
    rows += [make_row("p", f"user_{n:03d}", EntityType="User") for n in range(9)]

    proposal = propose("Logs202603", rows, tables=["Logs202602", "Logs202603"])

    assert proposal.text.count('table="Logs202603"') == 2
    assert [(model.name, model.exact) for model in proposal.models] == [("Log", 9), ("User", 9)]


def test_buckets_that_few_values_have() -> None:
    """Numbers that could be a hash of few values by chance are numbers."""
    spread = make_format(str, "spread(4)")
    assert isinstance(spread, Format)

    def propose_for(users: int) -> str:
        return propose(
            "Carts", [make_row(spread.to_text(f"u{n % users}"), f"{n}", User=f"u{n % users}") for n in range(50)]
        ).text

    assert 'partition_key="{part1}"' in propose_for(8)
    assert 'partition_key="{user:spread(4)}"' in propose_for(20)


async def test_a_sample() -> None:
    """With `rows` about so many are read, of many partitions."""
    async with memory_database("Readings") as db:
        for number in range(400):
            row = make_row(f"device{number % 40:02d}", f"{number:05d}", value=0.5)
            await insert_row(db, "Readings", row)
        told: list[tuple[int, float]] = []
        with db.observe(show_values=True) as seen:
            proposal = await inspect_table(
                db, "Readings", rows=100, on_progress=lambda rows, share: told.append((rows, share))
            )

        read = [each.line for each in seen.requests if "$top=50" in each.line and "$select" not in each.line]
        assert len({*read}) == 2, read  # two ranges
        assert 90 <= proposal.rows <= 110
        assert f"a sample of its rows, {proposal.rows}." in proposal.text
        assert 'partition_key="device{part1:02d}"' in proposal.text
        assert told[-1][0] == proposal.rows
        assert "all of its rows, 400." in (await inspect_table(db, "Readings")).text


async def test_a_token_for_one_table() -> None:
    """A client that must not list tables gets a model of the one table."""

    async def refuse(request: StoreRequest) -> None:
        if request.method == "list_tables":
            raise Fault(Code.AUTHORIZATION_PERMISSION, "not this")

    async with memory_database("Logs202602", "Logs202603") as db:
        for number in range(9):
            await insert_row(db, "Logs202603", make_row("p", f"2026-03-07_{number}"))
        assert 'table="Logs{day:%Y%m}"' in (await inspect_table(db, "Logs202603")).text
        before_requests(db, refuse)

        assert 'table="Logs202603"' in (await inspect_table(db, "Logs202603")).text


async def test_nothing_to_read() -> None:
    """A table without rows has no models; one that is not there, and a number that is none, are rejected."""
    async with memory_database("Empty") as db:
        assert (await inspect_table(db, "Empty")).models == ()
        with pytest.raises(TableNotFound):
            await inspect_table(db, "Missing")
        with pytest.raises(ModelError, match="rows=0"):
            await inspect_table(db, "Empty", rows=0)
