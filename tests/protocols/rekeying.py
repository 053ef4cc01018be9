"""
The protocol of a re-key of one entity: it moves from its old key to a new one while everybody goes on to work.

A live row is the entity, or a tentative row (T) whose other key has the forward (F) of the same move. Each step is a
write under a condition, and three of them move the entity: a tentative row at the new key, which names the ETag of the
old one; the forward at the old key under that ETag, which is the commit; the confirmation (C) of the tentative row. The
forward stays, so that old code cannot insert the entity again. Before a confirmed row is written or deleted, the
forward is settled: it names no move any more, and a late repetition of the tentative row brings nothing back.

A roll back does the same in the other direction, where the tentative row replaces the forward.

Each row has an entry of an index in its partition, which is written with it.
"""

from tests.protocols.explorer import (
    EXISTS,
    LOST,
    MISSING,
    OK,
    STALE,
    Get,
    Goto,
    Key,
    Program,
    Row,
    Values,
    Write,
    delete,
    insert,
    replace,
    together,
    values,
)

OLD: Key = ("old", "x")
NEW: Key = ("new", "x")

LIVE, TENTATIVE, CONFIRMED, FORWARD = "live", "tentative", "confirmed", "forward"

# Rows and writes


def is_live(row: Row | None) -> bool:
    return row is not None and row.get("state") in (LIVE, CONFIRMED)


def is_tentative(row: Row | None) -> bool:
    return row is not None and row.get("state") == TENTATIVE


def is_forward(row: Row | None) -> bool:
    return row is not None and row.get("state") == FORWARD


def has_committed(there: Row | None, here: Row | None) -> bool:
    """Return whether a row is tentative, and the other key has the forward of its move."""
    if there is None or here is None or not is_tentative(there) or not is_forward(here):
        return False
    return bool(there.get("move") == here.get("move"))


def live(text: str) -> Values:
    return values(state=LIVE, text=text)


def tentative(move: str, etag: str, text: str, old: Key = OLD) -> Values:
    return values(state=TENTATIVE, move=move, etag=etag, text=text, old=old)


def confirmed(row: Row) -> Values:
    return values(state=CONFIRMED, move=row.get("move"), text=row.get("text"))


def forward(move: str, row: Row) -> Values:
    """Return a forward, which keeps the text and the ETag of the row that it replaces."""
    return values(state=FORWARD, move=move, etag=row.etag, text=row.get("text"))


SETTLED: Values = values(state=FORWARD)
"""A forward that names no move: of an entity that was written or deleted since, or of one that is inserted."""


def entry_of(key: Key) -> Key:
    return key[0], "entry"


def put(key: Key, row: Row | None, content: Values | None) -> Write:
    """Insert, replace or delete a row under the ETag that was read, with its entry."""
    if content is not None:
        main = insert(key, content) if row is None else replace(key, content, row.etag)
    else:
        assert row is not None
        main = delete(key, row.etag)
    had = row is not None and not is_forward(row)
    state = dict(content or ()).get("state", FORWARD)
    if state == FORWARD:
        return together(main, delete(entry_of(key), "*")) if had else main
    entry = values(state=TENTATIVE if state == TENTATIVE else LIVE)
    return together(main, replace(entry_of(key), entry, "*") if had else insert(entry_of(key), entry))


def reply_of(outcome: str) -> str:
    """Return what a user is told of an update or a delete."""
    return {OK: "done", LOST: "unknown", STALE: "conflict", MISSING: "conflict"}[outcome]


# The mover


