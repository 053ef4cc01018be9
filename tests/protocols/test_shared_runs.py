"""
A run that several processes share: its ranges are taken, worked on, taken over, and done, and the run ends once.

A row says what the run is; a row for each range says who works on it, how far it is, and what was counted. All are
inserted together. Who works on a range has taken it by a write under its ETag, and tells how far it is in the same way.
Anybody may take a range over at any time, as if its row had stood still for long; who had it before goes on until its
next write is rejected. A range of the second phase is begun when all of the first phase are done. Who finds all ranges
done ends the run and deletes their rows, in one transaction under the ETags of all. A run that has ended may be begun
anew, as another generation.
"""

from typing import Any, NamedTuple

import pytest

from tests.protocols.explorer import (
    OK,
    Client,
    Get,
    Goto,
    Key,
    Program,
    Row,
    Run,
    Take,
    World,
    delete,
    find_violation,
    insert,
    replace,
    run_with,
    runs,
    together,
    values,
    verify,
)

RUN: Key = ("run", "run")
FIRST: Key = ("run", "range of phase 1")
SECOND: Key = ("run", "range of phase 2")
ITEMS: dict[Key, tuple[Key, ...]] = {FIRST: (("data", "a"), ("data", "b")), SECOND: (("data", "c"),)}


class Worker(NamedTuple):
    """
    A process.

    Args:
        name: The owner of what it takes.
        take_overs: How many ranges it takes over that another one has; any number if negative.
        anew: Whether it begins the run anew if that has ended.
        broken: The rule that it leaves out; "" for none.
    """

    name: str
    take_overs: int = 0
    anew: bool = False
    broken: str = ""


# The protocol


def begin(generation: int, run: Row | None) -> Any:
    """Write the run and its ranges."""
    content = values(state="open", generation=generation)
    return together(
        insert(RUN, content) if run is None else replace(RUN, content, run.etag),
        *(insert(key, values(generation=generation, at=0, entities=0, written=0)) for key in ITEMS),
    )


def look(worker: Worker) -> Program:
    """Read all rows, then take a range, end the run, or begin it."""
    ranges: dict[Key, Row] = {}
    for key in ITEMS:
        row = yield Get(key)
        if row is not None:
            ranges[key] = row
    run = yield Get(RUN)
    if run is None:
        yield begin(1, None)
        return Goto(look, (worker,))
    if run.get("state") == "ended":
        if not worker.anew or run.get("generation") > 1:
            return "ended"
        yield begin(2, run)
        return Goto(look, (worker._replace(anew=False),))
    if worker.broken != "generations" or len(ranges) < len(ITEMS):
        ranges = {key: row for key, row in ranges.items() if row.get("generation") == run.get("generation")}
        if len(ranges) < len(ITEMS):
            return Goto(look, (worker,))  # the rows are of several moments
    left = [key for key, row in ranges.items() if row.get("at") < len(ITEMS[key])]
    if not left:
        return Goto(end, (worker, run, tuple(ranges.items())))
    key = left[-1] if worker.broken == "phases" else left[0]
    row = ranges[key]
    if row.get("owner") is not None:
        if not worker.take_overs:
            return "waits"
        worker = worker._replace(take_overs=worker.take_overs - 1)
    taken = change(row, owner=worker.name, take=row.etag)
    outcome, etag = yield replace(key, taken, row.etag)
    return Goto(work, (worker, key, Row(etag, taken))) if outcome == OK else Goto(look, (worker,))


def work(worker: Worker, key: Key, row: Row) -> Program:
    """Work on one item of a range that was taken, and tell of it."""
    at: int = row.get("at")
    item = ITEMS[key][at]
    stored = yield Get(item)
    written = 0
    if stored.get("value") == "old":
        outcome, _ = yield replace(item, values(value="new"), stored.etag)
        if outcome != OK:
            return Goto(work, (worker, key, row))
        written = 1
    counts = {"entities": row.get("entities") + 1, "written": row.get("written") + written}
    return Goto(tell, (worker, key, row, change(row, at=at + 1, **counts)))


def tell(worker: Worker, key: Key, row: Row, done: Any) -> Program:
    """Write how far a range is, under the ETag that it has if it is still ours."""
    while True:
        outcome, etag = yield replace(key, done, "*" if worker.broken == "blindly" else row.etag)
        if outcome == OK:
            break
        stored = yield Get(key)
        if stored is None or (stored.get("take") != row.get("take") and worker.broken != "owners"):
            return Goto(look, (worker,))
        row = stored  # a write whose reply was lost
    at = dict(done)["at"]
    return Goto(work, (worker, key, Row(etag, done))) if at < len(ITEMS[key]) else Goto(look, (worker,))


