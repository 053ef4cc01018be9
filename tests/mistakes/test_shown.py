"""
What people see of objects: at a prompt, in a notebook, and in the traceback of a class that is rejected.
"""

import traceback
from html.parser import HTMLParser
from typing import Any

import pytest

import tableorm
from tableorm import (
    Database,
    Entity,
    GrantExplanation,
    Index,
    Mapped,
    ModelError,
    Page,
    PropertyBag,
    connect,
    field,
    many,
)
from tableorm.protocol.key_range import KeyRange
from tests.databases import database_fixture


class Shown(Entity, table="ShownThings", partition_key="{owner}", row_key="thing_{id:03d}"):
    """A thing with an index."""

    owner: Mapped[str]
    id: Mapped[int]
    note: Mapped[str | None] = field(default=None)

    by_note = Index(row_key="note_{note}_{id:03d}")
    same_owner = many(lambda: Shown, owner="{owner}", on_delete="keep")


class Cells(HTMLParser):
    """The lines of a table of HTML, each with its cells."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.lines: list[list[str]] = []
        self.tags: set[str] = set()
        self._in_cell = False
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: object) -> None:
        del attrs
        self.tags.add(tag)
        if tag == "tr":
            self.lines.append([])
        elif tag in ("td", "th"):
            self.lines[-1].append("")
        self._in_cell = tag in ("td", "th")

    def handle_endtag(self, tag: str) -> None:
        self._in_cell = False

    def handle_data(self, data: str) -> None:
        if self._in_cell:
            self.lines[-1][-1] += data


def in_notebook(value: Any) -> Cells:
    return Cells(value._repr_html_())


db = database_fixture(Shown)


async def test_notebooks_show_tables(db: Database) -> None:
    """Of a page its entities, of an explanation its requests; what rows hold is text, whatever it looks like."""
    await db.insert(Shown(owner="a", id=1, note="<b>&amp;</b>"))
    await db.insert(Shown(owner="a", id=2))
    query = db.select(Shown).where(Shown.owner == "a")
    page = await query.page()
    explained, written = (
        query.where(Shown.note != "x").explain(),
        db.explain_write("insert", Shown(owner="a", id=3)),
    )

    cells = in_notebook(page)
    assert in_notebook(await query.all()).lines == in_notebook(await db.union(query).all()).lines == cells.lines
    assert cells.lines == [["owner", "id", "note"], ["a", "1", "<b>&amp;</b>"], ["a", "2", ""]]
    assert cells.tags == {"table", "caption", "tr", "th", "td"}
    assert [line[:2] for line in in_notebook(explained).lines[1:]] == [
        [each.access.value, str(each)] for each in explained.requests
    ]
    assert [line[0] for line in in_notebook(written).lines[1:]] == ["POST /ShownThings"]

    opened = GrantExplanation(
        table="Things",
        permissions="r",
        keys=KeyRange(),
        expires_at=None,
        policy=None,
        covers=("reads",),
        not_covered=("queues", "blobs"),
    )
    assert in_notebook(opened).lines == [["covers", "does not cover"], ["reads", "queues"], ["", "blobs"]]

    loaded = db.explain_load(page.items, Shown.same_owner)
    assert [line[:2] for line in in_notebook(loaded).lines[1:]] == [
        [each.access.value, str(each)] for each in loaded.requests
    ]


async def test_notebooks_show_the_beginning_of_long_values(db: Database) -> None:
    """A table of many or large values stays one that a browser can draw."""
    assert len(in_notebook(Page([Shown(owner="a", id=n) for n in range(1_000)], None)).lines) == 101
    await db.insert(PropertyBag("ShownThings", "a", "long", {"text": "x" * 30_000}))
    query = db.select_raw("ShownThings").where("PartitionKey eq 'a'")
    (line,) = in_notebook(await query.page()).lines[1:]
    assert line[:2] == ["a", "long"]
    assert "x" * 500 + "..." in line


async def test_a_prompt_says_what_an_object_is(db: Database) -> None:
    """A line, without what lies inside."""
    with db.observe() as seen:
        async with db.transaction() as tx:
            tx.insert(Shown(owner="a", id=1, note="n"))
            assert repr(tx) == "<transaction: 1 operation, open>"
        async with db.bulk() as bulk:
            await bulk.insert(Shown(owner="a", id=2))
    assert repr(bulk) == "<bulk: 1 written, 0 failed>"
    assert repr(seen) == "<observation: 2 requests, 3 rows>"
    async with db.worker(Shown) as worker:
        assert repr(worker) == "<worker: no messages so far>"
    token = "sv=2019-02-02&tn=devThings&sp=r&se=2100-01-01T00:00:00Z&sig=c2VjcmV0"
    async with connect("https://acc.table.core.windows.net", sas=token, prefix="dev") as theirs:
        assert (
            repr(theirs.store)
            == "<PrefixedTables of <GuardedStore of <AzureTables https://acc.table.core.windows.net>>>"
        )


def test_a_refused_class_shows_two_frames() -> None:
    """The error names the class and what to do; where it was found out helps nobody."""
    with pytest.raises(ModelError, match=r"Twice\.by_id: a RowKey can be of") as caught:

        class Twice(Entity, table="ShownTwice", partition_key="{owner}", row_key="{id}"):  # pyright: ignore[reportUnusedClass]
            owner: Mapped[str]
            id: Mapped[int]

            by_id = Index(row_key="id_{id:03d}_{owner}")

    frames = traceback.extract_tb(caught.value.__traceback__)
    assert sum(frame.filename.startswith(tableorm.__path__[0]) for frame in frames) == 1
