"""
The checker of protocols finds the faults that it is for, each by a shortest trace.
"""

from collections.abc import Callable

import pytest

from tests.protocols.explorer import (
    LOST,
    OK,
    Ack,
    Client,
    Get,
    Goto,
    Program,
    Put,
    Row,
    Run,
    Take,
    World,
    find_violation,
    replace,
    upsert,
    values,
    verify,
)

COUNTER = ("p", "counter")


def add_if_unchanged() -> Program:
    row = yield Get(COUNTER)
    outcome, _ = yield replace(COUNTER, values(n=row.get("n") + 1), row.etag)
    yield Put(("added",))
    return outcome if outcome in (OK, LOST) else Goto(add_if_unchanged, ())


def add_blindly() -> Program:
    row = yield Get(COUNTER)
    outcome, _ = yield upsert(COUNTER, values(n=row.get("n") + 1))
    return outcome


def count_is_right(world: World) -> str | None:
    added, count = list(world.results.values()).count(OK), world.rows[COUNTER].get("n")
    return None if count == added else f"{added} were added, and the count is {count}"


def two_add(program: Callable[..., Program], *, lost: int = 0, late: int = 0, crash: int = 0) -> Run:
    return Run(
        title="two add",
        rows={COUNTER: Row("e", values(n=0))},
        clients=(Client("A", program), Client("B", program)),
        lost=lost,
        late=late,
        crash=crash,
        at_end=count_is_right,
    )


def test_a_right_protocol_holds() -> None:
    """Two clients that add under the ETag they have read never lose an addition."""
    verify(two_add(add_if_unchanged))


def test_a_lost_update_is_found() -> None:
    """Two clients that write blindly lose one: both read, then both write."""
    trace = find_violation(two_add(add_blindly))

    assert trace[-1] == "2 were added, and the count is 1"
    assert [step.split()[0] for step in trace[:-1]] == ["A", "B", "A", "B"]


@pytest.mark.parametrize("fault", ["lost", "late", "crash"])
def test_each_fault_is_tried(fault: str) -> None:
    """A write is applied although its client knows nothing of it, by each kind of fault."""
    trace = find_violation(two_add(add_if_unchanged, **{fault: 1}))

    assert trace[-1] in ("0 were added, and the count is 1", "1 were added, and the count is 2")


def test_a_run_that_should_break_and_holds() -> None:
    """A rule that is broken without harm is reported: its run proves nothing."""
    with pytest.raises(AssertionError, match=r"two add: none of [0-9]+ states is wrong"):
        find_violation(two_add(add_if_unchanged))


def work() -> Program:
    message = yield Take()
    if message is None:
        return "idle"
    yield Ack(message)
    return Goto(work, ())


def send() -> Program:
    yield Put(("a",))
    return "sent"


def test_a_worker_ends_when_nobody_puts() -> None:
    """A worker takes each message, and ends when the others have ended and none is left."""

    def judge(world: World) -> str | None:
        return None if world.results == {"A": "sent", "W": "idle"} else f"{world.results}"

    verify(Run(title="a worker", clients=(Client("A", send), Client("W", work)), at_end=judge))
