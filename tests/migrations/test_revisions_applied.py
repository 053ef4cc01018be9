"""
Revisions are applied to a database: their steps are carried out, and the store records what is done.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, suppress
from pathlib import Path
from typing import Any

import pytest

from tableorm import (
    AccessDenied,
    Database,
    Embedded,
    Entity,
    Index,
    Mapped,
    ModelError,
    NotSupported,
    OutcomeUnknown,
    PropertyBag,
    Unavailable,
    connect,
    field,
    upgrade,
)
from tableorm_migrations import StepReport, apply_revisions, load_revisions, migration_status, write_revision
from tests.azurite import Azurite
from tests.faults import QUICK, Fate, FaultyBackend

TABLE = "AppliedItems"

Open = Callable[[], AbstractAsyncContextManager[Database]]


class Base(Entity, table=TABLE, abstract=True, partition_key="{group}", row_key="item_{id:04d}"):
    group: Mapped[str]
    id: Mapped[int]


class Item(Base):
    note: Mapped[str] = field(default="")


class Titled(Base, kind="Item", version=2):
    title: Mapped[str]


class Indexed(Base, kind="Item", version=2):
    title: Mapped[str]
    by_title = Index(row_key="title_{title}_{id:04d}")


class Named(Base, kind="Item", version=3):
    title: Mapped[str]
    length: Mapped[int]


def name_title(bag: PropertyBag) -> PropertyBag:
    if bag["note"] == "bad":
        raise ValueError("a note is bad")
    bag["title"] = bag.pop("note")
    return bag


def count_letters(bag: PropertyBag) -> PropertyBag:
    bag["length"] = len(str(bag["title"]))
    return bag


for model in (Titled, Indexed, Named):
    upgrade(model, from_version=1)(name_title)
upgrade(Named, from_version=2)(count_letters)


@pytest.fixture(params=["file", "azurite"])
async def opened(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Open]:
    """What opens the same database each time, as programs do."""
    if request.param == "azurite":
        emulator: Azurite = request.getfixturevalue("azurite")
        url = emulator.connection_string
    else:
        url = f"local:{tmp_path}/test.tables"
    yield lambda: connect(url)
    if request.param == "azurite":
        async with connect(url) as db:
            for name in await db.tables():
                await db.drop_table(name)


@pytest.fixture
def in_file(tmp_path: Path) -> Open:
    return lambda: connect(f"local:{tmp_path}/test.tables")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "revisions"


def revise(folder: Path, *models: type[Entity], message: str = "change") -> str:
    draft = write_revision(models, folder, message, snapshot=folder.parent / "kept.json")
    assert draft.path is not None
    return draft.path.stem


async def fill(opened: Open, model: Any = Item, notes: Iterable[str] = ("one", "two", "three")) -> None:
    async with opened() as db:
        await db.create_tables(model)
        for number, note in enumerate(notes):
            await db.insert(model(group="g", id=number, note=note))


async def apply(opened: Open, folder: Path, *models: type[Entity], final: bool = True, **options: Any) -> Any:
    async with opened() as db:
        return await apply_revisions(db, models, folder, no_older_writers=final, **options)


async def kinds(opened: Open) -> set[object]:
    async with opened() as db:
        return {row["EntityType"] for row in await db.select_raw(TABLE).allow_scan().all()}


def outcomes(steps: Iterable[StepReport]) -> list[tuple[str, str, str]]:
    return [(each.revision, each.step, each.outcome.value) for each in steps]


async def test_revisions_are_applied_in_order(opened: Open, folder: Path) -> None:
    """Each with its steps, and once; afterwards all rows have the last version, and the index is read."""
    names = [revise(folder, Item), revise(folder, Titled), revise(folder, Indexed)]
    await fill(opened)
    report = await apply(opened, folder, Indexed)

    assert (report.applied, report.pending, report.complete, report.failed) == (tuple(names), (), True, False)
    assert outcomes(report.steps) == [
        (names[1], "rewrite Titled", "done"),
        (names[2], "build Indexed.by_title", "done"),
    ]
    async with opened() as db:
        found = await db.select(Indexed.by_title).where(Indexed.group == "g").all()
        assert [each.title for each in found] == ["one", "three", "two"]
        status = await migration_status(db, folder)
    assert [each.name for each in status.revisions if each.applied is not None] == names
    assert [each.state for each in status.indexes] == ["readable"]
    assert {each.state for each in status.runs} == {"done"}

    again = await apply(opened, folder, Indexed)
    assert (again.applied, again.pending, again.steps) == ((), (), ())


async def test_what_older_programs_would_undo_waits(opened: Open, folder: Path) -> None:
    """An index is built and not read, a rewrite is not begun, and both revisions are pending; then they are applied."""
    first, second = revise(folder, Item), revise(folder, Titled)
    third = revise(folder, Indexed)
    await fill(opened)
    report = await apply(opened, folder, Indexed, final=False)

    assert (report.applied, report.pending) == ((first,), (second, third))
    assert not report.complete and not report.failed
    assert outcomes(report.steps) == [
        (second, "rewrite Titled", "waiting"),
        (third, "build Indexed.by_title", "waiting"),
    ]
    assert "--no-older-writers" in str(report)
    async with opened() as db:
        with pytest.raises(NotSupported, match="by_title"):
            await db.select(Indexed.by_title).where(Indexed.group == "g").all()

    async with opened() as older:
        await older.insert(Item(group="g", id=9, note="nine"))
    report = await apply(opened, folder, Indexed)
    assert report.applied == (second, third)
    async with opened() as db:
        found = await db.select(Indexed.by_title).where(Indexed.group == "g").all()
        assert len(found) == 4


async def test_a_new_database_has_all_that_revisions_need(in_file: Open, folder: Path) -> None:
    """Its tables are made, and its indexes are complete as they are made."""
    names = [revise(folder, Titled), revise(folder, Indexed)]
    report = await apply(in_file, folder, Indexed, final=False)

    assert report.applied == tuple(names)
    assert [(each.outcome.value, each.detail) for each in report.steps] == [
        ("done", "the database says that it is complete")
    ]
    async with in_file() as db:
        await db.insert(Indexed(group="g", id=1, title="a"))
        assert await db.select(Indexed.by_title).where(Indexed.group == "g").count() == 1


async def test_what_a_later_revision_takes_back_is_passed_over(in_file: Open, folder: Path) -> None:
    """A declaration that was removed again, and a model."""

    class Passing(Base, row_key="passing_{id}"):
        by_id = Index(row_key="passed_{id:05d}")

    names = [
        revise(folder, Titled),
        revise(folder, Indexed, Passing),
        revise(folder, Titled),
    ]
    async with in_file() as db:
        await db.create_tables(Titled)
    report = await apply(in_file, folder, Titled)

    assert report.applied == tuple(names)
    assert {(each.step, each.outcome.value, each.detail.partition(";")[0]) for each in report.steps} == {
        ("build Indexed.by_title", "passed over", "a later revision removes or changes the declaration"),
        ("build Passing.by_id", "passed over", "a later revision removes the model"),
        ("repair Titled", "done", "0 entities and 0 derived rows checked: nothing found"),
    }


async def test_two_processes_apply_revisions_together(in_file: Open, folder: Path) -> None:
    """Each revision is recorded once, and each row written once; both say the same of the end."""
    last = [revise(folder, model) for model in (Item, Titled, Indexed)][-1]
    await fill(in_file, notes=[f"note {number}" for number in range(50)])
    reports = await asyncio.gather(*(apply(in_file, folder, Indexed, lease=2.0) for _ in range(2)))

    assert all(report.complete for report in reports)
    assert await kinds(in_file) == {"Item:2", "Item#by_title:2"}
    async with in_file() as db:
        status = await migration_status(db, folder)
        assert (await db.audit(Indexed)).clean
    assert status.revisions[-1].name == last
    assert all(each.applied is not None for each in status.revisions)
    assert {each.name: each.written for each in status.runs if "rewrite" in each.name}.popitem()[1] == 50


async def test_a_step_that_fails_ends_the_upgrade(in_file: Open, folder: Path) -> None:
    """What could not be written is named, and later revisions wait; the same call goes on when it is mended."""
    first, second, third = revise(folder, Item), revise(folder, Titled), revise(folder, Indexed)
    await fill(in_file, notes=["one", "bad", "three"])
    report = await apply(in_file, folder, Indexed)

    assert (report.applied, report.pending, report.failed) == ((first,), (second, third), True)
    assert report.steps[-1].outcome.value == "failed"
    assert "a note is bad" in report.steps[-1].detail

    async with in_file() as db:
        item = await db.get(Item, group="g", id=1)
        item.note = "good"
        await db.save(item)
    report = await apply(in_file, folder, Indexed)
    assert (report.applied, report.complete) == ((second, third), True)


async def test_a_newer_program_goes_on_with_what_an_older_one_left(in_file: Open, folder: Path) -> None:
    """A rewrite to version 2 that was killed half-way does not keep a program of version 3 from its own."""
    revise(folder, Item)
    second = revise(folder, Titled)
    await fill(in_file, notes=[f"note {number}" for number in range(20)])

    def die(report: StepReport) -> None:
        if report.outcome.value == "running":
            raise InterruptedError("the process ends here")

    with pytest.raises(InterruptedError):
        await apply(in_file, folder, Titled, parallel=1, lease=0.2, on_progress=die)

    third = revise(folder, Named)
    report = await apply(in_file, folder, Named, lease=0.2)
    assert report.applied == (second, third)
    assert await kinds(in_file) == {"Item:3"}


async def test_recorded_revisions_must_be_there(in_file: Open, folder: Path) -> None:
    """A database that has revisions of a newer program is left alone; so is one that has another revision of a name."""
    first, second = revise(folder, Item), revise(folder, Titled)
    await fill(in_file)
    await apply(in_file, folder, Titled)

    path = folder / f"{second}.py"
    text = path.read_text(encoding="utf-8")
    path.unlink()
    with pytest.raises(ModelError, match=f"has no revision {second}, which the database has applied; run the program"):
        await apply(in_file, folder, Item)
    path.write_text(
        text.replace("Rewrite(model='Titled')", "Rewrite(model='Titled'), Rewrite(model='Titled')"), encoding="utf-8"
    )
    with pytest.raises(ModelError, match=f"revision {second} of .* is not the one that the database has applied"):
        await apply(in_file, folder, Titled)
    async with in_file() as db:
        with pytest.raises(ModelError, match=f"revision {second} of "):
            await migration_status(db, folder)
        assert [each.name for each in (await migration_status(db)).revisions] == [first, second]


async def test_the_models_are_those_of_the_last_revision(in_file: Open, folder: Path) -> None:
    """A change that is in no revision, or a module that was not named, is said before anything is done."""
    revise(folder, Item)
    with pytest.raises(ModelError, match=r"not what revision 0001_change leads to: Titled: .*tableorm migrate check"):
        await apply(in_file, folder, Titled)
    with pytest.raises(ModelError, match="has no revisions; write the first one"):
        await apply(in_file, folder.parent / "nowhere", Titled)
    async with in_file() as db:
        assert await db.tables() == []
        assert str(await migration_status(db, folder)) == (
            "revisions:\n  0001_change: pending\nruns: none\nindexes: none"
        )


async def test_two_folders_that_race(in_file: Open, folder: Path) -> None:
    """Of two revisions of one name, the database has the first that is begun; the other one is rejected."""
    other = folder.parent / "other" / "revisions"
    other.parent.mkdir()
    revise(folder, Item)
    revise(other, Titled)
    both = await asyncio.gather(apply(in_file, folder, Item), apply(in_file, other, Titled), return_exceptions=True)

    refused = [each for each in both if isinstance(each, ModelError)]
    assert len(refused) == 1
    assert "is not the one that the database has" in str(refused[0])


@pytest.mark.one_of(3)
@pytest.mark.parametrize("fate", [Fate.LOST_REQUEST, Fate.LOST_REPLY, Fate.TWICE, Fate.BUSY])
@pytest.mark.parametrize("number", range(6))
async def test_writes_that_are_lost(folder: Path, fate: Fate, number: int) -> None:
    """Whichever write of the records meets a fault, the same call goes on, and each revision is applied once."""
    names = [revise(folder, Titled), revise(folder, Indexed)]
    backend = FaultyBackend()
    applied: list[str] = []
    async with Database(backend, retry=QUICK) as db:
        backend.tables.plan(*[Fate.FINE] * number, fate)
        for _ in range(2):
            with suppress(OutcomeUnknown, Unavailable):
                applied += (await apply_revisions(db, [Indexed], folder)).applied
        status = await migration_status(db, folder)

    assert [each.name for each in status.revisions if each.applied is not None] == names
    assert len(applied) == len({*applied})


class Author(Entity, table="AppliedNotes", tracked=True, partition_key="{group}", row_key="author"):
    group: Mapped[str]
    name: Mapped[str] = field(default="")


class Note(Base, table="AppliedNotes", tracked=True, row_key="note_{id}"):
    pass


class Signed(Base, table="AppliedNotes", kind="Note", tracked=True, row_key="note_{id}"):
    author: Mapped[str | None] = field(default=None, maintained=True)
    signature = Embedded(lambda: Author, {"author": "name"}, group="{group}")


async def test_copies_are_repaired(in_file: Open, folder: Path) -> None:
    """By an audit, when no older program runs."""
    revise(folder, Author, Note)
    second = revise(folder, Author, Signed)
    async with in_file() as db:
        await db.create_tables(Author)
        await db.insert(Author(group="g", name="Ann"))
        await db.insert(Note(group="g", id=1))
    report = await apply(in_file, folder, Author, Signed, final=False)
    assert outcomes(report.steps) == [(second, "repair Signed", "waiting")]

    report = await apply(in_file, folder, Author, Signed)
    assert outcomes(report.steps) == [(second, "repair Signed", "done")]
    async with in_file() as db:
        assert (await db.get(Signed, group="g", id=1)).author == "Ann"


async def test_a_scope_applies_nothing(in_file: Open, folder: Path) -> None:
    """Revisions are of whole tables."""
    revise(folder, Item)
    async with in_file() as db:
        await db.create_tables(Item)
        with pytest.raises(AccessDenied, match=r"apply_revisions\(\)"):
            await apply_revisions(db.scope(group="g"), [Item], folder)


async def test_progress_is_told(in_file: Open, folder: Path) -> None:
    """Each step while it runs, and once with its outcome, in words and as plain values."""
    revise(folder, Item)
    second = revise(folder, Titled)
    await fill(in_file)
    told: list[StepReport] = []
    await apply(in_file, folder, Titled, on_progress=told.append)

    assert told[0].outcome.value == "running"
    assert str(told[-1]).startswith(f"{second}: rewrite Titled: done: ")
    assert told[-1].to_dict()["outcome"] == "done"
    assert told[-1].to_dict()["run"]["written"] == 3
    assert len(load_revisions(folder)) == 2
