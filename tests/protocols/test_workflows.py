"""
Workflows: steps that follow a commit, run by workers of which each may crash or be slow.

The transaction that writes an entity inserts the decision row that starts the workflow, unless a worker has made it
void before. A worker runs a step, then notes in the decision row which one is next, under its ETag; after the last step
it deletes the row under its ETag, then the message. So a step may run twice, and none is left out or comes too early.
"""

import pytest

from tests.protocols.explorer import (
    ANY_FAULT,
    EXISTS,
    LOST,
    MISSING,
    OK,
    Ack,
    Client,
    Get,
    Goto,
    Key,
    Program,
    Put,
    Run,
    Take,
    World,
    committed_is_left,
    delete,
    find_violation,
    insert,
    is_committed,
    replace,
    run_with,
    runs,
    together,
    upsert,
    values,
    verify,
)

ENTITY: Key = ("p", "entity")
DECISION: Key = ("p", "~o_t")
MESSAGE = ("t",)
STEPS = 2


def effect_of(step: int) -> Key:
    """Return the row that a step writes."""
    return (f"s{step}", "k")


# The protocol; `broken` names a rule that a run leaves out.


def start() -> Program:
    """Ring, then commit; whoever does not hear what became of it asks the decision row."""
    if (yield Put(MESSAGE)) == LOST:
        return "refused"
    committed = insert(DECISION, values(state="committed", next=1))
    outcome, _ = yield together(insert(ENTITY, values(value="x")), committed)
    if outcome == OK:
        return "done"
    if outcome == LOST:
        return Goto(decide, ())
    yield Ack(MESSAGE)
    return "refused"


def decide() -> Program:
    """Find out what became of a commit whose reply was lost, and make it void if it has not happened."""
    outcome, _ = yield insert(DECISION, values(state="void"))
    if outcome == LOST:
        return Goto(decide, ())
    if outcome == EXISTS:
        return "done or void"
    yield Ack(MESSAGE)
    return "void"


def work(broken: str) -> Program:
    """Take messages until there are no more."""
    if (yield Take()) is None:
        return "idle"
    while True:
        decision = yield Get(DECISION)
        if is_committed(decision):
            return Goto(run_step, (decision.get("next"), decision.etag, broken))
        if decision is None and broken != "void" and (yield insert(DECISION, values(state="void")))[0] != OK:
            continue
        yield Ack(MESSAGE)
        return Goto(work, (broken,))


def run_step(step: int, etag: str, broken: str) -> Program:
    """Run a step, and note which one is next; a worker that does not hear what became of it tries it all again."""
    if broken == "progress last":
        outcome, etag = yield replace(DECISION, values(state="committed", next=step + 1), etag)
        if outcome != OK:
            return Goto(work, (broken,))
    if (yield upsert(effect_of(step), values(done=True)))[0] == LOST:
        return Goto(work, (broken,))
    if step == STEPS:
        return Goto(forget, (etag, broken))
    if broken == "progress last":
        return Goto(run_step, (step + 1, etag, broken))
    following = values(state="committed", next=step + 1)
    noted = upsert(DECISION, following) if broken == "conditions" else replace(DECISION, following, etag)
    outcome, etag = yield noted
    return Goto(run_step, (step + 1, etag, broken)) if outcome == OK else Goto(work, (broken,))


def forget(etag: str, broken: str) -> Program:
    """Delete the decision row, then the message."""
    outcome, _ = yield delete(DECISION, etag)
    if outcome in (OK, MISSING):
        yield Ack(MESSAGE)
    return Goto(work, (broken,))


# What must hold


def in_order(world: World) -> str | None:
    """No step runs before the commit, nor before the step that precedes it."""
    for step in range(1, STEPS + 1):
        before = ENTITY if step == 1 else effect_of(step - 1)
        if effect_of(step) in world.rows and before not in world.rows:
            return f"step {step} has run too early"
    return None


def all_or_nothing(world: World) -> str | None:
    """If the entity is there, every step has run; otherwise none; and nothing is left to do."""
    done = [step for step in range(1, STEPS + 1) if effect_of(step) in world.rows]
    if len(done) != (STEPS if ENTITY in world.rows else 0):
        return f"of {STEPS} steps {done} have run"
    return committed_is_left(world)


STARTER = Client("A", start)


def worker(name: str, broken: str = "", *, fails: bool = True) -> Client:
    return Client(name, work, (broken,), fails)


STEADY = worker("W", fails=False)
run = run_with(always=in_order, at_end=all_or_nothing)


@runs(
    run("a starter with any fault", STARTER, STEADY, **ANY_FAULT),
    run("two workers, of which one crashes", STARTER, worker("V"), STEADY, crash=1),
    run("two workers, and a request that is lost or late", STARTER, worker("V"), STEADY, lost=1, late=1, large=True),
)
def test_all_steps_follow_a_commit(run: Run) -> None:
    """Whatever crashes, is lost or comes late: after a commit every step runs, in order; without one, none does."""
    verify(run)


@pytest.mark.parametrize(
    ("broken", "problem"),
    [
        ("void", "of 2 steps [] have run"),
        ("conditions", "a decision row is left that is committed"),
        ("progress last", "step 2 has run too early"),
    ],
)
def test_without_a_rule_it_goes_wrong(broken: str, problem: str) -> None:
    """A worker that does not make changes void, notes progress blindly, or before the step, leaves steps out."""
    clients = (STARTER, worker("V", broken), worker("W", broken, fails=False))
    trace = find_violation(run(broken, *clients, crash=1))

    assert trace[-1].endswith(problem)
