"""
Counts across partitions: children of several partitions are counted in a field of an entity of another one.

The transaction that writes a child also replaces the subtotal of its partition, under its ETag, with the next number.
Then the subtotal is copied: a row beside the total says which value, of which number, the total has of that partition.
This row and the total are written in one transaction. So what is copied is a state, and copying it twice does nothing.
"""

from tests.protocols.deferring import Change, decide, decision_of, forget, work
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

WORKER_COPIES = "the worker copies"
"""Given as the rule that is broken: the writer leaves the total to the worker."""

TOTAL: Key = ("t", "total")


def child_of(partition: str) -> Key:
    return (partition, "child")


def subtotal_of(partition: str) -> Key:
    return (partition, "subtotal")


def share_of(partition: str) -> Key:
    return ("t", f"share_{partition}")


def number_of(row: Row | None, name: str) -> int:
    return 0 if row is None else int(row.get(name))


# The protocol; `broken` names a rule that a run leaves out.


def change(partition: str, token: str, comes: bool, broken: str = "") -> Program:
    """Insert the child of a partition, or delete it."""
    key, amount = (partition, token), 1 if comes else -1
    child = yield Get(child_of(partition))
    subtotal = yield Get(subtotal_of(partition))
    if comes is (child is not None):
        return "as it is"
    if (yield Put(key)) == LOST:
        return "refused"
    n, seq = number_of(subtotal, "n") + amount, number_of(subtotal, "seq") + 1
    content = values(n=n, seq=seq)
    outcome, _ = yield together(
        insert(child_of(partition), values(token=token)) if child is None else delete(child_of(partition), child.etag),
        insert(subtotal_of(partition), content)
        if subtotal is None
        else replace(subtotal_of(partition), content, subtotal.etag),
        insert(decision_of(key), values(state="committed", work=amount)),
    )
    if outcome == OK and broken == WORKER_COPIES:
        return "done"
    if outcome == OK:
        return Goto(copy, (key, amount, False, broken))
    if outcome == LOST:
        return Goto(decide, (key, False, broken, copy))
    yield Ack(key)
    return "refused"


def copy(key: Change, amount: int, works: bool, broken: str) -> Program:
    """Let the total have the subtotal of a partition; only then forget the change."""
    again, partition = Goto(copy, (key, amount, works, broken)), key[0]
    share = yield Get(share_of(partition))
    total = yield Get(TOTAL)
    subtotal = yield Get(subtotal_of(partition))
    difference = number_of(subtotal, "n") - number_of(share, "n")
    due = number_of(subtotal, "seq") > number_of(share, "seq")
    if broken == "a subtotal that is equal is not copied":
        due = difference != 0
    if broken == "the message says how much to add":
        due, difference = True, amount
    if total is None and difference:
        return "left"  # nothing can be counted there; the change stays committed, and a worker tries it again
    if due and total is not None:
        content = values(n=number_of(subtotal, "n"), seq=number_of(subtotal, "seq"))
        noted = (
            insert(share_of(partition), content) if share is None else replace(share_of(partition), content, share.etag)
        )
        etag = "*" if broken == "the total is written without a condition" else total.etag
        counted = replace(TOTAL, values(n=number_of(total, "n") + difference), etag)
        if broken == "the total is written by itself":
            outcome, _ = yield counted
            if outcome == OK:
                outcome, _ = yield noted
        else:
            outcome, _ = yield together(counted, noted)
        if outcome != OK:
            return again
    return Goto(forget, (key, again, works, broken, copy))


def renew() -> Program:
    """Delete the entity that holds the total, unless something is counted in it, and insert it again."""
    total = yield Get(TOTAL)
    if total is None or number_of(total, "n"):
        return "refused"
    outcome, _ = yield delete(TOTAL, total.etag)
    if outcome != OK:
        return "refused"
    yield insert(TOTAL, values(n=0))
    return "done"


# What must hold in the end


def total_is_right(world: World) -> str | None:
    """The total is the number of children, and what it has of each partition is the subtotal there."""
    children = {each: child_of(each) in world.rows for each in ("p", "q")}
    for partition, there in children.items():
        if number_of(world.rows.get(subtotal_of(partition)), "n") != there:
            return f"the subtotal of {partition} is wrong"
    if left := committed_is_left(world):
        return None if "left" in world.results.values() else left
    total = number_of(world.rows.get(TOTAL), "n")
    return None if total == sum(children.values()) else f"the total is {total} instead of {sum(children.values())}"


def never_too_many(world: World) -> str | None:
    """The total is what the rows beside it add up to, at every moment."""
    shares = sum(number_of(world.rows.get(share_of(each)), "n") for each in ("p", "q"))
    total = world.rows.get(TOTAL)
    return None if total is None or number_of(total, "n") == shares else "the total is not what its rows add up to"


EMPTY: dict[Key, Row] = {TOTAL: Row("e0", values(n=0))}

STORED: dict[Key, Row] = {
    TOTAL: Row("e0", values(n=1)),
    child_of("p"): Row("e1", values(token="t0")),
    subtotal_of("p"): Row("e2", values(n=1, seq=1)),
    share_of("p"): Row("e3", values(n=1, seq=1)),
}


def comes(client: str, partition: str, broken: str = "") -> Client:
    return Client(client, change, (partition, client.lower(), True, broken))


def goes(client: str, partition: str, broken: str = "") -> Client:
    return Client(client, change, (partition, client.lower(), False, broken))


WORKER = Client("W", work, ("", copy), fails=False)
run = run_with(rows=EMPTY, always=never_too_many, at_end=total_is_right)


def worker(broken: str) -> Client:
    return Client("W", work, (broken, copy), fails=False)


@runs(
    run("children of two partitions come", comes("A", "p"), comes("B", "q")),
    run("a child goes and comes back", goes("A", "p"), comes("B", "p"), rows=STORED),
    run(
        "a child goes, comes back, and the worker copies",
        goes("A", "p"),
        comes("B", "p", WORKER_COPIES),
        WORKER,
        rows=STORED,
        large=True,
    ),
    run("a crash", comes("A", "p"), WORKER, crash=1),
    run("any fault", goes("A", "p"), WORKER, rows=STORED, **ANY_FAULT, large=True),
    run("the entity with the total is deleted and inserted again", comes("A", "p"), Client("B", renew)),
    run(
        "children of two partitions come, one writer crashes",
        comes("A", "p"),
        comes("B", "q", WORKER_COPIES),
        WORKER,
        crash=1,
        large=True,
    ),
    run("two workers", comes("A", "p", WORKER_COPIES), WORKER, Client("V", work, ("", copy)), crash=1),
)
def test_totals_are_exact_at_rest(run: Run) -> None:
    """When nothing is left to do, the total is the number of children; at every moment it is what it was told."""
    verify(run)


@runs(
    run(
        "the message says how much to add",
        comes("A", "p", "the message says how much to add"),
        worker("the message says how much to add"),
    ),
    run(
        "a subtotal that is equal is not copied",
        comes("A", "p", "a subtotal that is equal is not copied"),
        goes("B", "p", "a subtotal that is equal is not copied"),
    ),
    run(
        "the total is written without a condition",
        comes("A", "p", "the total is written without a condition"),
        comes("B", "q", "the total is written without a condition"),
    ),
    run(
        "the total is written by itself",
        comes("A", "p", "the total is written by itself"),
        worker("the total is written by itself"),
        crash=1,
    ),
)
def test_each_rule_is_needed(run: Run) -> None:
    """A protocol without one of the rules ends with a total that is wrong."""
    assert find_violation(run)[-1].startswith("the total is ")
