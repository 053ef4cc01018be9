"""
What changes have in common that leave work in other partitions: a message is put, then the change commits together with
a decision row that says what is left to do. A worker that takes the message carries it out, or makes the change void.
"""

from collections.abc import Callable

from tests.protocols.explorer import (
    EXISTS,
    LOST,
    Ack,
    Get,
    Goto,
    Key,
    Program,
    Take,
    delete,
    insert,
    is_committed,
    values,
)

Change = tuple[str, str]
"""Partition and token of a change, which are its message too."""

CarryOut = Callable[..., Program]
"""What is done for a change that has committed; it takes the change, its work, whether for a worker, and `broken`."""


def decision_of(change: Change) -> Key:
    return (change[0], f"~o_{change[1]}")


def decide(change: Change, works: bool, broken: str, carry_out: CarryOut) -> Program:
    """Find out what became of a change, after a lost reply or for a message; make it void if it has not committed."""
    decision = yield Get(decision_of(change))
    if decision is None:
        outcome, _ = yield insert(decision_of(change), values(state="void"))
        if outcome in (LOST, EXISTS):
            return Goto(decide, (change, works, broken, carry_out))
    elif is_committed(decision):
        return Goto(carry_out, (change, decision.get("work"), works, broken))
    yield Ack(change)
    return Goto(work, (broken, carry_out)) if works else "unknown"


def forget(change: Change, again: Goto, works: bool, broken: str, carry_out: CarryOut) -> Program:
    """Delete the decision row of a change that is carried out, then its message; do all `again` if that is in doubt."""
    decision = yield Get(decision_of(change))
    if is_committed(decision):
        outcome, _ = yield delete(decision_of(change), decision.etag)
        if outcome == LOST:
            return again
    yield Ack(change)
    return Goto(work, (broken, carry_out)) if works else "done"


def work(broken: str, carry_out: CarryOut) -> Program:
    """Take messages until there are no more."""
    message = yield Take()
    return "idle" if message is None else Goto(decide, (message, True, broken, carry_out))