def move(name: str, left: int, then: Goto | None = None, broken: str = "", old: Key = OLD, new: Key = NEW) -> Program:
    """
    Move the entity to the new key, or end a move of it.

    Args:
        name: What its moves are called.
        left: How often it may begin another one.
        then: What comes after it.
        broken: A rule that is left out.
        old: Its old key.
        new: Its new key.
    """
    again = Goto(move, (name, left, then, broken, old, new))
    fresh = Goto(move, (name, left - 1, then, broken, old, new))
    there = yield Get(new)
    here = yield Get(old)
    if there is not None and has_committed(there, here):
        yield put(new, there, confirmed(there))
        return again
    if here is None or not is_live(here):
        return then or "nothing here"
    if is_live(there):
        return "collision" if (yield Get(new)) == there else again
    if is_forward(there):
        return "rolled back"
    if left == 0:
        return "gave up"
    attempt = f"{name}{left}.{here.etag}"
    etag = "" if there is None else there.etag
    if there is not None and there.get("move") != attempt:
        committed = yield from resolve(there, new, broken)
        return "collision" if committed and there.get("old") != old else fresh
    content = tentative(attempt, here.etag, here.get("text"), old)
    if there is None:
        outcome, etag = yield put(new, None, content)
        if outcome != OK:
            return again
    outcome, _ = yield put(old, here if broken != "etag" else Row("*", here.content), forward(attempt, here))
    if outcome != OK:
        return again if outcome == LOST else fresh
    there = Row(etag, content)
    outcome, _ = yield put(new, there, confirmed(there))
    return then or "moved" if outcome == OK else again


def resolve(there: Row, new: Key = NEW, broken: str = "") -> Program:
    """
    Delete a tentative row that is not the entity; return whether it is. What it builds on, which is read after it, is
    written first: so it never will be.
    """
    old = there.get("old")
    here = yield Get(old)
    if has_committed(there, here):
        return True
    if here is not None and here.etag == there.get("etag") and broken != "touch":
        outcome, _ = yield put(old, here, here.content)  # the same under a new ETag
        if outcome != OK:
            return False
    yield put(new, there, None)
    return False


def resume(name: str, broken: str = "") -> Program:
    """End a move whose forward is found."""
    again = Goto(resume, (name, broken))
    here = yield Get(OLD)
    there = yield Get(NEW)
    if there is None or not has_committed(there, here):
        return "nothing to end"
    if broken != "order" and (yield Get(OLD)) != here:
        return again
    yield put(NEW, there, confirmed(there))
    return again


def repeat() -> Program:
    """Insert the tentative row of a move that was committed long ago, as a late request does."""
    yield put(NEW, None, tentative("z", "ez", "o"))
    return "gone"


# Live code that knows the phase of the move


def write_live(there: Row, text: str | None, broken: str = "") -> Program:
    """Update or delete the entity at the new key; None if somebody else was first to settle its forward."""
    if there.get("state") == CONFIRMED and broken != "settle":
        here = yield Get(OLD)
        if is_forward(here) and here.get("move") == there.get("move"):
            outcome, _ = yield put(OLD, here, SETTLED)
            if outcome != OK:
                return None
    outcome, _ = yield put(NEW, there, None if text is None else live(there.get("text") + text))
    return reply_of(outcome)


def change(name: str, text: str | None, left: int = 2, broken: str = "") -> Program:
    """Append text to the entity, or delete it for None: it is brought home first."""
    again = Goto(change, (name, text, left, broken))
    there = yield Get(NEW)
    if is_live(there):
        return (yield from write_live(there, text, broken)) or again
    here = yield Get(OLD)
    if has_committed(there, here):
        yield put(NEW, there, confirmed(there))
        return again
    if is_forward(there):
        return Goto(change_in_place, (text,))  # it reads the phase again
    if is_live(here):
        if left == 0:
            return "gave up"
        return Goto(move, (name, left, Goto(change, (name, text, left - 1, broken))))
    return "nothing here" if (yield Get(NEW)) == there else again


def change_seen(name: str, text: str) -> Program:
    """Append text to the entity as it was read at its old key, or as it is at the new one since."""
    here = yield Get(OLD)
    if not is_live(here):
        return "nothing here"
    return Goto(move, (name, 1, Goto(change_moved, (here.etag, here.get("text") + text))))


def change_moved(etag: str, text: str) -> Program:
    """Write an entity if it is at the new key as it was under this ETag at the old one."""
    there = yield Get(NEW)
    here = yield Get(OLD)
    if there is None or here is None or there.get("state") != CONFIRMED or here.get("move") != there.get("move"):
        return "conflict"
    if here.get("etag") != etag:
        return "conflict"
    outcome, _ = yield put(OLD, here, SETTLED)
    if outcome != OK:
        return "conflict"
    outcome, _ = yield put(NEW, there, live(text))
    return reply_of(outcome)


