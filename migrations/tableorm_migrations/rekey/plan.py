"""
`plan_rekey`: what a re-key will read and write, and what stands against it. Nothing is written but a file.
"""

import math
import random
from collections.abc import AsyncGenerator, Callable, Generator, Iterator
from contextlib import aclosing, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import attrs
import msgspec

from tableorm import Database, Entity, ModelError
from tableorm.advice import measure_table
from tableorm.connection.connection import connection_of
from tableorm.errors import counted, shown
from tableorm.jobs.plan import plan_ranges
from tableorm.jobs.scan import pages
from tableorm.keys.ranges import KeyRegion
from tableorm.models.schema import Schema
from tableorm.protocol.limits import MAX_PAGE, MAX_TRANSACTION_OPERATIONS
from tableorm.rekey.rekeying import rekeying_of
from tableorm.stores import Row

from .hashing import hash_text
from .layouts import Layouts
from .window import WINDOW

_KEPT = 20


@attrs.frozen(kw_only=True)
class RekeyStep:
    """
    A step of a re-key.

    Args:
        name: What is done.
        reads: Requests that read, about.
        writes: Requests that write, about.
    """

    name: str
    reads: int
    writes: int


@attrs.frozen(kw_only=True)
class RekeyPlan:
    """
    What a re-key will do.

    Args:
        what: The two models.
        steps: The steps in order.
        entities: Entities of the older model: all that there are if `exact`, otherwise about.
        made: Entities of the newer model that these become, about.
        dropped: Entities that are dropped, about.
        read: How many entities were read for the plan.
        exact: Whether these were all.
        fill: How many entities a transaction will write on average.
        collisions: Two of the entities that were read become one: how often.
        failed: Entities that were read and cannot be converted.
        problems: The first 20 collisions and failures, with the reasons.
        held: Whether the newer table has entities of the newer model already.
    """

    what: str
    steps: tuple[RekeyStep, ...]
    entities: int
    made: int
    dropped: int
    read: int
    exact: bool
    fill: float
    collisions: int
    failed: int
    problems: tuple[str, ...]
    held: bool

    @property
    def complete(self) -> bool:
        """Whether nothing stands against the re-key, as far as the entities say that were read."""
        return not (self.collisions or self.failed)

    @property
    def requests(self) -> int:
        """Requests that are sent in all, about."""
        return sum(each.reads + each.writes for each in self.steps)

    def cost(self, *, request_price: float) -> float:
        """
        Return what the requests cost.

        Args:
            request_price: The price of 10,000 requests.
        """
        return self.requests / 10_000 * request_price

    def seconds(self, *, requests_per_second: float) -> float:
        """
        Return how long it takes.

        Args:
            requests_per_second: How many requests all processes together send in a second.
        """
        return self.requests / requests_per_second

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as a dictionary of plain values, for JSON."""
        steps = [attrs.asdict(each) for each in self.steps]
        own = attrs.asdict(self, recurse=False) | {"steps": steps, "problems": [*self.problems]}
        return {**own, "complete": self.complete, "requests": self.requests}

    def __str__(self) -> str:
        about = "" if self.exact else "about "
        dropped = f", {self.dropped} dropped" if self.dropped else ""
        made = f"{'becomes' if self.entities == 1 else 'become'} {about}{self.made}"
        lines = [
            f"re-key {self.what}: {about}{counted(self.entities, 'entity')}, which {made}{dropped}",
            *(f"  {each.name}: {each.reads} reads, {each.writes} writes" for each in self.steps),
            f"  about {self.requests} requests; transactions of {self.fill:.1f} entities on average",
        ]
        if self.held:
            lines.append("  the newer table has entities of the newer model already; verification finds them")
        if not self.complete:
            lines.append(f"  {self.collisions} collisions, {self.failed} not converted, of {self.read} that were read:")
            lines += [f"    {each}" for each in self.problems]
        elif not self.exact:
            lines.append(f"  no collisions, and none that cannot be converted, of {self.read} that were read")
        return "\n".join(lines)


async def plan_rekey(
    db: Database,
    old: type[Entity],
    new: type[Entity],
    *,
    to_new: Callable[[Any], Any] | None = None,
    target: Database | None = None,
    online: bool = False,
    full: bool = False,
    sample: int = 10_000,
    rejected: Path | None = None,
) -> RekeyPlan:
    """
    Say what a re-key will do, and what stands against it. Nothing is written to any table.

    Args:
        db: The open database that has the entities of the older model.
        old: The older model.
        new: The newer model.
        to_new: What `run_rekey` will be given.
        target: The open database that will have the entities of the newer model, if it is another one.
        online: Whether programs go on writing meanwhile; otherwise the plan is for `run_rekey`.
        full: Convert all entities; this needs memory for each. Otherwise some are converted, chosen at random, and the
            rows of the table are counted, by one request for each 1,000 or more.
        sample: How many are converted then, about.
        rejected: A file that gets a line of JSON for each entity that was read and cannot be converted or collides.

    Raises:
        ModelError: The models do not fit, or an argument is rejected.
        NotSupported: Rows of these models cannot be told apart or kept right.
        AccessDenied: In a scope.
        TableNotFound: There is no table of the older model.
        OSError: The file cannot be written.
    """
    layouts = Layouts.of("plan_rekey", db, (old, new), to_new, target)
    if type(sample) is not int or sample < 1:
        raise ModelError(f"plan_rekey(sample={shown(sample)}) is rejected: give a number of entities, 1 or more")
    if online and rekeying_of(new.__schema__) is None:
        raise ModelError(f"plan_rekey(online=True) is rejected: {new.__name__} has no moved_from=")
    with _open_file(rejected) as write:
        found = _Findings(layouts, write)
        exact = await _read(layouts, found, None if full else sample)
    entities = found.read
    if not exact:
        entities = await _estimate(layouts, found)
    share = entities / found.read if found.read else 1.0
    made, dropped = round(found.made * share), round(found.dropped * share)
    return RekeyPlan(
        what=str(layouts),
        steps=tuple(_steps(found, entities, made, online=online)),
        entities=entities,
        made=made,
        dropped=dropped,
        read=found.read,
        exact=exact,
        fill=found.fill,
        collisions=found.collisions,
        failed=found.failed,
        problems=tuple(found.problems),
        held=await _holds_entities(layouts),
    )


class _Findings:
    """What was found in the entities that were read."""

    def __init__(self, layouts: Layouts, write: Callable[[Row, str], None]) -> None:
        self._layouts, self._write = layouts, write
        self.rows = self.read = self.made = self.dropped = self.collisions = self.failed = 0
        self.problems: list[str] = []
        self._places = set[int]()
        # What would be written at once: partitions of the window, and of each page on the older side.
        self._window, self._waiting = set[str](), 0
        self._chunks = self._old_chunks = 0

    @property
    def fill(self) -> float:
        """How many entities a transaction writes on average."""
        chunks = self._chunks + len(self._window)
        most = MAX_TRANSACTION_OPERATIONS / _rows_of(self._layouts.new)
        return min(most, self.made / chunks) if chunks else most

    @property
    def old_fill(self) -> float:
        """How many older entities a transaction writes on average."""
        most = MAX_TRANSACTION_OPERATIONS / _rows_of(self._layouts.old)
        return min(most, self.read / self._old_chunks) if self._old_chunks else most

    def add(self, rows: list[Row]) -> None:
        """Take note of a page."""
        self.rows += len(rows)
        partitions = set[str]()  # of entities; where keys tell kinds, there are rows of others too
        for row in rows:
            try:
                entity = self._layouts.load(row)
                if entity is None:
                    continue
                self.read += 1
                partitions.add(row["PartitionKey"])
                made = self._layouts.convert(entity)
                keys = [self._layouts.new.make_keys(each.__dict__) for each in made]
                for each, (partition_key, row_key) in zip(made, keys, strict=True):
                    self._layouts.new.encode(each.__dict__, partition_key, row_key)
            except Exception as error:  # noqa: BLE001 - the functions are the user's: one bad row is a failure, and no more
                self.failed += 1
                self._note(row, f"{type(error).__name__}: {error}")
                continue
            self.dropped += not made
            self.made += len(made)
            for partition_key, row_key in keys:
                self._note_key(row, partition_key, row_key)
        self._old_chunks += len(partitions)

    def _note_key(self, row: Row, partition_key: str, row_key: str) -> None:
        place = hash_text(partition_key, row_key)
        if place in self._places:
            self.collisions += 1
            self._note(row, f"another entity becomes ({partition_key!r}, {row_key!r}) too")
        self._places.add(place)
        self._window.add(partition_key)
        self._waiting += 1
        if self._waiting >= WINDOW:
            self._chunks += len(self._window)
            self._waiting = 0
            self._window.clear()

    def _note(self, row: Row, problem: str) -> None:
        self._write(row, problem)
        if len(self.problems) < _KEPT:
            self.problems.append(f"({row['PartitionKey']!r}, {row['RowKey']!r}): {problem}")


@contextmanager
def _open_file(path: Path | None) -> Generator[Callable[[Row, str], None]]:
    """Return what writes a row that is rejected, with the reason, to a file if there is one."""
    with nullcontext() if path is None else path.open("w", encoding="utf-8") as file:

        def write(row: Row, problem: str) -> None:
            line = {"PartitionKey": row["PartitionKey"], "RowKey": row["RowKey"], "problem": problem}
            if file is not None:
                file.write(msgspec.json.encode(line).decode() + "\n")

        yield write


async def _read(layouts: Layouts, found: _Findings, sample: int | None) -> bool:
    """Read all entities, or some of ranges chosen at random; return whether these were all."""
    ranges = await plan_ranges(connection_of(layouts.db), "plan_rekey", [(layouts.old.table_name(), [layouts.old])])
    if sample is not None:
        random.shuffle(ranges)
    # First a page of each range, then whatever more there is.
    opened: list[AsyncGenerator[list[Row], None]] = []
    try:
        for part in ranges:
            if sample is not None and found.read >= sample:
                return False
            each = pages(connection_of(layouts.db), part.table, layouts.old_kinds.filter, part.left, None, "plan_rekey")
            opened.append(each)
            found.add(await anext(each, list[Row]()))
            if sample is None:
                await _read_rest(each, found, None)
        for each in opened:
            if not await _read_rest(each, found, sample):
                return False
    finally:
        for each in opened:
            await each.aclose()
    return True


async def _read_rest(rows: AsyncGenerator[list[Row], None], found: _Findings, sample: int | None) -> bool:
    """Read the other pages of a range; return False if there are enough before its end."""
    async with aclosing(rows):
        async for page in rows:
            if sample is not None and found.read >= sample:
                return False
            found.add(page)
    return True


async def _estimate(layouts: Layouts, found: _Findings) -> int:
    """Return how many older entities there are, about: it counts the rows of their table."""
    measured = await measure_table(layouts.db, layouts.old.table_name())
    old = layouts.old
    if old.discriminator == "property" and old.kind is not None:
        return sum(
            each.rows for kind, each in measured.kinds.items() if kind == old.kind or kind.startswith(f"{old.kind}:")
        )
    return round(measured.rows * found.read / max(1, found.rows))


async def _holds_entities(layouts: Layouts) -> bool:
    """Return whether the newer table has entities of the newer model."""
    if layouts.new.table_name() not in await layouts.target.tables():
        return False
    found = pages(
        connection_of(layouts.target), layouts.new.table_name(), layouts.new_kinds.filter, [KeyRegion()], None, "plan"
    )
    async with aclosing(found):
        async for rows in found:
            if any(layouts.new_kinds.schema_of_row(row) is not None for row in rows):
                return True
    return False


def _steps(found: _Findings, entities: int, made: int, *, online: bool) -> Iterator[RekeyStep]:
    """Yield the steps with their requests."""
    old_pages, new_pages = math.ceil(entities / MAX_PAGE), math.ceil(made / MAX_PAGE)
    written, marked = math.ceil(made / found.fill), math.ceil(entities / found.old_fill)
    if online:
        yield RekeyStep(name="move", reads=2 * old_pages, writes=2 * written + marked)
    else:
        yield RekeyStep(name="copy", reads=old_pages, writes=written)
    for verify in ("verify", "seal (verify again)" if online else "verify again"):
        yield RekeyStep(name=verify, reads=old_pages + new_pages, writes=0)
    yield RekeyStep(name="finalize", reads=old_pages, writes=marked)


def _rows_of(schema: Schema) -> int:
    """Return how many rows a write of an entity writes in its transaction, about."""
    return 1 + sum(each.own_rows(None) for each in schema.derived.values())
