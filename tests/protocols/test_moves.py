"""
Moves of an entity between two partitions: one attempt has one id and one ETag of the source.

The source is marked first, as leaving to the target by this attempt: a command that the source does not confirm moves
nothing, nor does a tentative row that it does not name end its move. A later write of the entity removes the mark.

The target gets a tentative row, which is an entity if and only if the source is the forward of the same attempt. The
one commit is the replacement of the source by that forward, under the ETag that the tentative row names. Then the
target is confirmed, which is done only on a forward that was read after the tentative row; the forward is deleted, and
the mark of the confirmed row is cleared.
"""

from collections.abc import Callable
from typing import Any

import pytest

from tests.protocols.explorer import (
    ANY_FAULT,
    EXISTS,
    LOST,
    MISSING,
    OK,
    STALE,
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
    delete,
    find_violation,
    insert,
    replace,
    run_with,
    runs,
    values,
    verify,
)
from tests.protocols.rekey_rules import remember

SOURCE: Key = ("s", "x")
TARGET: Key = ("d", "x")
OTHER: Key = ("d2", "x")
PLACES = (SOURCE, TARGET, OTHER)

VISITING = "v"
"""The text of an entity that comes and goes, of which nobody takes notice."""

LIVE, TENTATIVE, CONFIRMED, FORWARD = "live", "tentative", "confirmed", "forward"

Move = tuple[str, Key, Key, str, str]
"""The message of a move: its id, the two keys, the ETag of the source, and the text."""

Then = tuple[Any, ...] | None
"""
What comes after a move: ("acknowledge", its message), ("work", its message and a rule that is left out), ("goto", a
program and its arguments), or nothing.
"""


def is_forward(row: Row | None, move: str) -> bool:
    return row is not None and row.get("state") == FORWARD and row.get("move") == move


# The protocol; `broken` names a rule that a run leaves out.


def attempt(move: str, source: Key, target: Key, etag: str, text: str, then: Then, broken: str = "") -> Program:
    """Make the tentative row and commit; anybody may do it, at any time and any number of times."""
    again = Goto(attempt, (move, source, target, etag, text, then, broken))
    here = yield Get(source)
    if is_forward(here, move):
        return Goto(promote, (move, source, target, then, broken))
    if here is None or here.etag != etag or (broken != "mark" and here.get("leaving") != (move, target)):
        return Goto(give_up, (move, source, target, then))
    state = LIVE if broken == "tentative" else TENTATIVE
    outcome, _ = yield insert(target, values(state=state, move=move, etag=etag, text=text, source=source))
    if outcome == EXISTS:
        there = yield Get(target)
        if there is None:
            return again
        if there.get("move") != move:
            if there.get("state") == TENTATIVE:
                return Goto(resolve, (target, (attempt, again.arguments)))
            if broken == "taken":
                return (yield from end(then, "target exists"))
            # Without its mark nobody carries out the command any more: also not the writer, when no message is left.
            content = values(state=LIVE, text=here.get("text"), tokens=here.get("tokens"))
            outcome, _ = yield replace(source, content, here.etag)
            return (yield from end(then, "target exists")) if outcome == OK else again
    elif outcome == LOST:
        return again
    if broken == "tentative":
        outcome, _ = yield delete(source, etag)
        return (yield from end(then, "moved" if outcome == OK else "conflict"))
    outcome, _ = yield replace(source, values(state=FORWARD, move=move, target=target), etag)
    return Goto(promote, (move, source, target, then, broken)) if outcome == OK else again


def give_up(move: str, source: Key, target: Key, then: Then) -> Program:
    """End an attempt whose source has changed: it was done long ago, or can never commit."""
    there = yield Get(target)
    state = there.get("state") if there is not None and there.get("move") == move else None
    if state == CONFIRMED:
        return Goto(promote, (move, source, target, then, ""))
    if there is not None and state == TENTATIVE:
        outcome, _ = yield delete(target, there.etag)  # fails if somebody has confirmed it meanwhile
        if outcome != OK:
            return Goto(give_up, (move, source, target, then))
    moved = there is not None and move in (there.get("tokens") or ())
    return (yield from end(then, "moved" if moved else "conflict or unknown"))


