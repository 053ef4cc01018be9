"""
Old code, which knows the old key of an entity that is moved alone; and what must hold, whoever does what.
"""

from itertools import pairwise
from typing import Any

from tests.protocols.explorer import EXISTS, Get, Program, Row, World
from tests.protocols.rekeying import (
    LIVE,
    NEW,
    OLD,
    TENTATIVE,
    entry_of,
    has_committed,
    is_forward,
    is_live,
    is_tentative,
    live,
    put,
    reply_of,
)

# Old code, which knows the old key alone


def old_change(text: str | None) -> Program:
    here = yield Get(OLD)
    if here is None or here.get("state") != LIVE:
        return "nothing here"
    outcome, _ = yield put(OLD, here, None if text is None else live(here.get("text") + text))
    return reply_of(outcome)


def old_create(text: str) -> Program:
    outcome, _ = yield put(OLD, None, live(text))
    return "exists" if outcome == EXISTS else reply_of(outcome)


def old_upsert(text: str) -> Program:
    """Write the row whatever is there."""
    here = yield Get(OLD)
    outcome, _ = yield put(OLD, None if here is None else Row("*", here.content), live(text))
    return "exists" if outcome == EXISTS else reply_of(outcome)


def old_force_delete() -> Program:
    """Delete the row whatever it is."""
    here = yield Get(OLD)
    if here is None:
        return "nothing here"
    outcome, _ = yield put(OLD, Row("*", here.content), None)
    return reply_of(outcome)


# What must hold


def homes(world: World) -> list[str]:
    """Return the texts of all rows that are the entity."""
    found: list[str] = []
    for key, other in ((OLD, NEW), (NEW, OLD)):
        row = world.rows.get(key)
        if row is not None and (is_live(row) or has_committed(row, world.rows.get(other))):
            found.append(row.get("text"))
    return found


def watch(world: World) -> Any:
    """Return the texts that the entity had so far, and those that the reader could have seen since it began."""
    found = homes(world)
    return remember(world, None if not found else found[0] if len(found) == 1 else "TWICE")


def remember(world: World, now: Any) -> Any:
    """Add what there is now to what there was so far, and to what the reader could have seen since it began."""
    past, seen = world.history or ((), frozenset[Any]())
    if not past or past[-1] != now:
        past = (*past, now)
    if "R" in world.running or ("R" in world.results and not seen):
        seen |= {now}
    return past, seen


def judge(world: World, *, sealed: bool = False, rows: bool = True) -> str | None:
    """Return what is wrong with a state for users, and with its `rows`."""
    past, seen = world.history
    if past[-1] == "TWICE":
        return f"it is live twice: {homes(world)}"
    there = [text for text in past if text is not None]
    if len(set(there)) != len(there):
        return f"a state came back: {past}"
    deleted = any(
        name.startswith("X") and world.results.get(name) != "nothing here" for name in (*world.results, *world.running)
    )
    for before, after in pairwise(past):
        if before is not None and after is not None and not after.startswith(before):
            return f"a write was overwritten: {past}"
        if before is not None and after is None and not deleted:
            return f"it is lost: {past}"
    if any(text.count(letter) > 1 for text in there for letter in text):
        return f"a write was applied twice: {past}"
    found: Any = world.results.get("R")
    if isinstance(found, tuple) and found[1] not in seen:
        return f"{found[1]!r} was read, which was never there"
    return judge_rows(world, sealed=sealed) if rows else None


def judge_rows(world: World, *, sealed: bool) -> str | None:
    """Return what is wrong with the rows."""
    here, there = world.rows.get(OLD), world.rows.get(NEW)
    if is_live(there) and here is None and not sealed:
        return "the old key is free, though the entity is at the new one"
    if here is not None and is_forward(here) and here.get("move") is not None and not sealed:
        if there is None or there.get("move") != here.get("move"):
            return "a forward names a move of which there is no row"
        if there.get("text") != here.get("text"):
            return "a row that was moved has another text than its forward"
    for key in (OLD, NEW):
        row, entry = world.rows.get(key), world.rows.get(entry_of(key))
        wanted = None if row is None or is_forward(row) else is_tentative(row)
        if wanted != (None if entry is None else entry.get("state") == TENTATIVE):
            return f"the entry of {key} is wrong"
    return None


LETTERS = dict(zip("UVSWIJEKLACOQ", "uvswijeklacpq", strict=True))
"""What the clients with these names write."""


def judge_end(world: World) -> str | None:
    """Return what is wrong when all clients have ended: what they were told."""
    past = world.history[0]
    for name, result in world.results.items():
        letter = LETTERS.get(name)
        applied = any(letter in (text or "") for text in past) if letter else None
        if applied is False and result == "done":
            return f"{name} was told that it is done, and it was not applied"
        if applied and result in ("conflict", "exists", "nothing here"):
            return f"{name} was told {result!r}, and it was applied"
        if name.startswith("X") and result == "done" and None not in past:
            return "a delete was told that it is done, and it was not"
        if name == "B" and result == "done" and not {"M", "XM"} & world.results.keys() and homes_at_new(world):
            return "it was rolled back, and is still at the new key"
        if (
            name == "Z"
            and result == "done"
            and not {"I", "J"} & world.results.keys()
            and world.rows.get(OLD) is not None
        ):
            return "it is final, and there is still a row at the old key"
    return None


def homes_at_new(world: World) -> bool:
    there = world.rows.get(NEW)
    return is_live(there) or has_committed(there, world.rows.get(OLD))