def end(worker: Worker, run: Row, ranges: tuple[tuple[Key, Row], ...]) -> Program:
    """End a run of which all ranges are done."""
    totals = {name: sum(row.get(name) for _, row in ranges) for name in ("entities", "written")}
    ended = values(state="ended", generation=run.get("generation"), **totals)
    if worker.broken == "end apart":
        yield replace(RUN, ended, "*")
        for key, row in ranges:
            yield delete(key, row.etag)
    else:
        yield together(replace(RUN, ended, run.etag), *(delete(key, row.etag) for key, row in ranges))
    return Goto(look, (worker,))


def change(row: Row, **changes: Any) -> Any:
    """Return the content of a row with some properties changed."""
    return values(**{**dict(row.content), **changes})


def sweep(worker: Worker) -> Program:
    """Wait until all others have ended or crashed, then go on from what they have left."""
    yield Take()
    return Goto(look, (worker,))


# What must hold


class Seen(NamedTuple):
    """What has happened so far."""

    etag: str | None = None
    ends: int = 0
    generation: int = 0


def watch(world: World) -> Seen:
    """Count how often the run has ended."""
    seen: Seen = world.history or Seen()
    run = world.rows.get(RUN)
    if run is None or run.etag == seen.etag:
        return seen
    return Seen(run.etag, seen.ends + (run.get("state") == "ended"), run.get("generation"))


def phases_follow(world: World) -> str | None:
    """The second phase begins when the first has ended; a run ends once, and counts each entity once."""
    seen: Seen = world.history
    first, second, run = (world.rows.get(key) for key in (FIRST, SECOND, RUN))
    if (
        second is not None
        and (second.get("owner") or second.get("at"))
        and (first is None or first.get("at") < len(ITEMS[FIRST]))
    ):
        return "the second phase has begun before the first has ended"
    if seen.ends > seen.generation:
        return "the run has ended twice"
    if run is not None and run.get("state") == "ended":
        if first is not None or second is not None:
            return "a range is left of a run that has ended"
        if run.get("entities") != 3:
            return f"{run.get('entities')} of 3 entities were counted"
        if run.get("written") > 3:
            return f"{run.get('written')} of 3 entities were written"
        if any(world.rows[item].get("value") == "old" for items in ITEMS.values() for item in items):
            return "the run has ended, and an entity is left"
    return None


def has_ended(world: World) -> str | None:
    """Whoever is left has ended the run."""
    run = world.rows.get(RUN)
    return None if run is not None and run.get("state") == "ended" else "the run has not ended"


ROWS = {item: Row("0", values(value="old")) for items in ITEMS.values() for item in items}


run_of = run_with(rows=ROWS, watch=watch, always=phases_follow, at_end=has_ended)


def run(title: str, *workers: Worker, broken: str = "", anew: bool = False, **faults: Any) -> Run:
    clients = [Client(each.name, look, (each._replace(broken=broken),)) for each in workers]
    last = Client("last", sweep, (Worker("last", -1, anew=anew, broken=broken),), fails=False)
    return run_of(title, *clients, last, **faults)


A, B = Worker("A"), Worker("B")


@pytest.mark.one_of(3)
@runs(
    run("two processes", A, B),
    run("one that crashes", A, crash=1),
    run("two that crash", A, B._replace(take_overs=1), crash=2, large=True),
    run("one whose replies are lost", A, lost=2),
    run("one whose requests are late", A, late=1),
    run("two that miss a reply, or crash", A, B, lost=1, crash=1, large=True),
    run("two whose requests are late", A, B, late=1, large=True),
    run("two that take over from each other", A._replace(take_overs=1), B._replace(take_overs=1), large=True),
    run("one that begins anew", A, anew=True, crash=1),
    run("one that begins anew beside others", A, B._replace(take_overs=1), anew=True, large=True),
    run("one that begins anew while another is slow", A, B._replace(anew=True), crash=1, large=True),
)
def test_a_run_ends_once_with_all_ranges_done(run: Run) -> None:
    """Whoever crashes, is slow or misses replies: all is done and counted once, and the run ends once."""
    verify(run)


@pytest.mark.one_of(5)
@pytest.mark.parametrize(
    ("broken", "problem", "faults"),
    [
        ("phases", "the second phase has begun before the first has ended", {}),
        ("end apart", "a range is left of a run that has ended", {}),
        ("blindly", "the second phase has begun before the first has ended", {}),
        ("owners", "the second phase has begun before the first has ended", {}),
        ("generations", "the second phase has begun before the first has ended", {"anew": True}),
    ],
)
def test_without_a_rule_it_goes_wrong(broken: str, problem: str, faults: Any) -> None:
    """Without one of the conditions a phase begins early, or what was counted is lost or counted twice."""
    others = (A, B._replace(take_overs=1, anew=broken == "generations"))
    trace = find_violation(run(broken, *others, broken=broken, **faults))

    assert problem in trace[-1]