def promote(move: str, source: Key, target: Key, then: Then, broken: str = "") -> Program:
    """Confirm the target, delete the forward, clear the mark. A forward that was seen earlier proves nothing."""
    again = Goto(promote, (move, source, target, then, broken))
    there = yield Get(target)
    here = yield Get(source)
    committed = is_forward(here, move)
    if there is not None and there.get("move") == move and there.get("state") == TENTATIVE:
        if committed or broken == "order":
            content = values(
                state=LIVE if broken == "confirm" else CONFIRMED,
                move=None if broken == "confirm" else move,
                text=there.get("text"),
                source=source,
                tokens=(move,),
            )
            yield replace(target, content, there.etag)
        else:
            yield delete(target, there.etag)  # of somebody who is late: the move was completed long ago
        return again
    if committed:
        yield delete(source, here.etag)
        return again
    if there is not None and there.get("move") == move and there.get("state") == CONFIRMED:
        content = values(state=LIVE, text=there.get("text"), tokens=there.get("tokens"))
        outcome, _ = yield replace(target, content, there.etag)
        if outcome == LOST:
            return again
    return (yield from end(then, "moved"))


def resolve(key: Key, following: tuple[Any, Any]) -> Program:
    """Help the move of a tentative row that is in the way if it has committed; else make its commit impossible."""
    row = yield Get(key)
    if row is not None and row.get("state") == TENTATIVE:
        here = yield Get(row.get("source"))
        if is_forward(here, row.get("move")):
            return Goto(promote, (row.get("move"), row.get("source"), key, ("goto", following)))
        if here is not None and here.etag == row.get("etag") and here.get("leaving") == (row.get("move"), key):
            outcome, _ = yield replace(row.get("source"), here.content, here.etag)  # the same under a new ETag
            if outcome != OK:
                return Goto(resolve, (key, following))
        yield delete(key, row.etag)
    return Goto(*following)


def end(then: Then, result: str) -> Program:
    if then is None:
        return result
    if then[0] == "goto":
        return Goto(*then[1])
    yield Ack(then[1])
    return Goto(work, (then[2],)) if then[0] == "work" else result


def work(broken: str = "") -> Program:
    """Take messages until there are no more."""
    message = yield Take()
    return "idle" if message is None else Goto(attempt, (*message, ("work", message, broken), broken))


def drop_forward(row: Row) -> Program:
    """Delete the forward of a confirmed row, which is never written while that is there; return whether it was."""
    if row.get("state") != CONFIRMED:
        return False
    here = yield Get(row.get("source"))
    if is_forward(here, row.get("move")):
        yield delete(row.get("source"), here.etag)
        return True
    return False


def start(move: str, source: Key, target: Key, rings: bool, broken: str = "") -> Program:
    """Mark an entity, and move it; with a message, by which a worker can do it too."""
    again = Goto(start, (move, source, target, rings, broken))
    row = yield Get(source)
    if row is None or row.get("state") not in (LIVE, CONFIRMED):
        return "not found"
    if (yield from drop_forward(row)):
        return again
    content = values(state=LIVE, text=row.get("text"), tokens=row.get("tokens"), leaving=(move, target))
    outcome, etag = yield replace(source, content, row.etag)
    if outcome == LOST:
        row = yield Get(source)
        if row is None or row.get("leaving") != (move, target):
            return "unknown"
        etag = row.etag
    elif outcome != OK:
        return "conflict"
    message = (move, source, target, etag, row.get("text"))
    if rings and (yield Put(message)) == LOST:
        return "nothing" if broken == "message" else Goto(withdraw, (message, broken))
    return Goto(attempt, (*message, ("acknowledge", message) if rings else None, broken))


