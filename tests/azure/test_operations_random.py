"""
Random programs of every operation: Azurite, our own server and the embedded engine answer alike, step by step.

Tables come and go, writes have right, old, wrong and any ETags, transactions have members that fail, queries are cut
into pages between which rows come and go, and limits are passed. What Azurite does otherwise stands in `DIFFERENCES`.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tableorm.errors import shown
from tableorm.protocol.codes import Code, Fault
from tableorm.protocol.edm import ANNOTATION, Edm
from tableorm.protocol.filters import Compare, Constant, Op
from tableorm.protocol.limits import MAX_CUSTOM_PROPERTIES, MAX_ENTITY_BYTES, entity_size
from tableorm.stores import Bounds, Operation, Row, RowQuery, TableStore, Verb
from tableorm.testing.contract.base import new_name, user_part
from tableorm_local import LocalBackend
from tests.azure import differences
from tests.azure.test_exactness import VALUES as PRESENT

# What programs keep clear of, because Azurite 3.35 does it otherwise; docs/stores/azure.md says how.
DIFFERENCES = {
    "tables are found only in the letter case of their creation": "names are used as they were created",
    "-0.0 is returned as 0.0": "-0.0 is not among the values",
    "a merge may make a row with more than 252 properties or 1 MiB": "such merges are left out, by `_exceeds`",
    "in a transaction, keys with `',` in them are not found": "they are not among the keys",
}

STALE = "W/\"datetime'2001-01-01T00%3A00%3A00.0000000Z'\""
TABLES = ["One", "Two"]
BAD_TABLES = ["ab", "a" * 64, "1abc", "a-b", "Tables", ""]
PARTITIONS = ["p", "", "😀", "it's", "a b+%41"]
KEYS = ["", "a", "b", "é", "\ue000", "😀", "''", "x" * 512, "%2F", "=;&", "1+1", "^2f", "..", "a,b", '"', "$batch"]
BAD_KEYS = ["a/b", "a\\b", "a#", "?", "\t", "\x7f", "x" * 513, "😀" * 257]
VALUES: st.SearchStrategy[tuple[Any, str | None]] = PRESENT | st.tuples(st.none(), st.none())
# Values, names and rows that are rejected; each row is of the size or number that its name says.
BAD_PROPERTIES: list[Row] = [
    {"A" * 256: 1},
    {"a-b": 1},
    {"1a": 1},
    {"": 1},
    {"A": "x" * 32_769},
    {"A": "A" * 90_000, "A" + ANNOTATION: "Edm.Binary"},
    {"A": 2**31},
    {"A": "x", "A" + ANNOTATION: "Edm.Int64"},
    {"A": str(2**63), "A" + ANNOTATION: "Edm.Int64"},
    {"A": "1500-01-01T00:00:00Z", "A" + ANNOTATION: "Edm.DateTime"},
    {"A": "no guid", "A" + ANNOTATION: "Edm.Guid"},
    {"A": "\ud800"},
    {f"P{number}": number for number in range(253)},
    {f"P{number}": "x" * 32_000 for number in range(17)},
]
LARGE_PROPERTIES: list[Row] = [
    {f"P{number}": number for number in range(252)},
    {f"Q{number}": number for number in range(130)},
    {f"P{number}": "x" * 32_000 for number in range(16)},
    {"A" * 255: "x" * 32_768, "_1": "A" * 87_380, "_1" + ANNOTATION: "Edm.Binary"},
]


@attrs.frozen
class Write:
    """One operation; `condition` says which of the row's ETags it has."""

    verb: Verb
    partition: str
    key: str
    properties: Row = attrs.field(factory=dict[str, Any], repr=shown)
    condition: str = "*"


def _seldom(draw: st.DrawFn, of: int) -> bool:
    """True once in about so many times."""
    return draw(st.integers(1, of)) == of


@st.composite
def _properties(draw: st.DrawFn) -> Row:
    if _seldom(draw, 10):
        return dict(draw(st.sampled_from(LARGE_PROPERTIES)))
    if _seldom(draw, 20):
        return dict(draw(st.sampled_from(BAD_PROPERTIES)))
    made: Row = {}
    for name in draw(st.lists(st.sampled_from(["A", "B", "Größe", "a"]), max_size=3, unique=True)):
        value, annotation = draw(VALUES)
        made[name] = value
        if annotation is not None:
            made[name + ANNOTATION] = annotation
    return made


@st.composite
def _write(draw: st.DrawFn, partitions: list[str], *, bad: bool = True) -> Write:
    verb = draw(st.sampled_from(Verb))
    # Few rows, so that operations meet.
    usual = KEYS if _seldom(draw, 4) else KEYS[1:3]
    key = draw(st.sampled_from(BAD_KEYS if bad and _seldom(draw, 30) else usual))
    conditions = ["*", "current", "current", "current", "old", "stale"] + ["malformed", "none"] * _seldom(draw, 10)
    properties = {} if verb is Verb.DELETE else draw(_properties())
    return Write(verb, draw(st.sampled_from(partitions)), key, properties, draw(st.sampled_from(conditions)))


