"""
Random programs on the engine and on the store in plain dictionaries: both must answer alike.
"""

import asyncio
import tempfile
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from tableorm.protocol.codes import Fault
from tableorm.protocol.edm import ANNOTATION, etag_from_ticks
from tableorm.protocol.filters import And, Compare, Filter, Not, Op, Or, constant
from tableorm.stores import Bounds, Operation, Row, RowQuery, Verb
from tableorm.testing import MemoryStore
from tableorm_local.engine import Engine

# Few keys, so that operations meet; some that sort oddly, or one is the beginning of the other.
PARTITIONS = st.sampled_from(["", "a", "aa", "😀", "\ue000"])
ROWS = st.sampled_from(["", "!", "1", "10", "é", "😀", "\ue000"])
KEYS = st.tuples(PARTITIONS, ROWS)
NAMES = st.sampled_from(["A", "B", "Größe"])
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
)
TYPED = st.sampled_from(
    [
        ("5", "Edm.Int64"),
        ("NaN", "Edm.Double"),
        ("AAE=", "Edm.Binary"),
        ("2024-01-01T00:00:00.0000001Z", "Edm.DateTime"),
    ]
)
TAGS = st.sampled_from(["current", "any", "old", "stale", "none", "malformed"])
STALE = etag_from_ticks(638_000_000_000_000_000)


@st.composite
def properties(draw: st.DrawFn) -> Row:
    row: Row = draw(st.dictionaries(NAMES, VALUES, max_size=3))
    for name in draw(st.lists(NAMES, max_size=2)):
        value, kind = draw(TYPED)
        row |= {name: value, name + ANNOTATION: kind}
    return row


@st.composite
def bounds(draw: st.DrawFn, keys: st.SearchStrategy[str]) -> Bounds:
    maybe = st.none() | keys
    return Bounds(draw(maybe), draw(maybe), draw(st.booleans()), draw(st.booleans()))


@st.composite
def filters(draw: st.DrawFn, depth: int = 2) -> Filter:
    kind = draw(st.sampled_from(["not", "and", "or", "compare", "compare"])) if depth else "compare"
    if kind == "not":
        return Not(draw(filters(depth - 1)))
    if kind != "compare":
        terms = (draw(filters(depth - 1)), draw(filters(depth - 1)))
        return And(terms) if kind == "and" else Or(terms)
    values = st.one_of(st.booleans(), st.integers(-3, 3), st.floats(-3, 3), st.sampled_from(["", "a", "😀"]))
    return Compare(draw(NAMES), draw(st.sampled_from(Op)), constant(draw(values)))


def comparable(row: Row) -> Row:
    """A row without what the stores' clocks decide."""
    return {name: repr(value) for name, value in row.items() if name not in ("odata.etag", "Timestamp")}


