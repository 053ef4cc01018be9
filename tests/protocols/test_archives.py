"""
Archiving an entity out of its database: it is copied, then deleted, by workers of which each may crash or be slow.

A worker looks for the copy, then reads the row, then the decision. It writes the copy under the ETag that it found, and
deletes the row under the ETag that it copied; the same transaction notes in the decision row that it is done. The copy
is elsewhere, where no transaction reaches. Others change the entity meanwhile, delete it, and insert another one under
its key. The first try writes the copy only where there is none, and needs no look at anything but the row.
"""

from typing import Any, NamedTuple

import pytest

from tests.protocols.explorer import (
    ANY_FAULT,
    EXISTS,
    MISSING,
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

ENTITY: Key = ("p", "entity")
DECISION: Key = ("p", "~o_t")
DELETED: Key = ("p", "deleted by its user")
COPY: Key = ("archive", "copy of t")
MESSAGE = ("t",)
DONE = values(state="committed", done=True)


# The protocol; `broken` names a rule that a run leaves out.


def start() -> Program:
    """Ring, then touch the entity and start the workflow, in one transaction."""
    yield Put(MESSAGE)
    touched = replace(ENTITY, values(value="old"), "E")
    yield together(touched, insert(DECISION, values(state="committed")))
    return "begun"


def work(broken: str) -> Program:
    """Take messages until there are no more."""
    if (yield Take()) is None:
        return "idle"
    while True:
        decision = yield Get(DECISION)
        if decision is not None:
            break
        if (yield insert(DECISION, values(state="void")))[0] == OK:
            break
    if decision is None or decision.get("state") == "void":
        yield Ack(MESSAGE)
        return Goto(work, (broken,))
    return Goto(end if decision.get("done") else make_copy, (decision.etag, broken))


def make_copy(decision: str, broken: str) -> Program:
    """Copy the row where there is no copy yet."""
    row = yield Get(ENTITY)
    if row is None:
        return Goto(make_again, (broken,))
    outcome, _ = yield insert(COPY, row.content)
    if outcome != OK:
        return Goto(make_again, (broken,))
    return Goto(remove, (row.etag, decision, broken))


def make_again(broken: str) -> Program:
    """Look for the copy, for the row, and for the decision; then copy the row again, or remove what nobody needs."""
    row = (yield Get(ENTITY)) if broken == "row before copy" else None
    copy = yield Get(COPY)
    row = row if broken == "row before copy" else (yield Get(ENTITY))
    decision = yield Get(DECISION)
    if broken == "no look at the decision" and decision is None and row is not None:
        decision = Row("?", ())
    # A void one is by somebody who was late: it says that there was none any more.
    if decision is None or (decision.get("state") == "void" and broken != "void"):
        yield Ack(MESSAGE)
        return Goto(work, (broken,))
    if decision.get("done"):
        return Goto(end, (decision.etag, broken))
    if row is None:
        if copy is not None:
            yield delete(COPY, "*" if broken == "remove blindly" else copy.etag)
        outcome, etag = yield replace(DECISION, DONE, decision.etag)
        return Goto(end, (etag, broken)) if outcome == OK else Goto(work, (broken,))
    outcome, _ = yield insert(COPY, row.content) if copy is None else replace(COPY, row.content, copy.etag)
    if outcome != OK:
        return Goto(make_again, (broken,))
    return Goto(remove, (row.etag, decision.etag, broken))


def remove(row: str, decision: str, broken: str) -> Program:
    """Delete the entity that was copied, and note it."""
    gone = delete(ENTITY, "*" if broken == "delete blindly" else row)
    if broken == "delete alone":
        outcome, _ = yield gone
        if outcome == OK:
            outcome, decision = yield replace(DECISION, DONE, decision)
    else:
        outcome, decision = yield together(gone, replace(DECISION, DONE, decision))
    return Goto(end, (decision, broken)) if outcome == OK else Goto(make_again, (broken,))


def end(decision: str, broken: str) -> Program:
    """Delete the decision row, then the message."""
    outcome, _ = yield delete(DECISION, decision)
    if outcome in (OK, MISSING):
        yield Ack(MESSAGE)
    return Goto(work, (broken,))


# Others


def change() -> Program:
    """Change the entity if it is there."""
    row = yield Get(ENTITY)
    if row is not None:
        yield replace(ENTITY, values(value="new"), row.etag)
    return "changed"


def insert_anew() -> Program:
    """Delete the entity, or find it gone, and insert another one under its key."""
    row = yield Get(ENTITY)
    if row is not None:
        yield together(delete(ENTITY, row.etag), insert(DELETED, ()))
    outcome, _ = yield insert(ENTITY, values(value="another"))
    return "inserted" if outcome != EXISTS else "refused"


# What must hold


class Seen(NamedTuple):
    """What has become of the entities so far."""

    present: str | None = "old"
    deleted: bool = False
    archived: str | None = None
    vanished: str | None = None


def watch(world: World) -> Seen:
    """Note which entity was archived, and which one is gone that nobody has deleted nor archived."""
    seen: Seen = world.history or Seen()
    row, decision = world.rows.get(ENTITY), world.rows.get(DECISION)
    present, deleted = None if row is None else row.get("value"), DELETED in world.rows
    if seen.present is not None and present is None and deleted == seen.deleted:
        if decision is not None and decision.get("done"):
            return seen._replace(present=None, archived=seen.present)
        return seen._replace(present=None, vanished=seen.present)
    return seen._replace(present=present, deleted=deleted)


def nothing_is_lost(world: World) -> str | None:
    """Whatever was deleted to be archived is in the archive from then on, as it was when it was deleted."""
    seen: Seen = world.history
    if seen.vanished is not None:
        return f"{seen.vanished!r} was deleted apart from the decision row"
    copy = world.rows.get(COPY)
    found = None if copy is None else copy.get("value")
    return None if seen.archived in (None, found) else f"{seen.archived!r} was archived, and its copy is {found!r}"


ROWS: dict[Key, Row] = {ENTITY: Row("E", values(value="old"))}
STARTER = Client("A", start, fails=False)
CHANGER, OTHER = Client("C", change, fails=False), Client("D", insert_anew, fails=False)


def worker(name: str, broken: str = "", *, fails: bool = True) -> Client:
    return Client(name, work, (broken,), fails)


run_of = run_with(rows=ROWS, watch=watch, always=nothing_is_lost, at_end=committed_is_left)


def run(title: str, *others: Client, broken: str = "", **faults: Any) -> Run:
    return run_of(title, STARTER, *others, worker("W", broken, fails=False), **faults)


@pytest.mark.one_of(3)
@runs(
    run("two workers, of which one crashes, or misses a reply", worker("V"), lost=1, crash=1),
    run("two workers, of which one meets any fault", worker("V"), **ANY_FAULT, large=True),
    run("others change the entity", worker("V"), CHANGER, crash=1),
    run("others delete the entity, and insert another", worker("V"), OTHER, crash=1),
    run("all of them", worker("V"), CHANGER, OTHER, crash=1, large=True),
    run("others insert another, and a request is late", worker("V"), OTHER, late=1, large=True),
)
def test_what_is_deleted_is_in_the_archive(run: Run) -> None:
    """Whoever crashes, is slow, or writes meanwhile: what is deleted has a copy that is as it was, and keeps it."""
    verify(run)


@pytest.mark.one_of(5)
@pytest.mark.parametrize(
    ("broken", "other", "problem"),
    [
        ("delete blindly", CHANGER, "'new' was archived, and its copy is 'old'"),
        ("delete alone", OTHER, "was deleted apart from the decision row"),
        ("row before copy", CHANGER, "'new' was archived, and its copy is 'old'"),
        ("no look at the decision", OTHER, "'old' was archived, and its copy is 'another'"),
        ("remove blindly", OTHER, "'another' was archived, and its copy is None"),
    ],
)
def test_without_a_rule_it_goes_wrong(broken: str, other: Client, problem: str) -> None:
    """Without one of the conditions, or in another order, an entity is deleted that the archive does not have."""
    trace = find_violation(run(broken, worker("V", broken), other, broken=broken, crash=1))

    assert trace[-1].endswith(problem)