def _key_of(write: Write) -> str:
    return write.key


@st.composite
def _transaction(draw: st.DrawFn) -> list[Write]:
    partition = draw(st.sampled_from(PARTITIONS if _seldom(draw, 3) else PARTITIONS[:1]))
    # Now and then another partition, a row twice, a bad key, none at all: refused before anything is sent, by each.
    partitions = PARTITIONS if _seldom(draw, 15) else [partition]
    unique = None if _seldom(draw, 15) else _key_of
    least = 0 if _seldom(draw, 15) else 1
    writes = draw(st.lists(_write(partitions, bad=_seldom(draw, 5)), min_size=least, max_size=6, unique_by=unique))
    if _seldom(draw, 30):
        return [attrs.evolve(Write(Verb.INSERT_OR_MERGE, partition, str(number))) for number in range(101)]
    return writes


@st.composite
def _query(draw: st.DrawFn) -> tuple[RowQuery, int]:
    key, partition = st.sampled_from(KEYS), st.sampled_from(PARTITIONS)
    flags = st.booleans(), st.booleans()
    compare = st.builds(Compare, st.just("RowKey"), st.sampled_from(Op), st.builds(Constant, st.just(Edm.STRING), key))
    query = RowQuery(
        draw(
            st.just(Bounds()) | partition.map(Bounds.only) | st.builds(Bounds, st.none() | partition, st.none(), *flags)
        ),
        draw(st.just(Bounds()) | st.builds(Bounds, st.none() | key, st.none() | key, *flags)),
        draw(st.none() | compare),
        draw(
            st.none() | st.lists(st.sampled_from(["A", "B", "RowKey", "Nothing"]), max_size=3, unique=True).map(tuple)
        ),
    )
    return query, draw(st.sampled_from([0, 1001] if _seldom(draw, 15) else [1, 1, 2, 3, 1000]))


@st.composite
def _program(draw: st.DrawFn) -> list[tuple[str, str, Any]]:
    """Steps: what is done, on which table, with what."""
    steps: list[tuple[str, str, Any]] = []
    kinds = ["write"] * 8 + ["transact"] * 4 + ["query"] * 3 + ["go on"] * 3 + ["get", "create", "drop", "list"]
    for kind in draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=30)):
        table = draw(st.sampled_from([TABLES[1], "Absent"] if _seldom(draw, 15) else TABLES[:1]))
        what: Any = None
        match kind:
            case "write":
                what = draw(_write(PARTITIONS if _seldom(draw, 3) else PARTITIONS[:1]))
            case "transact":
                what = draw(_transaction())
            case "query":
                what = draw(_query())
            case "get":
                what = draw(st.tuples(st.sampled_from(PARTITIONS[:2]), st.sampled_from(KEYS[:3])))
            case "create" | "drop":
                usual = TABLES[1:] if kind == "drop" and not _seldom(draw, 4) else TABLES
                table = draw(st.sampled_from(BAD_TABLES if _seldom(draw, 6) else usual))
            case _:
                pass
        steps.append((kind, table, what))
    return steps


