"""
A re-key of several entities: two that become one, and movers that share a range.

A mover takes a range, moves what is in it, and stores how far it is. Another one may take it over at any time: what it
moves is safe by itself. All goes through the range again until nothing is found by a pass that has begun after the last
insert at an old key.
"""

from tests.protocols.explorer import (
    EXISTS,
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
    find_violation,
    replace,
    run_with,
    runs,
    values,
    verify,
)
from tests.protocols.rekeying import NEW, OLD, has_committed, is_live, live, move, put, reply_of

OTHER: Key = ("old2", "y")
"""The old key of another entity, which has the same new key."""

RANGE: Key = ("runs", "range")
SOURCES: tuple[Key, ...] = (("old", "a"), ("old", "b"))
TARGETS: tuple[Key, ...] = (("new a", "a"), ("new b", "b"))


def stored(**texts: str) -> dict[Key, Row]:
    """Return the rows of entities at old keys, with their entries."""
    keys = {"o": OLD, "p": OTHER, "a": SOURCES[0], "b": SOURCES[1]}
    rows: dict[Key, Row] = {}
    for name, text in texts.items():
        rows |= {each.key: Row(f"e{name}", each.content) for each in put(keys[name], None, live(text)).operations}
    return rows


# Two entities with one new key


def judge_two(world: World) -> str | None:
    """Both entities are there, each of them once."""
    there = world.rows.get(NEW)
    found = [row.get("text") for key in (OLD, OTHER) if (row := world.rows.get(key)) is not None and is_live(row)]
    if there is not None and (is_live(there) or has_committed(there, world.rows.get(there.get("old") or OLD))):
        found.append(there.get("text"))
    return None if sorted(found) == ["o", "p"] else f"there are {found}"


def judge_collision(world: World) -> str | None:
    """A mover was told of the collision if its entity has its old key still, and was not if it has the new one."""
    for name, result in world.results.items():
        stays = is_live(world.rows.get(OTHER if name == "N" else OLD))
        if result in ("moved", "nothing here", "collision") and stays != (result == "collision"):
            return f"{name} was told {result!r}"
    return None


@runs(
    *(
        Run(
            title=title,
            rows=stored(o="o", p="p"),
            clients=(
                Client("M", move, ("m", left)),
                Client("N", move, ("n", left, None, "", OTHER)),
                *((Client("V", move, ("v", 1)),) if three else ()),
            ),
            lost=lost,
            late=lost,
            crash=1,
            always=judge_two,
            at_end=judge_collision,
            large=three or lost > 0,
        )
        for title, left, three, lost in (
            ("two movers", 2, False, 0),
            ("three movers", 1, True, 0),
            ("two movers with any fault", 1, False, 1),
        )
    )
)
def test_an_entity_does_not_replace_another(run: Run) -> None:
    """Of two entities with the same new key one gets it. The other one stays at its old key, and its mover says so."""
    verify(run)


# Movers that share a range


def work(name: str, left: int, broken: str = "") -> Program:
    """Take the range, from whomever, and go on where it was left; wait for the others before the last pass."""
    row = yield Get(RANGE)
    if row.get("done"):
        return "done"
    if left == 0:
        return "gave up"
    state = {field: value for field, value in row.content if field != "owner"}
    outcome, etag = yield replace(RANGE, values(**state, owner=name), row.etag)
    if outcome != OK:
        return Goto(work, (name, left - 1, broken))
    return Goto(work_on, (name, left, etag, row.get("cursor"), row.get("found"), row.get("last"), broken))


def work_on(name: str, left: int, etag: str, cursor: int, found: bool, last: bool, broken: str) -> Program:
    """Move the next entity and store that; at the end of a pass begin another one, unless it was the last."""
    if cursor < len(SOURCES):
        old, new = SOURCES[cursor], TARGETS[cursor]
        if is_live((yield Get(old))):
            return Goto(move, (name, 1, Goto(store, (name, left, etag, cursor + 1, True, last, broken)), "", old, new))
        return Goto(store, (name, left, etag, cursor + 1, found, last, broken))
    if not last:
        yield Take()  # None when all others have ended: no program inserts at an old key any more
        return Goto(store, (name, left, etag, len(SOURCES) if broken == "pass" else 0, False, True, broken))
    if found:
        return Goto(store, (name, left, etag, 0, False, True, broken))
    outcome, _ = yield replace(RANGE, values(done=True), etag)
    return "done" if outcome == OK else Goto(work, (name, left - 1, broken))


def store(name: str, left: int, etag: str, cursor: int, found: bool, last: bool, broken: str) -> Program:
    """Store how far the pass is; if somebody else has the range, begin again."""
    content = values(owner=name, cursor=cursor, found=found, last=last)
    outcome, etag = yield replace(RANGE, content, etag)
    if outcome != OK:
        return Goto(work, (name, left - 1, broken))
    return Goto(work_on, (name, left, etag, cursor, found, last, broken))


def insert_early(key: Key, text: str) -> Program:
    """Insert an entity at its old key."""
    outcome, _ = yield put(key, None, live(text))
    return "exists" if outcome == EXISTS else reply_of(outcome)


def judge_range(world: World) -> str | None:
    """All that was stored is there; and when the range is done, all of it has its new key."""
    found = [world.rows[key].get("text") for key in (*SOURCES, *TARGETS) if is_live(world.rows.get(key))]
    for old, new in zip(SOURCES, TARGETS, strict=True):
        there = world.rows.get(new)
        if there is not None and has_committed(there, world.rows.get(old)):
            found.append(there.get("text"))
    if len(set(found)) != len(found) or "b" not in found or (world.results.get("E") == "done" and "a" not in found):
        return f"there are {found}"
    row = world.rows[RANGE]
    left = [key for key in SOURCES if is_live(world.rows.get(key))]
    return f"the range is done, and {left} is at its old key" if row.get("done") and left else None


WORKER, WORKER_2 = Client("M", work, ("m", 2)), Client("N", work, ("n", 2))
INSERTER = Client("E", insert_early, (SOURCES[0], "a"), fails=False)


range_run = run_with(
    rows=stored(b="b") | {RANGE: Row("r0", values(cursor=0, found=False, last=False))}, always=judge_range
)


@runs(
    range_run("a worker", WORKER, INSERTER, crash=1),
    range_run("two workers, a crash", WORKER, WORKER_2, crash=1, large=True),
    range_run("two workers, an insert", WORKER, WORKER_2, INSERTER, crash=1, large=True),
    range_run("two workers, a lost request", WORKER, WORKER_2, lost=1, large=True),
)
def test_a_range_is_done_when_all_have_moved(run: Run) -> None:
    """A range that is done holds no entity at an old key, also after an insert behind the mover, or a lost lease."""
    verify(run)


def test_the_last_pass_begins_after_the_last_insert() -> None:
    """A pass that has begun before the last insert may leave that behind."""
    run = range_run("a pass that goes on", Client("M", work, ("m", 2, "pass")), INSERTER)
    assert find_violation(run)[-1].startswith("the range is done, and [('old', 'a')]")