def withdraw(message: Move, broken: str) -> Program:
    """End a move that has met trouble: without its mark nobody commits it; if that is gone, the rows say more."""
    _, source, _, etag, text = message
    outcome, _ = yield replace(source, values(state=LIVE, text=text), etag)
    if outcome == OK or broken == "gone":
        yield Ack(message)
        return "nothing"
    return "unknown" if outcome == LOST else Goto(attempt, (*message, ("acknowledge", message), broken))


def in_trouble(program: Callable[..., Program], arguments: tuple[Any, ...]) -> Program:
    """Go on after a read that was rejected, which is nobody's fault, and which no repetition has cured."""
    if program is start:
        return "nothing"  # nobody knows of the move
    if program is resolve:
        return (yield from in_trouble(*arguments[1]))
    thens: list[Any] = [each for each in arguments if isinstance(each, tuple)]
    message: Move = next(each[1] for each in thens if each[0] == "acknowledge")
    return (yield from withdraw(message, arguments[-1]))


# Users


def change(key: Key, text: str | None) -> Program:
    """Append text to an entity, or delete it for None, in one attempt under the ETag that was read."""
    again = Goto(change, (key, text))
    row = yield Get(key)
    if row is None or row.get("state") == FORWARD:
        return "not found"
    if row.get("state") == TENTATIVE:
        here = yield Get(row.get("source"))
        if is_forward(here, row.get("move")):
            return Goto(promote, (row.get("move"), row.get("source"), key, ("goto", tuple(again))))
        return "not found" if (yield Get(key)) == row else again
    if (yield from drop_forward(row)):
        return again
    content = None if text is None else values(state=LIVE, text=row.get("text") + text, tokens=row.get("tokens"))
    outcome, _ = yield delete(key, row.etag) if content is None else replace(key, content, row.etag)
    return {OK: "done", LOST: "unknown", STALE: "conflict", MISSING: "conflict"}[outcome]


def put_new(key: Key, text: str) -> Program:
    """Insert another entity."""
    outcome, _ = yield insert(key, values(state=LIVE, text=text))
    if outcome == EXISTS:
        row = yield Get(key)
        if row is not None and row.get("state") == TENTATIVE:
            return Goto(resolve, (key, (put_new, (key, text))))
        return "exists"
    return "done" if outcome == OK else "unknown"


def visit(key: Key) -> Program:
    """Insert another entity, and delete it again."""
    outcome, etag = yield insert(key, values(state=LIVE, text=VISITING))
    if outcome == OK:
        yield delete(key, etag)
    return "gone"


def forge(move: str, target: Key) -> Program:
    """Put a command that nobody has given, as somebody does who may put messages and may not write the entity."""
    row = yield Get(SOURCE)
    yield Put((move, SOURCE, target, row.etag, row.get("text")))
    return "forged"


def read(key: Key) -> Program:
    """Read by key, as every reader does of a model that can be moved."""
    while True:
        row = yield Get(key)
        if row is None or row.get("state") == FORWARD:
            return ("read", key, None)
        if row.get("state") != TENTATIVE:
            return ("read", key, row.get("text"))
        here = yield Get(row.get("source"))
        if is_forward(here, row.get("move")):
            return ("read", key, row.get("text"))
        if (yield Get(key)) == row:
            return ("read", key, None)


# What must hold


def text_at(world: World, key: Key) -> str | None:
    """Return the text of the entity that is live at a key; None if none is."""
    row = world.rows.get(key)
    if row is None or row.get("state") == FORWARD:
        return None
    if row.get("state") == TENTATIVE and not is_forward(world.rows.get(row.get("source")), row.get("move")):
        return None
    text: str = row.get("text")
    return text


def watch(world: World) -> Any:
    """Return what was live where so far, and what the reader could have seen since it began."""
    texts = [text_at(world, key) for key in PLACES]
    return remember(world, tuple(None if text == VISITING else text for text in texts))


