"""
Slices: long filters and transactions keep the event loop for a moment at a time, and what nobody waits for ends.
"""

import asyncio
import gc
import io
import json
import weakref
from collections.abc import Callable
from typing import Any

import aiohttp
import pytest

from tableorm import Database, Entity, Mapped
from tableorm.protocol import filter_text, filters
from tableorm.protocol.filter_text import parse_filter
from tableorm.protocol.filters import And, Compare, Constant, Filter, Not, Op, Or, compile_filter, constant, matcher
from tableorm.stores import Bounds, Row, RowPage, RowQuery
from tableorm_local.engine import Engine, scan
from tableorm_local.server import Limits, serve
from tableorm_local.server.operations import tables
from tableorm_local.server.wire import options
from tableorm_local.server.wire.options import MAX_COMPARISONS
from tests.local.server.client import Api, Clock, Wire, head, root_of
from tests.security.world import Turns


def alternatives(count: int, comparison: str = "A eq {}") -> str:
    """A filter of so many comparisons."""
    return "$filter=" + " or ".join(comparison.format(number) for number in range(count)).replace(" ", "%20")


@pytest.mark.one_of(3)
@pytest.mark.parametrize("comparison", ["A eq {}", "A", "not (B ne {})", "A eq ' and or '", "A eq 'it''s' and B eq {}"])
@pytest.mark.parametrize("path", ["/Tab()", "/Tables"])
async def test_comparisons_of_a_filter(api: Api, comparison: str, path: str) -> None:
    """A filter has 400 comparisons at most, of tables as well as of entities; what text says is no comparison."""
    comparison = comparison if path == "/Tab()" else "TableName eq 'a{}'"
    most = MAX_COMPARISONS // (2 if " and B" in comparison else 1)

    assert (await api("GET", path, query=alternatives(most, comparison))).status == 200
    refused = await api("GET", path, query=alternatives(most + 1, comparison))
    assert (refused.status, refused.code) == (400, "InvalidInput")
    assert "comparisons, 400 are allowed" in refused.message