class Run:
    """
    A program on one store, and what it answers.

    Args:
        store: The store.
        suffix: Behind the names of tables, so that one emulator serves many programs.
    """

    def __init__(self, store: TableStore, suffix: str) -> None:
        self.store, self.suffix = store, suffix
        # The ETags that each row has had, and the query that is not at its end.
        self.tags: dict[tuple[str, str, str], list[str]] = {}
        self.open: tuple[str, RowQuery, int, str] | None = None

    def name(self, table: str) -> str:
        """The name of a table that only this program has; a bad one stays bad."""
        return table if table in BAD_TABLES else table + self.suffix

    def operation(self, table: str, write: Write) -> Operation:
        """A write as an operation under the ETag that this store gave."""
        row = {"PartitionKey": write.partition, "RowKey": write.key, **write.properties}
        if write.verb not in (Verb.MERGE, Verb.REPLACE, Verb.DELETE):
            return Operation(write.verb, row)
        seen = self.tags.get((table, write.partition, write.key), [STALE])
        old = seen[-2] if len(seen) > 1 else STALE
        tags = {"*": "*", "current": seen[-1], "old": old, "stale": STALE, "malformed": "W/1", "none": None}
        return Operation(write.verb, row, tags[write.condition])

    def remember(self, table: str, writes: list[Write], tags: list[str | None]) -> list[bool]:
        """Keep the ETags; which of the writes got one."""
        for write, tag in zip(writes, tags, strict=True):
            seen = self.tags.setdefault((table, write.partition, write.key), [STALE])
            assert tag not in seen
            seen.append(tag or STALE)
        return [tag is not None for tag in tags]

    async def step(self, kind: str, table: str, what: Any) -> object:
        """What one step answers: rows, names, or the code and index of the fault."""
        try:
            return await self._step(kind, table, what)
        except Fault as fault:
            # A table that is missing is so for every operation: some name the first, some none.
            return fault.code, None if fault.code == Code.TABLE_NOT_FOUND else fault.index

    async def _step(self, kind: str, table: str, what: Any) -> object:
        name = self.name(table)
        match kind:
            case "write":
                return self.remember(table, [what], [await self.store.write(name, self.operation(table, what))])
            case "transact":
                tags = await self.store.transact(name, [self.operation(table, write) for write in what])
                return self.remember(table, what, tags)
            case "query":
                query, limit = what
                return await self._page(name, query, limit, None)
            case "go on":
                return "at its end" if self.open is None else await self._page(*self.open)
            case "get":
                return user_part(await self.store.get(name, *what))
            case "create":
                await self.store.create_table(name)
                return "created"
            case "drop":
                await self.store.delete_table(name)
                return "deleted"
            case _:
                return [each for each in await self.store.list_tables() if each.endswith(self.suffix)]

    async def _page(self, name: str, query: RowQuery, limit: int, continuation: str | None) -> object:
        page = await self.store.query(name, query, limit, continuation)
        self.open = None
        if page.continuation is not None and await self._more(name, query, page.continuation):
            self.open = name, query, limit, page.continuation
        return [{n: repr(v) for n, v in user_part(row).items()} for row in page.rows], self.open is None

    async def _more(self, name: str, query: RowQuery, continuation: str | None) -> bool:
        """Whether a row follows: a page may be empty, and one at the end may say that more could follow."""
        while continuation is not None:
            page = await self.store.query(name, query, 1, continuation)
            if page.rows:
                return True
            continuation = page.continuation
        return False

    async def clear(self) -> None:
        """Delete the tables that are left."""
        for name in await self.store.list_tables():
            if name.endswith(self.suffix):
                await self.store.delete_table(name)


async def _exceeds(store: TableStore, table: str, kind: str, what: Any) -> bool:
    """Whether a step merges, on the engine, a row beyond what a row may have."""
    writes: list[Write] = {"write": [what], "transact": what}.get(kind, [])
    for write in writes:
        if write.verb not in (Verb.MERGE, Verb.INSERT_OR_MERGE):
            continue
        try:
            stored = user_part(await store.get(table, write.partition, write.key))
        except Fault:
            continue
        written = {name: value for name, value in write.properties.items() if value is not None}
        kept = {name: value for name, value in stored.items() if name.removesuffix(ANNOTATION) not in written}
        merged = {**kept, **written}
        count = sum(not name.endswith(ANNOTATION) for name in merged) - 2
        if count > MAX_CUSTOM_PROPERTIES or entity_size(merged) > MAX_ENTITY_BYTES:
            return True
    return False


async def _in_an_empty_table(store: TableStore, kind: str, what: Any) -> object:
    """What a step answers where there is a table, and nothing in it."""
    run = Run(store, new_name()[8:])
    await store.create_table(run.name("Empty"))
    try:
        return await run.step(kind, "Empty", what)
    finally:
        await run.clear()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(_program())
async def test_random_programs(emulator: TableStore, served: TableStore, program: list[tuple[str, str, Any]]) -> None:
    """Each step gives the same rows, the same success, or the same code and index, on all three."""
    suffix = new_name()[8:]
    async with LocalBackend(None) as engine:
        runs = [Run(store, suffix) for store in (engine.tables, served, emulator)]
        try:
            for step in [*_start(), *program, *_looks()]:
                kind, table, what = step
                if await _exceeds(engine.tables, runs[0].name(table), kind, what):
                    continue
                expected, *others = [await run.step(kind, table, what) for run in runs]
                if expected == (Code.TABLE_NOT_FOUND, None) and others != [expected, expected]:
                    # Of two faults at once a client tells the one that it finds before it sends anything.
                    expected = await _in_an_empty_table(engine.tables, kind, what)
                assert others == [expected, expected], step
        finally:
            for run in runs:
                await run.clear()


def _start() -> Iterator[tuple[str, str, Any]]:
    """A table with two rows, so that most programs find something."""
    yield "create", TABLES[0], None
    for key in KEYS[1:3]:
        yield "write", TABLES[0], Write(Verb.INSERT, PARTITIONS[0], key, {"A": key, "B": 1.5})


def _looks() -> Iterator[tuple[str, str, Any]]:
    """What is in the tables in the end."""
    yield "list", "", None
    for table in TABLES:
        yield "query", table, (RowQuery(), 1000)


def test_the_lists_are_documented() -> None:
    """The page on Azure tells each difference, of operations and of filters, in the same words."""
    page = (Path(__file__).parents[2] / "docs" / "stores" / "azure.md").read_text(encoding="utf-8")
    of_filters = (*differences.DIFFERENCES, differences.CRASHES, differences.ABSENT_IS_FALSE)

    assert [says for says in (*DIFFERENCES, *(each.says for each in of_filters)) if says not in page] == []