def always(world: World) -> str | None:
    """The entity that was stored first has one home, and no state comes back."""
    past, seen = world.history
    if len(set(past)) != len(past):
        return f"a state came back: {past}"
    now = past[-1]
    homes = [text for text in now if text is not None and text.startswith("o")]
    if len(homes) > 1:
        return f"it is live twice: {now}"
    deleted = any(result in ("done", "unknown", "crashed") for name, result in world.results.items() if name == "X")
    if not homes and not deleted and "X" not in world.running:
        return f"it is lost: {now}"
    found: Any = world.results.get("R")
    if found is not None and found != "crashed":
        _, key, text = found
        if text not in {state[PLACES.index(key)] for state in seen}:
            return f"{text!r} was read, which was never there"
    return None


def at_end(world: World) -> str | None:
    """No acknowledged update is lost, no refused one was applied, and no forward is left."""
    past: tuple[tuple[str | None, ...], ...] = world.history[0]
    updated = [any("u" in (text or "") for text in state) for state in past]
    for name, result in world.results.items():
        if name == "U" and result == "done" and not (updated[-1] or (any(updated) and "X" in world.results)):
            return "an acknowledged update was lost"
        if name == "U" and result == "conflict" and any(updated):
            return "a refused update was applied"
        if name == "A" and result == "nothing" and any(state[1] or state[2] for state in past):
            return "A was told that nothing was written, and it was moved"
        if name in ("A", "B") and result == "moved" and not any(state[1] or state[2] for state in past):
            return f"{name} was told that it has moved, which was not so"
    if "F" in world.results and past[-1][2]:
        return "it was moved by a command that the source does not confirm"
    return "a forward is left" if any(row.get("state") == FORWARD for row in world.rows.values()) else None


STORED: dict[Key, Row] = {SOURCE: Row("e0", values(state=LIVE, text="o", leaving=("m1", TARGET)))}
"""Somebody has marked the entity, and has died or goes on."""


def goes_on(name: str, broken: str = "") -> Client:
    """Return a client that carries out the move of which the entity has the mark."""
    return Client(name, attempt, ("m1", SOURCE, TARGET, "e0", "o", None, broken))


def moves(name: str, move: str, target: Key) -> Client:
    """Return a client that moves the entity, without a message."""
    return Client(name, start, (move, SOURCE, target, False))


MOVE, SAME = goes_on("A"), goes_on("B")
WITH_MESSAGE = Client("A", start, ("m1", SOURCE, TARGET, True), refused=in_trouble)
WORKER = Client("W", work, fails=False)
FORGER = Client("F", forge, ("m9", OTHER))
VISITOR = Client("V", visit, (TARGET,), fails=False)
USERS = {
    "an update of the source": Client("U", change, (SOURCE, "u")),
    "a delete of the source": Client("X", change, (SOURCE, None)),
    "an update of the target": Client("U", change, (TARGET, "u")),
    "a delete of the target": Client("X", change, (TARGET, None)),
    "an insert at the target": Client("I", put_new, (TARGET, "i")),
    "a reader of the source": Client("R", read, (SOURCE,)),
    "a reader of the target": Client("R", read, (TARGET,)),
    "a move to a third place": moves("B", "m2", OTHER),
    "another move to the same place": moves("B", "m2", TARGET),
}


run_of = run_with(rows=STORED, always=always, watch=watch)

STEADY = {title: user._replace(fails=False) for title, user in USERS.items()}
"""The same users, whose requests meet no fault."""