def create(name: str, text: str, broken: str = "") -> Program:
    """Insert the entity at the new key; its old key is taken first, by a forward."""
    again = Goto(create, (name, text, broken))
    there = yield Get(NEW)
    if is_live(there):
        return "exists"
    here = yield Get(OLD)
    if has_committed(there, here) or is_live(here):
        return "exists"
    if is_forward(there):
        return Goto(create_in_place, (text,))
    if there is not None:
        yield from resolve(there)
        return again
    if here is None and broken != "take":
        outcome, _ = yield put(OLD, None, SETTLED)
        if outcome != OK:
            return again
    outcome, _ = yield put(NEW, None, live(text))
    return again if outcome == EXISTS else reply_of(outcome)


def read(broken: str = "") -> Program:
    """Read by key, the new one first."""
    while True:
        there = yield Get(NEW)
        if is_live(there):
            return ("read", there.get("text"))
        here = yield Get(OLD)
        if has_committed(there, here):
            return ("read", there.get("text"))
        if is_live(here) or has_committed(here, there):
            return ("read", here.get("text"))
        if broken == "twice":
            return ("read", None)
        # With a mark at the old key it may have come and gone back: then both are read again.
        if (yield Get(NEW)) == there and (here is None or broken == "thrice" or (yield Get(OLD)) == here):
            return ("read", None)


def read_early(broken: str = "") -> Program:
    """Read by key before the move: the old one first."""
    while True:
        here = yield Get(OLD)
        if is_live(here):
            return ("read", here.get("text"))
        there = yield Get(NEW)
        if is_live(there) or has_committed(there, here):
            return ("read", there.get("text"))
        if has_committed(here, there):
            return ("read", here.get("text"))
        if broken == "twice" or (yield Get(OLD)) == here:
            return ("read", None)


# Live code before the move, and while it is rolled back


def change_in_place(text: str | None) -> Program:
    """Append text to the entity, or delete it for None, where it is."""
    again = Goto(change_in_place, (text,))
    there = yield Get(NEW)
    if is_live(there):
        return (yield from write_live(there, text)) or again
    here = yield Get(OLD)
    if has_committed(there, here):
        yield put(NEW, there, confirmed(there))
        return again
    if has_committed(here, there):
        yield put(OLD, here, live(here.get("text")))
        return again
    if here is not None and is_live(here):
        outcome, _ = yield put(OLD, here, None if text is None else live(here.get("text") + text))
        return reply_of(outcome)
    return "nothing here" if (yield Get(NEW)) == there else again


def create_in_place(text: str, broken: str = "") -> Program:
    """Insert the entity at the old key, also over a forward: no live code inserts at the new key any more."""
    again = Goto(create_in_place, (text, broken))
    here = yield Get(OLD)
    there = yield Get(NEW)
    if is_live(here) or is_live(there) or has_committed(here, there):
        return "exists"
    if has_committed(there, here):
        return "exists" if (yield Get(OLD)) == here else again
    if broken == "late":
        here = yield Get(OLD)
    outcome, _ = yield put(OLD, here, live(text))
    return again if outcome in (EXISTS, STALE, MISSING) else reply_of(outcome)


def create_early(name: str, text: str) -> Program:
    """Insert the entity at the old key; the phase has changed if there is a forward."""
    if is_live((yield Get(NEW))):
        return "exists"
    outcome, _ = yield put(OLD, None, live(text))
    if outcome != EXISTS:
        return reply_of(outcome)
    return "exists" if is_live((yield Get(OLD))) else Goto(create, (name, text))