async def test_a_filter_that_is_refused_is_not_read(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparisons and parentheses are counted before the filter is parsed, which takes much longer."""

    def parse(text: str) -> Filter:
        raise AssertionError(text)

    monkeypatch.setattr(options, "parse_in_steps", parse)
    for query in (alternatives(1500), f"$filter={'(' * 900}A{')' * 900}", "$filter=" + "not%20" * 900 + "A"):
        assert (await api("GET", "/Tab()", query=query)).code == "InvalidInput"


async def test_the_mapper_sends_no_more_comparisons(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """The filter with the most comparisons that the mapper sends has fewer than the server allows."""

    class Item(Entity, table="Items", partition_key="{group}", row_key="{id}"):
        group: Mapped[str]
        id: Mapped[str]
        x: Mapped[str]

    sent = list[Filter | None]()

    async def query(_: Engine, __: str, query: RowQuery, *___: object) -> RowPage:
        sent.append(query.where)
        return RowPage([], None)

    monkeypatch.setattr(Engine, "query", query)
    for count in range(100, 400, 5):
        values = [chr(32 + n) for n in range(count) if chr(32 + n) != "'"] + [""]
        await db.select(Item).where(Item.group == "g", Item.x.in_(values)).all()
    widest = max(map(count_comparisons, sent))

    assert 100 < widest <= MAX_COMPARISONS


def count_comparisons(node: Filter | None) -> int:
    match node:
        case None:
            return 0
        case Compare():
            return 1
        case Not(term):
            return count_comparisons(term)
        case And(terms) | Or(terms):
            return sum(map(count_comparisons, terms))


async def test_a_filter_of_tables_is_sliced(monkeypatch: pytest.MonkeyPatch, api: Api) -> None:
    """A filter of many tables is evaluated in slices of time, and only on as many names as are read at once."""
    turns = Turns()
    monkeypatch.setattr("tableorm_local.engine.engine.time", Clock(0.0003))

    async def list_tables(_: Engine, start: str, limit: int) -> list[str]:
        return [name for number in range(2_000) if (name := f"Tab{number:04}").lower() >= start][:limit]

    monkeypatch.setattr(Engine, "list_tables", list_tables)

    def make(where: Filter) -> Callable[[Row], bool]:
        test = matcher(where)

        def count(row: Row) -> bool:
            turns.add()
            return test(row)

        return count

    monkeypatch.setattr(tables, "matcher", make)
    async with turns.watched():
        reply = await api("GET", "/Tables", query=alternatives(400, "TableName eq 'Tab{:04}'"))
    assert (len(reply.rows), turns.all) == (400, 2_000)
    assert turns.most == 4
    reply = await api("GET", "/Tables", query="$filter=TableName%20ge%20'a'%20or%20TableName%20ge%20'A'&$top=3")
    assert len(reply.rows) == 3
    assert turns.all - 2_000 <= 1_000


def test_filters_that_are_kept_are_bounded() -> None:
    """A function made for a long filter lives no longer than its use; the same short filter gets the same function."""
    gone = list[weakref.ref[Callable[[Row], bool]]]()
    for number in range(5):
        many = [Compare(f"B{term}", Op.EQ, constant(f"{number}")) for term in range(MAX_COMPARISONS)]
        for tree in (Or(tuple(many)), Not(And(tuple(many))), Compare("B", Op.EQ, constant(f"{number}" + "x" * 30_000))):
            gone.append(weakref.ref(matcher(tree)))
    gc.collect()
    assert [function() for function in gone] == [None] * 15

    short = [Compare("B", Op.EQ, constant("x")) for _ in range(2)]
    assert matcher(short[0]) is matcher(short[1])


async def test_what_nobody_waits_for_is_not_worked_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request whose client has closed the connection ends at once; it has its entry in the access log."""
    log, began, ended = io.BytesIO(), asyncio.Semaphore(0), asyncio.Semaphore(0)

    async def query(*_: Any) -> RowPage:
        began.release()
        try:
            await asyncio.Event().wait()
        finally:
            ended.release()
        return RowPage([], None)

    async with (
        serve(None, port=0, limits=Limits(stop_seconds=0.5), access_log=log) as server,
        aiohttp.ClientSession() as session,
    ):
        api = Api(session, root_of(server))
        await api("POST", "/Tables", {"TableName": "Tab"})
        monkeypatch.setattr(Engine, "query", query)
        for _ in range(20):
            wire = await Wire.connect(server, head("GET", "/Tab()"))
            await began.acquire()
            await wire.close()
            async with asyncio.timeout(10):
                await ended.acquire()

    entries = [json.loads(line) for line in log.getvalue().splitlines()]
    assert [(entry["operation"], entry["code"]) for entry in entries[1:]] == [("QueryEntities", "ClientGone")] * 20


SHAPES = {
    "or": " or ".join(f"A{n} eq {n}" for n in range(400)),
    "pairs": " or ".join(f"(A{n} eq {n} and B ge '{n}')" for n in range(200)),
    "nots": " and ".join(f"not (A{n} eq '{n}')" for n in range(400)),
    "deep": "".join(f"(A{n} gt {n} {('and', 'or')[n % 2]} " for n in range(60))
    + "(" + " or ".join(f"C{n} eq {n}" for n in range(340)) + ")" + ")" * 60,
}  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("path", ["/Tab()", "/Tables"])
async def test_a_long_filter_is_read_in_steps(api: Api, monkeypatch: pytest.MonkeyPatch, path: str, shape: str) -> None:
    """Of the 400 comparisons that a filter may have, those of a slice of time are read in one turn, and none twice."""
    turns = Turns()
    monkeypatch.setattr("tableorm_local.engine.engine.time", Clock(0.0000201))

    def compare(name: str, op: Op, constant: Constant) -> Compare:
        turns.add()
        return Compare(name, op, constant)

    monkeypatch.setattr(filter_text, "Compare", compare)
    async with turns.watched():
        reply = await api("GET", path, query=f"$filter={SHAPES[shape]}".replace(" ", "%20"))

    assert reply.status == (200 if path == "/Tab()" else 400)
    # A parenthesis that is closed is a step as well, and so fewer comparisons fit into a turn.
    assert (turns.all, turns.most) == (400, {"pairs": 34, "nots": 25}.get(shape, 50))


@pytest.mark.parametrize("shape", SHAPES)
def test_a_long_filter_is_not_compiled(monkeypatch: pytest.MonkeyPatch, shape: str) -> None:
    """For a long filter no program text is made, which Python would need milliseconds to compile; the rows are same."""
    tree = parse_filter(SHAPES[shape])
    rows: list[Row] = [{f"A{n}": n % 3 and n, f"C{n}": n, "B": str(n % 7)} for n in range(0, 400, 3)]
    rows += [row | {f"A{n}": str(n) for n in range(0, 400, 7)} for row in rows]

    def make(node: Filter) -> Callable[[Row], bool]:
        raise AssertionError(node)

    monkeypatch.setattr(filters, "_make_matcher", make)
    for node in (tree, Not(tree)):
        test, expected = matcher(node), compile_filter(node)
        assert [test(row) for row in rows] == [expected(row) is True for row in rows]


def test_ranges_of_keys_are_found_in_one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each comparison of keys is looked at once, however deep it stands."""
    bounds = list[Bounds]()
    real = scan.row_interval

    def count(given: Bounds) -> scan.Interval:
        bounds.append(given)
        return real(given)

    monkeypatch.setattr(scan, "row_interval", count)
    deep = "".join(f"(RowKey gt '{n}' {('and', 'or')[n % 2]} " for n in range(60)) + "A" + ")" * 60
    scan.filter_intervals(parse_filter(deep))

    assert len(bounds) == 60