class Both(RuleBasedStateMachine):
    """The same calls to both stores. ETags are compared by which version of the row they stand for."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.folder = tempfile.TemporaryDirectory()
        self.engine = Engine(Path(self.folder.name) / "data")
        self.oracle = MemoryStore()
        self.tables: set[str] = set()
        # Per table and row, the ETags of each version: the engine's and the oracle's.
        self.tags: dict[tuple[str, str, str], list[tuple[str, str]]] = {}

    def teardown(self) -> None:
        self.run(self.engine.close())
        self.runner.close()
        self.folder.cleanup()

    def run(self, call: Coroutine[Any, Any, Any]) -> Any:
        """The result of a call, or its fault."""

        async def outcome() -> Any:
            try:
                return await call
            except Fault as fault:
                return fault

        return self.runner.run(outcome())

    def both(self, engine: Coroutine[Any, Any, Any], oracle: Coroutine[Any, Any, Any]) -> tuple[Any, Any]:
        """Results of the same call; a refusal must be the same refusal."""
        left, right = self.run(engine), self.run(oracle)
        if isinstance(left, Fault) or isinstance(right, Fault):
            assert isinstance(left, Fault), right
            assert isinstance(right, Fault), left
            assert (left.code, left.index, left.property) == (right.code, right.index, right.property)
        return left, right

    @initialize()
    def start(self) -> None:
        self.run(self.engine.open())
        self.create("Table")

    @rule(name=st.sampled_from(["Table", "TABLE", "Other"]))
    def create(self, name: str) -> None:
        """Create a table, perhaps one that exists."""
        self.both(self.engine.create_table(name), self.oracle.create_table(name))
        self.tables.add(name.lower())

    @rule(name=st.sampled_from(["table", "Other"]))
    def drop(self, name: str) -> None:
        """Delete a table, perhaps one that does not exist."""
        self.both(self.engine.delete_table(name), self.oracle.delete_table(name))

    @rule()
    def list_tables(self) -> None:
        """Both list the same."""
        left, right = self.both(self.engine.list_tables(), self.oracle.list_tables())
        assert left == right

    @rule()
    def reopen(self) -> None:
        """A restart changes nothing."""
        self.run(self.engine.close())
        self.run(self.engine.open())

    def operations(self, table: str, verb: Verb, row: Row, tag: str) -> tuple[Operation, Operation]:
        """An operation for each store, under corresponding ETags."""
        seen = self.tags.get((table.lower(), row["PartitionKey"], row["RowKey"]), [])
        choices = {
            "current": seen[-1] if seen else (STALE, STALE),
            "old": seen[0] if seen else (STALE, STALE),
            "any": ("*", "*"),
            "stale": (STALE, STALE),
            "none": (None, None),
            "malformed": ("x", "x"),
        }
        if verb not in (Verb.MERGE, Verb.REPLACE, Verb.DELETE) and tag != "malformed":
            tag = "none"
        left, right = choices[tag]
        return Operation(verb, row, left), Operation(verb, row, right)

    def remember(self, table: str, row: Row, left: str | None, right: str | None) -> None:
        """The ETags of a new version."""
        assert (left is None) == (right is None)
        if left is not None and right is not None:
            self.tags.setdefault((table.lower(), row["PartitionKey"], row["RowKey"]), []).append((left, right))

    @rule(table=st.sampled_from(["Table", "other"]), verb=st.sampled_from(Verb), keys=KEYS, more=properties(), tag=TAGS)
    def write(self, table: str, verb: Verb, keys: tuple[str, str], more: Row, tag: str) -> None:
        """One write."""
        row = {"PartitionKey": keys[0], "RowKey": keys[1], **more}
        mine, its = self.operations(table, verb, row, tag)
        left, right = self.both(self.engine.write(table, mine), self.oracle.write(table, its))
        if not isinstance(left, Fault):
            self.remember(table, row, left, right)

    @rule(
        table=st.sampled_from(["TABLE", "Other"]),
        partition=PARTITIONS,
        writes=st.lists(st.tuples(st.sampled_from(Verb), ROWS, properties(), TAGS), max_size=5),
    )
    def transact(self, table: str, partition: str, writes: list[tuple[Verb, str, Row, str]]) -> None:
        """One transaction, perhaps with a row twice."""
        rows = [{"PartitionKey": partition, "RowKey": key, **more} for _, key, more, _ in writes]
        pairs = [self.operations(table, write[0], row, write[3]) for write, row in zip(writes, rows, strict=True)]
        left, right = self.both(
            self.engine.transact(table, [mine for mine, _ in pairs]),
            self.oracle.transact(table, [its for _, its in pairs]),
        )
        if not isinstance(left, Fault):
            for row, one, two in zip(rows, left, right, strict=True):
                self.remember(table, row, one, two)

    @rule(keys=KEYS, select=st.none() | st.lists(NAMES | st.just("RowKey"), max_size=3).map(tuple))
    def get(self, keys: tuple[str, str], select: tuple[str, ...] | None) -> None:
        """One row; its ETag is that of its last version."""
        left, right = self.both(self.engine.get("table", *keys, select), self.oracle.get("table", *keys, select))
        if not isinstance(left, Fault):
            assert comparable(left) == comparable(right)
            assert self.tags["table", *keys][-1] == (left["odata.etag"], right["odata.etag"])

    @precondition(lambda self: self.tables)
    @rule(
        partition=bounds(PARTITIONS),
        row=bounds(ROWS),
        point=st.booleans(),
        where=st.none() | filters(),
        select=st.none() | st.just(("A", "RowKey")),
        limit=st.sampled_from([1, 2, 5, 1000]),
    )
    def query(  # the arguments are the dimensions of a query
        self,
        partition: Bounds,
        row: Bounds,
        where: Filter | None,
        select: tuple[str, ...] | None,
        limit: int,
        *,
        point: bool,
    ) -> None:
        """All pages of a query, in order."""
        if point and partition.lower is not None:
            partition = Bounds.only(partition.lower)
        asked = RowQuery(partition, row, where, select)
        left, right = self.both(self.pages(self.engine, asked, limit), self.pages(self.oracle, asked, limit))
        if not isinstance(left, Fault):
            assert list(map(comparable, left)) == list(map(comparable, right))

    async def pages(self, store: Engine | MemoryStore, query: RowQuery, limit: int) -> list[Row]:
        rows: list[Row] = []
        continuation: str | None = None
        while True:
            page = await store.query("Table", query, limit, continuation)
            assert len(page.rows) <= limit
            rows += page.rows
            continuation = page.continuation
            if continuation is None:
                return rows


TestBoth = Both.TestCase
