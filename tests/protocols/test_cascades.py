"""
Deleting an entity whose children are in other partitions, by workers of which each may crash or be slow.

The delete marks the entity and inserts the decision row, in one transaction. A worker reads a page of children, looks
at the decision and then at the entity, and deletes the page under its ETags. When it finds no child any more, one
transaction deletes the entity as it was before they were sought, and notes that in the decision row; then it looks for
children once more. Whoever inserts a child looks at nothing. Others move the entity away, and insert another one under
its key with a child of its own.
"""

from typing import Any, NamedTuple

import pytest

from tests.protocols.explorer import (
    ANY_FAULT,
    LOST,
    OK,
    Ack,
    Client,
    Get,
    Goto,
    Key,
    Program,
    Put,
    Row,
    Run,
    Take,
    World,
    committed_is_left,
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

PARENT: Key = ("p", "parent")
MOVED: Key = ("p", "moved")
OLD: Key = ("c", "there from the beginning")
NEW: Key = ("c", "inserted by others")


def decision_of(token: str) -> Key:
    return ("p", f"~o_{token}")


# The protocol; `broken` names a rule that a run leaves out.


def begin(token: str, broken: str) -> Program:
    """Ring, then mark the entity and insert the decision row, in one transaction; unless somebody else has."""
    if (yield Put((token,))) == LOST:
        return "refused"
    parent = yield Get(PARENT)
    mark = None if parent is None else parent.get("mark")
    if mark is not None and (yield Get(decision_of(mark))) is not None:
        return "refused"  # it is being deleted already
    if parent is not None and parent.get("life") == 1:
        marked = replace(PARENT, values(life=parent.get("life"), mark=token), parent.etag)
        if broken == "parent first":
            marked = delete(PARENT, parent.etag)
        outcome, _ = yield together(marked, insert(decision_of(token), values(state="committed")))
        return "begun" if outcome == OK else "refused"
    return "refused"


def work(broken: str) -> Program:
    """Take messages until there are no more."""
    message = yield Take()
    if message is None:
        return "idle"
    (token,) = message
    while True:
        decision = yield Get(decision_of(token))
        if decision is not None:
            break
        if (yield insert(decision_of(token), values(state="void")))[0] == OK:
            break
    if decision is None or decision.get("state") == "void":
        yield Ack(message)
        return Goto(work, (broken,))
    return Goto(cascade, (token, broken))


def is_on(token: str, decision: Row | None, parent: Row | None, broken: str) -> bool:
    """Return whether the entity is still the one that is deleted; or, when that is gone, whether there is no other."""
    if decision is None or decision.get("state") == "void":
        return False
    if decision.get("gone"):
        return parent is None
    return parent is not None and (parent.get("mark") == token or broken == "mark")


def cascade(token: str, broken: str) -> Program:
    """Go round once: a page of children, or the entity."""
    again = Goto(cascade, (token, broken))
    decision = yield Get(decision_of(token))
    parent = yield Get(PARENT)
    if decision is None or decision.get("state") == "void":
        yield Ack((token,))
        return Goto(work, (broken,))
    if not is_on(token, decision, parent, broken):
        return Goto(end, (token, decision.etag, broken))
    page = {OLD: (yield Get(OLD)), NEW: (yield Get(NEW))}
    found = {key: row for key, row in page.items() if row is not None}
    if found:
        if broken == "look before":
            looked = decision, parent
        elif broken == "no look at the decision":
            looked = decision, (yield Get(PARENT))
        else:
            looked = (yield Get(decision_of(token))), (yield Get(PARENT))
        if is_on(token, *looked, broken):
            for key, row in found.items():
                yield delete(key, "*" if broken == "children blindly" else row.etag)
        return again
    if decision.get("gone"):
        return Goto(end, (token, decision.etag, broken))
    gone = delete(PARENT, parent.etag)
    if broken == "no last look":
        yield together(gone, delete(decision_of(token), decision.etag))
    elif broken == "delete alone":
        if (yield gone)[0] == OK:
            yield replace(decision_of(token), values(state="committed", gone=True), decision.etag)
    else:
        yield together(gone, replace(decision_of(token), values(state="committed", gone=True), decision.etag))
    return again


def end(token: str, decision: str, broken: str) -> Program:
    """Delete the decision row under its ETag, then the message; go on if somebody else has got on meanwhile."""
    outcome, _ = yield delete(decision_of(token), "*" if broken == "end blindly" else decision)
    if outcome != OK:
        return Goto(cascade, (token, broken))
    yield Ack((token,))
    return Goto(work, (broken,))


# Others


def insert_child() -> Program:
    """Insert a child, whatever has become of its parent."""
    yield insert(NEW, values(life=1))
    return "inserted"


def change() -> Program:
    """Change the entity, which keeps its mark."""
    parent = yield Get(PARENT)
    if parent is not None:
        yield replace(PARENT, values(life=parent.get("life"), mark=parent.get("mark"), note="new"), parent.etag)
    return "changed"


def revive(child: Key) -> Program:
    """Move the entity away, or find it gone; insert another one under its key, and a child of that."""
    parent = yield Get(PARENT)
    if parent is not None:
        outcome, _ = yield together(delete(PARENT, parent.etag), insert(MOVED, ()))
        if outcome != OK:
            return "refused"
    if (yield insert(PARENT, values(life=2)))[0] != OK:
        return "refused"
    outcome, _ = yield insert(child, values(life=2))
    return "revived" if outcome == OK else "refused"


def rebuild() -> Program:
    """When all is over, insert a child, and then another parent under the key of the old one."""
    if (yield Get(PARENT)) is not None or (yield Get(decision_of("t"))) is not None:
        return "too early"
    yield insert(NEW, values(life=2))
    yield insert(PARENT, values(life=2))
    return "revived"


# What must hold


class Seen(NamedTuple):
    """What has happened so far."""

    late: bool = False  # the child of others came when the entity was gone
    was_there: bool = False


def watch(world: World) -> Seen:
    """Note whether the child came when its parent was gone."""
    seen: Seen = world.history or Seen()
    is_there = NEW in world.rows
    came = is_there and not seen.was_there
    return Seen((PARENT not in world.rows) if came else seen.late, is_there)


def no_orphans(world: World) -> str | None:
    """A child that was there from the beginning is never without its parent."""
    if OLD in world.rows and PARENT not in world.rows and MOVED not in world.rows:
        return "a child has lost its parent"
    return None


def all_is_gone(world: World) -> str | None:
    """The entity is gone, and each child that came before that; another entity and its child are there."""
    if left := committed_is_left(world):
        return left
    parent, child, seen = world.rows.get(PARENT), world.rows.get(NEW), world.history
    if "revived" in world.results.values():
        lives = [row.get("life") for key, row in world.rows.items() if key in (PARENT, OLD, NEW)]
        if lives.count(2) != 2:
            return "another entity was deleted, or its child"
        return None
    if "begun" not in world.results.values():
        return None
    if MOVED not in world.rows and (parent is not None or OLD in world.rows):
        return "the entity is left, or its child"
    return "a child is left that came in time" if child is not None and not seen.late and parent is None else None


ROWS: dict[Key, Row] = {PARENT: Row("E", values(life=1)), OLD: Row("E2", values(life=1))}
INSERTER = Client("C", insert_child, fails=False)
CHANGER = Client("C", change, fails=False)
REVIVER = Client("R", revive, (NEW,), fails=False)
SAME_CHILD = Client("R", revive, (OLD,), fails=False)
REBUILDER = Client("R", rebuild, fails=False)


def starter(name: str = "A", token: str = "t", broken: str = "", *, fails: bool = True) -> Client:
    return Client(name, begin, (token, broken), fails)


def worker(name: str, broken: str = "", *, fails: bool = True) -> Client:
    return Client(name, work, (broken,), fails)


run_of = run_with(rows=ROWS, watch=watch, always=no_orphans, at_end=all_is_gone)


def run(title: str, *others: Client, broken: str = "", **faults: Any) -> Run:
    return run_of(title, *others, worker("W", broken, fails=False), **faults)


CALM = starter(fails=False)
NEEDS_TWO = ("delete alone", "end blindly", "no look at the decision", "children blindly")
"""The rules that matter when there are two workers."""


@pytest.mark.one_of(3)
@runs(
    run("a starter that meets any fault", starter(), **ANY_FAULT),
    run("others insert a child", CALM, INSERTER),
    run("two workers, of which one crashes, or misses a reply", CALM, worker("V"), lost=1, crash=1),
    run("another entity under its key", CALM, REVIVER),
    run("two workers, and a child", CALM, worker("V"), INSERTER, crash=1, large=True),
    run("two workers, and a change", CALM, worker("V"), CHANGER, crash=1, large=True),
    run("two workers, and another entity with the same child", CALM, worker("V"), SAME_CHILD, large=True),
    run("two workers, and another entity when all is over", CALM, worker("V"), REBUILDER, large=True),
    run("two deletes, and another entity", CALM, starter("B", "u", fails=False), REVIVER, large=True),
    run("a request that comes late, and another entity", CALM, worker("V"), REVIVER, late=1, large=True),
)
def test_children_go_with_their_parent(run: Run) -> None:
    """
    Whoever crashes, is slow, or writes meanwhile: no child that was there loses its parent before it goes itself; at
    rest all that came in time are gone, and another entity under the key has its children.
    """
    verify(run)


@pytest.mark.one_of(4)
@pytest.mark.parametrize(
    ("broken", "other", "problem"),
    [
        ("parent first", INSERTER, "a child has lost its parent"),
        ("no last look", INSERTER, "a child is left that came in time"),
        ("delete alone", INSERTER, "a child is left that came in time"),
        ("end blindly", INSERTER, "a child is left that came in time"),
        ("mark", REVIVER, "another entity was deleted, or its child"),
        ("look before", REVIVER, "another entity was deleted, or its child"),
        ("no look at the decision", REBUILDER, "another entity was deleted, or its child"),
        ("children blindly", SAME_CHILD, "another entity was deleted, or its child"),
    ],
)
def test_without_a_rule_it_goes_wrong(broken: str, other: Client, problem: str) -> None:
    """Without one of the rules a child is left, or what was inserted since is deleted."""
    clients = [starter(broken=broken, fails=False), other]
    clients += [worker("V", broken)] if broken in NEEDS_TWO else []
    trace = find_violation(run(broken, *clients, broken=broken, crash=1))

    assert trace[-1].endswith(problem)
