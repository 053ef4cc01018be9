"""
Change feeds: writers of one partition note their changes under numbers without a gap, while others read and trim.

A writer reads the counter and writes it under its ETag, in one transaction with the row of the change. A reader reads
the counter first, then the rows up to what it counts. Whoever trims deletes rows in the transaction that notes it in
the counter.
"""

from collections.abc import Sequence
from typing import cast

import pytest

from tests.protocols.explorer import (
    ANY_FAULT,
    LOST,
    OK,
    Client,
    Get,
    Goto,
    Key,
    Program,
    Run,
    World,
    delete,
    find_violation,
    insert,
    replace,
    run_with,
    runs,
    together,
    upsert,
    values,
    verify,
)

COUNTER: Key = ("p", "~f_counter")


def change_key(number: int) -> Key:
    """Return the key of the row of a change."""
    return ("p", f"~f_{number}")


# The protocol; `broken` names a rule that a run leaves out.


def note(name: str, broken: str = "") -> Program:
    """Read the counter, and note a change under the next number."""
    row = yield Get(COUNTER)
    last, trimmed, etag = (0, 0, "") if row is None else (row.get("last"), row.get("trimmed"), row.etag)
    return Goto(send, (name, last + 1, trimmed, etag, False, broken))


def send(name: str, number: int, trimmed: int, etag: str, doubt: bool, broken: str) -> Program:
    """Send the transaction, and the same again if its reply was lost."""
    counter = values(last=number, trimmed=trimmed)
    counted = replace(COUNTER, counter, etag) if etag else insert(COUNTER, counter)
    noted = insert(change_key(number), values(by=name))
    if broken == "condition":
        counted, noted = upsert(COUNTER, counter), upsert(change_key(number), values(by=name))
    outcome, _ = yield together(counted, noted)
    if outcome == OK:
        return "done"
    if outcome == LOST:
        return Goto(send, (name, number, trimmed, etag, True, broken))
    if not doubt or broken == "doubt":
        return Goto(note, (name, broken))
    there = yield Get(change_key(number))
    if there is None:
        return "unknown"  # it was trimmed since
    # What somebody else has noted under the number is there for good: no request of ours can be applied any more.
    return "done" if there.get("by") == name else Goto(note, (name, broken))


def read(seen: tuple[str, ...], number: int, passes: int, broken: str = "") -> Program:
    """Read what follows a number, pass by pass; a reader that began behind a change that was trimmed is told."""
    if not passes:
        return seen
    counter = yield Get(COUNTER)
    if counter is not None and counter.get("trimmed") > number and broken != "trimmed":
        return (*seen, "too old")
    last = 0 if counter is None else counter.get("last")
    if broken == "counter":
        last = WRITERS  # it reads on behind what was counted when it began
    while number < last:
        row = yield Get(change_key(number + 1))
        if row is None and broken not in ("trimmed", "counter"):
            return Goto(read, (seen, number, passes, broken))  # it was trimmed meanwhile
        number += 1
        seen = seen if row is None else (*seen, row.get("by"))
    return Goto(read, (seen, number, passes - 1, broken))


def trim(times: int, broken: str = "") -> Program:
    """Delete the oldest change, and note it in the counter."""
    counter = yield Get(COUNTER)
    if not times or counter is None or counter.get("last") == counter.get("trimmed"):
        return "trimmed"
    oldest = counter.get("trimmed") + 1
    gone = delete(change_key(oldest), "*")
    noted = replace(COUNTER, values(last=counter.get("last"), trimmed=oldest), counter.etag)
    yield gone if broken == "in the counter" else together(noted, gone)
    return Goto(trim, (times - 1, broken))


# What must hold

WRITERS = 3


def watch(world: World) -> tuple[str | None, ...]:
    """Return who has noted which number, also of the changes that are trimmed by now."""
    before: Sequence[str | None] = world.history or ()
    rows = [world.rows.get(change_key(number)) for number in range(1, WRITERS + 3)]
    pairs = zip(rows, [*before, *[None] * len(rows)], strict=False)
    return tuple(was if row is None or was is not None else row.get("by") for row, was in pairs)


def in_order(world: World) -> str | None:
    """Numbers have no gap, each change is noted once, and readers see a part of them in order."""
    noted = [by for by in world.history if by is not None]
    if any(by is not None for by in world.history[len(noted) :]):
        return "a number is left out"
    if len({*noted}) < len(noted):
        return "a change is noted twice"
    for name, result in world.results.items():
        if result == "done" and name not in noted:
            return "a change is lost"
        if isinstance(result, tuple):
            seen = [each for each in cast("tuple[str, ...]", result) if each != "too old"]
            if seen != noted[: len(seen)]:
                return "a reader has missed a change"
    return None


def none_is_left_out(world: World) -> str | None:
    """Whoever was told that the change is noted, or could not know, has noted it once; others not at all."""
    trimmed = world.rows[COUNTER].get("trimmed") if COUNTER in world.rows else 0
    last = world.rows[COUNTER].get("last") if COUNTER in world.rows else 0
    there = [number for number in range(1, WRITERS + 3) if change_key(number) in world.rows]
    return None if there == [*range(trimmed + 1, last + 1)] else "the rows are not those that the counter says"


A, B, C = (Client(name, note, (name,)) for name in "ABC")
READER = Client("R", read, ((), 0, 2), fails=False)
TRIMMER = Client("T", trim, (1,))


run = run_with(watch=watch, always=in_order, at_end=none_is_left_out)


@runs(
    run("two writers and a reader", A, B, READER),
    run("two writers, replies are lost", A, B, lost=2),
    run("two writers, a request is late", A, B, lost=1, late=1),
    run("two writers, a reader and any fault", A, B, READER, **ANY_FAULT, large=True),
    run("one writer, one who trims and a reader", A, TRIMMER, READER),
    run("one who trims, and any fault", A, B, TRIMMER, **ANY_FAULT, large=True),
    run("two writers, one who trims, a reader, a request is late", A, B, TRIMMER, READER, lost=1, late=1, large=True),
    run("three writers, replies are lost", A, B, C, lost=1, late=1, large=True),
)
def test_each_change_is_noted_once_and_read_in_order(run: Run) -> None:
    """Whatever is lost or late, numbers have no gap, and a reader misses no change without being told."""
    verify(run)


@pytest.mark.parametrize(
    ("run", "problem"),
    [
        (run("the counter has no condition", Client("A", note, ("A", "condition")), B), "a change is lost"),
        (run("doubt is taken for a refusal", Client("A", note, ("A", "doubt")), B, lost=1), "a change is noted twice"),
        (
            run("a reader reads behind the counter", A, B, Client("R", read, ((), 0, 1, "counter"))),
            "a reader has missed a change",
        ),
        (
            run("a reader does not ask what was trimmed", A, B, TRIMMER, Client("R", read, ((), 0, 1, "trimmed"))),
            "a reader has missed a change",
        ),
        (
            run("the counter does not say what was trimmed", A, Client("T", trim, (1, "in the counter"))),
            "the rows are not those that the counter says",
        ),
    ],
)
def test_each_rule_is_needed(run: Run, problem: str) -> None:
    """Without one of its rules a change is lost, noted twice, or passed over."""
    assert find_violation(run)[-1] == problem
