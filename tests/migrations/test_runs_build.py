"""
`build_index`: an index is built by several processes, and then audited by them.
"""

import asyncio
from collections.abc import Sequence

import pytest

from tableorm import AccessDenied, Database, Entity, Index, Mapped, ModelError, field
from tableorm.stores import Operation
from tableorm.testing import Faults
from tableorm_migrations import rewrite
from tests.database.between import Between

pytestmark = pytest.mark.usefixtures("many_ranges")

UPKEEP = "TableormUpkeep"


class AnyBook(Entity, table="RunBooks", abstract=True, partition_key="{shelf}", row_key="book_{id:04d}"):
    shelf: Mapped[str]
    id: Mapped[int]
    isbn: Mapped[str | None] = field(default=None)


class BookOfOld(AnyBook, kind="Book"):
    pass


class Book(AnyBook):
    by_isbn = Index(row_key="isbn_{isbn}", unique=True, building=True)


class BookWhenBuilt(AnyBook, kind="Book"):
    by_isbn = Index(row_key="isbn_{isbn}", unique=True, building=False)


class BookAtLast(AnyBook, kind="Book"):
    """Whether its index is read, the store says."""

    by_isbn = Index(row_key="isbn_{isbn}", unique=True)


async def fill(db: Database, shelves: int = 5, size: int = 12) -> None:
    await db.create_tables(BookOfOld)
    async with db.bulk(errors="report") as bulk:
        for shelf in range(shelves):
            for number in range(size):
                isbn = f"i{number}" if number % 4 else None
                await bulk.insert(BookOfOld(shelf=f"shelf-{shelf:02d}", id=number, isbn=isbn))
    assert bulk.report.failures == 0


async def test_each_entity_is_found_by_the_index(db: Database) -> None:
    """Whoever of several processes has built it; it was audited when all was built."""
    await fill(db)

    reports = await asyncio.gather(*(db.build_index(Book.by_isbn, parallel=3) for _ in range(3)))

    assert reports[0] == reports[1] == reports[2]
    report = reports[0]
    assert (report.what, report.state, report.entities, report.written) == ("build Book.by_isbn", "done", 60, 45)
    assert report.ranges == 10
    assert (await db.get(BookWhenBuilt.by_isbn, shelf="shelf-03", isbn="i7")).id == 7
    audit = await db.audit(BookWhenBuilt)
    assert (audit.found, audit.derived_rows) == (0, 45)
    assert [(run.name, run.written) for run in await db.runs()] == [(report.name, 45)]


async def test_what_cannot_be_built_is_a_failure(db: Database) -> None:
    """Two entities have one value: the run has failed, and says which; the next call does it anew."""
    await fill(db, 2)
    await db.insert(BookOfOld(shelf="shelf-01", id=90, isbn="i5"))

    failed = await db.build_index(Book.by_isbn, name="0002 by_isbn")
    again = await db.build_index(Book.by_isbn, name="0002 by_isbn")
    await db.upsert(BookOfOld(shelf="shelf-01", id=90, isbn="other"))
    done = await db.build_index(Book.by_isbn, name="0002 by_isbn")

    assert (failed.state, again.state, done.state) == ("failed", "failed", "done")
    assert failed.failed == len(failed.failures) == 1
    assert "taken: the index entry at 'isbn_i5' is that of 'book_0005'" in failed.failures[0]
    assert (done.written, (await db.audit(BookWhenBuilt)).clean) == (1, True)


async def test_a_build_beside_older_writers_is_done_anew_without_them(db: Database) -> None:
    """What they wrote since may lack entries; the run of that name that ended says nothing of it."""
    await fill(db, 1)
    await db.build_index(Book.by_isbn, name="build")
    await db.insert(BookOfOld(shelf="shelf-00", id=77, isbn="late"))

    same = await db.build_index(Book.by_isbn, name="build")
    anew = await db.build_index(Book.by_isbn, name="build", no_older_writers=True)
    then = await db.build_index(Book.by_isbn, name="build", no_older_writers=True)

    assert (same.written, anew.written, then == anew) == (9, 1, True)
    assert (await db.get(BookWhenBuilt.by_isbn, shelf="shelf-00", isbn="late")).id == 77


async def test_a_run_ends_after_its_index_is_read(db: Database) -> None:
    """A process that ends between the two leaves the run open, and the next one says again that the index is read."""
    await fill(db, 1)
    faults = Faults(db)
    with faults.fail_next("insert-or-replace", with_=403, table=UPKEEP), pytest.raises(AccessDenied):
        await db.build_index(BookAtLast.by_isbn, no_older_writers=True)
    (left,) = await db.runs()

    report = await db.build_index(BookAtLast.by_isbn)

    assert (left.state, left.ranges_done, report.state) == ("open", 2, "done")
    assert [state.state for state in await db.index_states()] == ["readable"]


class Recorded(Between):
    """Notes which ranges are taken, and which are done."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[tuple[str, int]] = []

    async def write(self, table: str, operation: Operation) -> str | None:
        etag = await super().write(table, operation)
        self._note(table, [operation])
        return etag

    async def transact(self, table: str, operations: Sequence[Operation]) -> list[str | None]:
        etags = await super().transact(table, operations)
        if table == UPKEEP and any("ended" in each.row for each in operations):
            self.events.append(("end", 99))
        return etags

    def _note(self, table: str, operations: Sequence[Operation]) -> None:
        for each in operations:
            if table == UPKEEP and each.row["RowKey"].startswith("range_"):
                number = int(each.row["RowKey"].removeprefix("range_"))
                if "taken" in each.row:
                    self.events.append(("take", number))
                elif '"done":true' in each.row.get("part", ""):
                    self.events.append(("done", number))


async def test_the_audit_begins_when_all_is_built() -> None:
    """No range of the second phase is taken before all of the first are done; then each is done, and the run ends."""
    store = Recorded()
    async with Database(store) as db:
        await fill(db, 6)
        await asyncio.gather(*(db.build_index(Book.by_isbn, parallel=4, lease=5) for _ in range(2)))

    first = [event for event in store.events if event[1] < 6]
    assert store.events[: len(first)] == first and len(first) == 12
    assert store.events[-1] == ("end", 99)
    assert sorted(number for event, number in store.events if event == "done") == [*range(12)]


async def test_what_cannot_be_asked(db: Database) -> None:
    """What is no index, a scope, the name of a run that does something else."""
    await fill(db, 1)
    with pytest.raises(ModelError, match="build_index"):
        await db.build_index(Book.isbn)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(AccessDenied, match="build_index"):
        await db.scope(shelf="shelf-00").build_index(Book.by_isbn)
    with pytest.raises(ModelError, match=r"build_index\(parallel=0\)"):
        await db.build_index(Book.by_isbn, parallel=0)
    await rewrite(db, Book, name="first")
    with pytest.raises(ModelError, match=r"'rewrite Book'.*'build Book.by_isbn'.*another name"):
        await db.build_index(Book.by_isbn, name="first")