def roll_back(name: str, left: int = 2, broken: str = "") -> Program:
    """Move the entity back, or free the old key of one that was deleted."""
    again, fresh = Goto(roll_back, (name, left, broken)), Goto(roll_back, (name, left - 1, broken))
    here = yield Get(OLD)
    there = yield Get(NEW)
    if here is not None and has_committed(here, there):
        yield put(OLD, here, live(here.get("text")))
        return again
    if there is not None and has_committed(there, here):
        if (yield Get(OLD)) == here:
            yield put(NEW, there, confirmed(there))
        return again
    if there is not None and is_forward(there):
        if broken == "early" or not has_committed((yield Get(OLD)), there):
            yield put(NEW, there, None)
        return again
    if there is not None and is_tentative(there):
        if broken == "early" and here is not None and here.etag != there.get("etag"):
            yield put(NEW, there, None)
        yield from resolve(there)
        return again
    if is_live(here):
        return "done" if there is None else "collision"
    if there is None:
        if here is None:
            return "done"
        if broken == "late":
            here = yield Get(OLD)
        if here is not None:
            yield put(OLD, here, None)
        return again
    if here is None:
        yield put(OLD, None, SETTLED)
        return again
    attempt = f"{name}{left}"
    if here.get("state") == TENTATIVE and here.get("etag") == there.etag:
        yield put(NEW, there, forward(here.get("move"), there))
        return again
    if left == 0:
        return "gave up"
    if is_tentative(here) and broken == "drop":
        yield put(OLD, here, None)
        return fresh
    yield put(OLD, here, tentative(attempt, there.etag, there.get("text")))
    return fresh


def roll_back_seen(name: str, broken: str = "") -> Program:
    """Move back an entity whose row at the new key was read some time ago."""
    there = yield Get(NEW)
    here = yield Get(OLD)
    if there is None or here is None or not is_live(there) or not is_forward(here):
        return Goto(roll_back, (name, 1))
    if broken == "newer" or here.get("move") in (None, there.get("move")):
        yield put(OLD, here, tentative(f"{name}0", there.etag, there.get("text")))
    return Goto(roll_back, (name, 1))


def renew(text: str) -> Program:
    """Delete the entity, insert it at the old key, and move it, as a mover does that does not know of the way back."""
    there = yield Get(NEW)
    if there is None or not is_live(there):
        return "nothing here"
    result = yield from write_live(there, None)
    here = yield Get(OLD)
    if result != "done" or not is_forward(here):
        return result
    outcome, _ = yield put(OLD, here, live(text))
    return Goto(move, ("n", 1, Goto(resume, ("n",)))) if outcome == OK else "conflict"


# Live code when it is sealed


def change_sealed(text: str | None) -> Program:
    """Append text to the entity at the new key, or delete it for None."""
    again = Goto(change_sealed, (text,))
    there = yield Get(NEW)
    if is_live(there):
        return (yield from write_live(there, text)) or again
    if not is_tentative(there):
        return "nothing here"
    if has_committed(there, (yield Get(OLD))):
        yield put(NEW, there, confirmed(there))
        return again
    return "nothing here" if (yield Get(NEW)) == there else again


def create_sealed(text: str) -> Program:
    """Insert the entity at the new key."""
    outcome, _ = yield put(NEW, None, live(text))
    if outcome != EXISTS:
        return reply_of(outcome)
    there = yield Get(NEW)
    if there is not None and is_tentative(there):
        here = yield Get(OLD)
        if has_committed(there, here):
            return "exists"
        yield from resolve(there)
    return "exists" if is_live(there) else Goto(create_sealed, (text,))


def read_sealed() -> Program:
    """Read the new key."""
    while True:
        there = yield Get(NEW)
        if is_live(there):
            return ("read", there.get("text"))
        if there is None or has_committed(there, (yield Get(OLD))):
            return ("read", None if there is None else there.get("text"))
        if (yield Get(NEW)) == there:
            return ("read", None)


def finalize(broken: str = "") -> Program:
    """Delete the forward, after the entity is confirmed; and what is tentative, and never will be the entity."""
    again = Goto(finalize, (broken,))
    here = yield Get(OLD)
    there = yield Get(NEW)
    if is_tentative(there):
        if broken != "order" and (yield Get(OLD)) != here:
            return again
        if has_committed(there, here):
            if broken != "confirm":
                yield put(NEW, there, confirmed(there))
                return again
        else:
            yield put(NEW, there, None)
            return again
    if here is None:
        return "done"
    if not is_forward(here):
        return "not verified"
    yield put(OLD, here, None)
    return again
