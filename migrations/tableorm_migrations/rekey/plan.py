"""
`plan_rekey`: what a re-key will read and write, and what prevents it. Nothing is written but a file.
"""

import math
import random
from collections.abc import AsyncGenerator, Callable, Generator, Iterator
from contextlib import AsyncExitStack, aclosing, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import attrs
import msgspec

from tableorm import Database, Entity, ModelError
from tableorm.advice import measure_table
from tableorm.connection.connection import connection_of
from tableorm.errors import counted, shown
from tableorm.jobs.counts import JobCounts
from tableorm.jobs.plan import plan_ranges
from tableorm.jobs.scan import pages
from tableorm.keys.ranges import KeyRegion
from tableorm.models.schema import Schema
from tableorm.protocol.limits import MAX_PAGE, MAX_TRANSACTION_OPERATIONS
from tableorm.rekey.rekeying import rekeying_of
from tableorm.stores import Row

from .hashing import hash_text
from .layouts import Layouts
from .sides import WINDOW

_KEPT = 20


@attrs.frozen(kw_only=True)
class RekeyStep:
    """
    A step of a re-key, with estimates.

    Args:
        name: The name of the step.
        reads: The number of requests that read.
        writes: The number of requests that write.
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
        entities: The number of older entities; an estimate unless `exact`.
        made: The number of newer entities that they become; an estimate unless `exact`.
        dropped: The number of entities that are dropped; an estimate unless `exact`.
        read: The number of entities that were read for the plan.
        exact: Whether all entities were read.
        fill: How many entities a transaction will write on average.
        collisions: How often two of the entities read would get the same newer key.
        failed: How many of the entities read can't be converted.
        problems: The first 20 collisions and failures, with the reasons.
        held: Whether the newer table already has entities of the newer model.
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
        """Whether nothing prevents the re-key, judging by the entities that were read."""
        return not (self.collisions or self.failed)

    @property
    def requests(self) -> int:
        """The estimated number of all requests."""
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
            requests_per_second: How many requests all processes together send per second.
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
    Show what a re-key will do, and what prevents it. Nothing is written to any table.

        print(await plan_rekey(db, DayOrder, Order, online=True, full=True))

    Args:
        db: The open database that has the entities of the older model.
        old: The older model.
        new: The newer model.
        to_new: What you will pass to `run_rekey`.
        target: The open database that will have the newer entities, if it's another one.
        online: Whether programs keep writing, with `run_move`; otherwise the plan is for `run_rekey`.
        full: Convert all entities, which takes memory for each. Otherwise a random sample is converted, and the rows of
            the table are counted, with at least one request for each 1,000.
        sample: The approximate size of the sample.
        rejected: A file for the entities that can't be converted or collide, as a line of JSON each.

    Raises:
        ModelError: The models don't fit together, or an argument is rejected.
        NotSupported: This re-key can't keep the rows of these models consistent.
        AccessDenied: In a scope.
        TableNotFound: The table of the older model doesn't exist.
        OSError: The file can't be written.
    """
    layouts = Layouts.of("plan_rekey", db, (old, new), to_new, target)
    if type(sample) is not int or sample < 1:
        raise ModelError(f"plan_rekey(sample={shown(sample)}) is rejected: give a number of entities, 1 or more")
    if online and rekeying_of(new.__schema__) is None:
        raise ModelError(f"plan_rekey(online=True) is rejected: {new.__name__} has no moved_from=")
    with _open_file(rejected) as write:
        found = _Findings(layouts, write)
        exact = await _read(layouts, found, None if full else sample)
    read = found.counts.entities
    entities = read if exact else await _estimate(layouts, found)
    share = entities / read if read else 1.0
    made, dropped = round(found.made * share), round(found.dropped * share)
    return RekeyPlan(
        what=str(layouts),
        steps=tuple(_steps(found, entities, made, online=online)),
        entities=entities,
        made=made,
        dropped=dropped,
        read=read,
        exact=exact,
        fill=found.fill()[0],
        collisions=found.collisions,
        failed=found.counts.failed - found.collisions,
        problems=tuple(found.counts.failures[:_KEPT]),
        held=await _holds_entities(layouts),
    )