@pytest.mark.one_of(3)
@runs(
    *(run_of(f"{title}, a crash", MOVE, user, crash=1) for title, user in USERS.items()),
    *(run_of(f"{title}, with any fault", MOVE, user, **ANY_FAULT, large=True) for title, user in USERS.items()),
    *(
        run_of(f"{title}, moved by two, a crash", MOVE, SAME, user, crash=1, large=True)
        for title, user in STEADY.items()
        if user.name != "B"
    ),
    *(
        run_of(f"{title}, moved by two, a lost request", MOVE, SAME, user, lost=1, large=True)
        for title, user in [*STEADY.items()][:2]
    ),
    run_of("recovery after a crash", WITH_MESSAGE, WORKER, crash=1, at_end=at_end),
    run_of("a read that is rejected", WITH_MESSAGE, WORKER, unread=1, at_end=at_end),
    run_of("reads and writes that fail", WITH_MESSAGE, WORKER, lost=1, unread=1, at_end=at_end, large=True),
    *(
        run_of(f"{title}, and reads that fail", WITH_MESSAGE, user, WORKER, unread=1, at_end=at_end, large=True)
        for title, user in [*STEADY.items()][:2]
    ),
    run_of("a visitor, and recovery", WITH_MESSAGE, VISITOR, WORKER, crash=1, at_end=at_end),
    run_of("a forged command", FORGER, WORKER, at_end=at_end),
    run_of("recovery after any fault", WITH_MESSAGE, WORKER, **ANY_FAULT, at_end=at_end, large=True),
    *(
        run_of(f"{title}, and recovery", WITH_MESSAGE, user, WORKER, crash=1, at_end=at_end, large=True)
        for title, user in STEADY.items()
    ),
    *(
        run_of(
            f"{title}, and recovery after a lost request", WITH_MESSAGE, user, WORKER, lost=1, at_end=at_end, large=True
        )
        for title, user in [*STEADY.items()][:4]
    ),
)
def test_an_entity_has_one_home(run: Run) -> None:
    """At every moment the entity is in exactly one place; no update is lost, and nothing comes back."""
    verify(run)


PROBLEMS = {
    "the copy is live at once": "it is live twice: ('o', 'o', None)",
    "a tentative row becomes live at once": "a state came back",
    "a forward that was seen earlier": "a state came back",
    "the mark is left when the new key is taken": "a forward is left",
    "a message in doubt counts as none": "A was told that nothing was written",
    "a mark that is gone counts as removed": "A was told that nothing was written",
    "the mark is not looked at": "it was moved by a command that the source does not confirm",
}


@runs(
    run_of(
        "the copy is live at once",
        Client("A", start, ("m1", SOURCE, TARGET, True, "tentative")),
        USERS["an update of the source"],
        WORKER,
    ),
    run_of(
        "a tentative row becomes live at once",
        goes_on("A", "confirm"),
        goes_on("B", "confirm"),
        USERS["a delete of the target"],
    ),
    run_of(
        "a forward that was seen earlier",
        goes_on("A", "order"),
        goes_on("B", "order"),
        USERS["a delete of the target"],
        large=True,
    ),
    run_of(
        "the mark is left when the new key is taken",
        WITH_MESSAGE,
        VISITOR,
        Client("W", work, ("taken",), fails=False),
        crash=1,
        at_end=at_end,
    ),
    run_of(
        "a message in doubt counts as none",
        Client("A", start, ("m1", SOURCE, TARGET, True, "message")),
        WORKER,
        lost=1,
        at_end=at_end,
    ),
    run_of(
        "a mark that is gone counts as removed",
        Client("A", start, ("m1", SOURCE, TARGET, True, "gone"), refused=in_trouble),
        WORKER,
        unread=1,
        at_end=at_end,
    ),
    run_of("the mark is not looked at", FORGER, Client("W", work, ("mark",), fails=False), at_end=at_end),
)
def test_each_rule_is_needed(run: Run) -> None:
    """
    A protocol without one of the rules has two homes for an entity, brings back one that was deleted, moves one that
    nobody has asked to move, or leaves a move that no worker ends.
    """
    assert find_violation(run)[-1].startswith(PROBLEMS[run.title])