class _Findings:
    """
    What was found in the entities that were read.

    Args:
        layouts: The two models.
        write: Writes a row that is rejected, with the reason.
    """

    def __init__(self, layouts: Layouts, write: Callable[[Row, str], None]) -> None:
        self._layouts, self._write = layouts, write
        self.rows = self.made = self.dropped = self.collisions = self._old_chunks = 0
        self.counts = JobCounts()  # the older entities, and what stands against them
        self._places = set[int]()
        # What would be written at once: the partitions of each window, of which the present one is kept.
        self._new_chunks, self._window = 0, set[str]()

    def fill(self) -> tuple[float, float]:
        """Return how many newer entities a transaction writes on average, and how many older ones."""
        new = _fill(self._layouts.new, self.made, self._new_chunks + len(self._window))
        return new, _fill(self._layouts.old, self.counts.entities, self._old_chunks)

    def add(self, rows: list[Row]) -> None:
        """Take note of a page."""
        self.rows += len(rows)
        partitions = set[str]()  # of entities; where keys tell kinds, there are rows of others too
        for row in rows:
            before = self.counts.entities
            try:
                made = self._layouts.make(row, self.counts)
                for each, keys in made or ():
                    self._layouts.new.encode(each.__dict__, *keys)
            except Exception as error:  # noqa: BLE001 - the functions are the user's: one bad row is a failure, and no more
                made = None
                self._fail(row, f"{type(error).__name__}: {error}")
            if self.counts.entities > before:
                partitions.add(row["PartitionKey"])
            self.dropped += made == []
            for _, keys in made or ():
                self._note_keys(row, keys)
        self._old_chunks += len(partitions)

    def _note_keys(self, row: Row, keys: tuple[str, str]) -> None:
        place = hash_text(*keys)
        if place in self._places:
            self.collisions += 1
            self._fail(row, f"another entity becomes {keys!r} too")
        self._places.add(place)
        self._window.add(keys[0])
        self.made += 1
        if self.made % WINDOW == 0:
            self._new_chunks += len(self._window)
            self._window.clear()

    def _fail(self, row: Row, problem: str) -> None:
        self._write(row, problem)
        self.counts.fail(row, problem)


def _fill(schema: Schema, entities: int, chunks: int) -> float:
    """Return how many entities a transaction writes on average, of some that are written in parts."""
    rows = 1 + sum(each.own_rows(None) for each in schema.derived.values())  # of an entity, about
    most = MAX_TRANSACTION_OPERATIONS / rows
    return min(most, entities / chunks) if chunks else most


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
    db = connection_of(layouts.db)
    ranges = await plan_ranges(db, "plan_rekey", [(layouts.old.table_name(), [layouts.old])], many=True)
    if sample is not None:
        random.shuffle(ranges)
    async with AsyncExitStack() as stack:
        opened: list[AsyncGenerator[list[Row], None]] = []
        for part in ranges:
            rows = pages(db, part.table, layouts.old_kinds.filter, part.left, None, "plan_rekey")
            opened.append(await stack.enter_async_context(aclosing(rows)))

        async def read_in_turn() -> AsyncGenerator[list[Row], None]:
            # Of a sample first a page of each range, then whatever more there is.
            for each in opened if sample is not None else ():
                yield await anext(each, list[Row]())
            for each in opened:
                async for page in each:
                    yield page

        async with aclosing(read_in_turn()) as in_turn:
            async for page in in_turn:
                if sample is not None and found.counts.entities >= sample:
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
    return round(measured.rows * found.counts.entities / max(1, found.rows))


async def _holds_entities(layouts: Layouts) -> bool:
    """Return whether the newer table has entities of the newer model."""
    if layouts.new.table_name() not in await layouts.target.tables():
        return False
    found = pages(
        connection_of(layouts.target), layouts.new.table_name(), layouts.new_kinds.filter, [KeyRegion()], None, "plan"
    )
    async with aclosing(found):
        async for rows in found:
            if any(map(layouts.is_newer, rows)):
                return True
    return False


def _steps(found: _Findings, entities: int, made: int, *, online: bool) -> Iterator[RekeyStep]:
    """Yield the steps with their requests."""
    old_pages, new_pages = math.ceil(entities / MAX_PAGE), math.ceil(made / MAX_PAGE)
    fill, old_fill = found.fill()
    written, marked = math.ceil(made / fill), math.ceil(entities / old_fill)
    if online:
        yield RekeyStep(name="move", reads=2 * old_pages, writes=2 * written + marked)
    else:
        yield RekeyStep(name="copy", reads=old_pages, writes=written)
    for verify in ("verify", "seal (verify again)" if online else "verify again"):
        yield RekeyStep(name=verify, reads=old_pages + new_pages, writes=0)
    yield RekeyStep(name="finalize", reads=old_pages, writes=marked)
