"""
Index entries in other partitions than their entity: what is written in which order, and every order of faults.

The entity holds the indexed value, and the tokens of its writes, newest last here. A change puts a message, then
commits: one transaction writes the entity and a decision row that lists the addresses of all entries concerned. Then
the entries are reconciled with the entity, the decision row is deleted, and the message. A worker that takes the
message of a change finds the decision row and does the same; where there is none, it first inserts one that is void, so
that the change can never commit, and drops the message.
"""

import pytest

from tests.protocols.explorer import (
    ANY_FAULT,
    EXISTS,
    LOST,
    OK,
    Ack,
    Client,
    Get,
    Goto,
    Judge,
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
    is_committed,
    replace,
    run_with,
    runs,
    together,
    upsert,
    values,
    verify,
)

ENTITY: Key = ("p", "k")


def decision_of(token: str) -> Key:
    return ("p", f"~o_{token}")


def entry_at(address: str) -> Key:
    return (f"x{address}", "k")


# The protocol; `broken` names a rule that a run leaves out.


def change(token: str, value: str | None, *, worker_applies: bool = False, broken: str = "") -> Program:
    """Set the indexed value: insert the entity where there is none, delete it for None."""
    entity = yield Get(ENTITY)
    if entity is None and value is None:
        return "absent"
    if (yield Put((token,))) == LOST:
        return "refused"
    addresses = tuple(sorted({each for each in (entity and entity.get("value"), value) if each}))
    committed = insert(decision_of(token), values(state="committed", addresses=addresses))
    if entity is None:
        write = insert(ENTITY, values(value=value, tokens=(token,), since=token, indexed=True))
    elif value is None:
        write = delete(ENTITY, entity.etag)
    else:
        content = values(value=value, tokens=(*entity.get("tokens"), token), since=token, indexed=True)
        write = replace(ENTITY, content, entity.etag)
    outcome, _ = yield together(write, committed)
    if outcome == OK:
        if worker_applies:
            return "done"
        if entity is None and broken == "" and value is not None:
            return Goto(insert_entry, (token, value))
        return Goto(reconcile, (token, addresses, False, broken))
    if outcome == LOST:
        return Goto(decide, (token, broken))
    yield Ack((token,))
    return "refused"


def touch(token: str) -> Program:
    """Write what no entry holds: nothing is left to do, since no entry is to be elsewhere or to hold something else."""
    entity = yield Get(ENTITY)
    if entity is None:
        return "absent"
    tokens = (*entity.get("tokens"), token)
    content = values(value=entity.get("value"), tokens=tokens, since=entity.get("since"), indexed=True)
    outcome, _ = yield replace(ENTITY, content, entity.etag)
    return "done" if outcome == OK else "refused"


def decide(token: str, broken: str) -> Program:
    """Find out what became of a change whose reply was lost, and make it void if it has not committed."""
    outcome, _ = yield insert(decision_of(token), values(state="void"))
    if outcome == LOST:
        return Goto(decide, (token, broken))
    if outcome == EXISTS:
        decision = yield Get(decision_of(token))
        if decision is None:
            return Goto(decide, (token, broken))
        if decision.get("state") == "committed":
            return Goto(reconcile, (token, decision.get("addresses"), False, broken))
    yield Ack((token,))
    entity = yield Get(ENTITY)
    return "done" if entity is not None and token in entity.get("tokens") else "unknown"


def insert_entry(token: str, address: str) -> Program:
    """Make the entry of an entity that was inserted: nothing need be read before, since the entry is new."""
    outcome, _ = yield insert(entry_at(address), values(version=token))
    entity = yield Get(ENTITY)
    if outcome != OK or entity is None or entity.get("tokens")[-1] != token:
        return Goto(reconcile, (token, (address,), False, ""))
    return Goto(forget, (token, (address,), False, ""))


def reconcile(token: str, addresses: tuple[str, ...], works: bool, broken: str) -> Program:
    """Make the entries at some addresses what the entity says; look at it again; only then forget the change."""
    again = Goto(reconcile, (token, addresses, works, broken))
    entity = (yield Get(ENTITY)) if broken == "entity before entries" else None
    found: dict[str, Row | None] = {}
    for address in addresses:
        found[address] = yield Get(entry_at(address))
    if broken != "entity before entries":
        entity = yield Get(ENTITY)
    for address in addresses:
        entry = found[address]
        if broken == "entity before entries":
            entry = yield Get(entry_at(address))
        newest = None if entity is None else entity.get("tokens")[-1]
        if entity is not None and entity.get("value") == address:
            content = values(version=newest)
            if broken == "conditions":
                yield upsert(entry_at(address), content)
            elif entry is None:
                if (yield insert(entry_at(address), content))[0] != OK:
                    return again
            elif entry.get("version") == newest or broken == "version":
                pass
            elif (yield replace(entry_at(address), content, entry.etag))[0] != OK:
                return again
        elif entry is not None and broken == "conditions":
            yield delete(entry_at(address), "*")
        elif entry is not None and (yield delete(entry_at(address), entry.etag))[0] != OK:
            return again
    if broken not in ("second look", "conditions") and (yield Get(ENTITY)) != entity:
        return again
    return Goto(forget, (token, addresses, works, broken))


def forget(token: str, addresses: tuple[str, ...], works: bool, broken: str) -> Program:
    """Delete the decision row, then the message."""
    decision = yield Get(decision_of(token))
    if is_committed(decision):
        yield delete(decision_of(token), decision.etag)
        if (yield Get(decision_of(token))) is not None:
            return Goto(reconcile, (token, addresses, works, broken))
    yield Ack((token,))
    return Goto(work, (broken,)) if works else "done"


def work(broken: str = "") -> Program:
    """Take messages until there are no more."""
    message = yield Take()
    if message is None:
        return "idle"
    (token,) = message
    while True:
        decision = yield Get(decision_of(token))
        if is_committed(decision):
            return Goto(reconcile, (token, decision.get("addresses"), True, broken))
        if decision is None and broken != "void":
            outcome, _ = yield insert(decision_of(token), values(state="void"))
            if outcome != OK:
                continue
        yield Ack(message)
        return Goto(work, (broken,))


def build(tokens: tuple[str, ...]) -> Program:
    """Give an entity that is older than the index its entry, by a write that changes nothing else."""
    entity = yield Get(ENTITY)
    if entity is None or entity.get("indexed"):
        return "nothing to do"
    token, rest = tokens[0], tokens[1:]
    if (yield Put((token,))) == LOST:
        return "refused"
    address = entity.get("value")
    content = values(value=address, tokens=(*entity.get("tokens"), token), since=token, indexed=True)
    committed = insert(decision_of(token), values(state="committed", addresses=(address,)))
    outcome, _ = yield together(replace(ENTITY, content, entity.etag), committed)
    if outcome == OK:
        return Goto(reconcile, (token, (address,), False, ""))
    if outcome == LOST:
        return Goto(decide, (token, ""))
    yield Ack((token,))
    return Goto(build, (rest,)) if rest else "gave up"


# What must hold in the end


def _right_versions(entity: Row | None) -> tuple[str, ...]:
    """Return the versions that have had the content of the newest one, up to that."""
    if entity is None:
        return ()
    tokens: tuple[str, ...] = entity.get("tokens")
    return tokens[tokens.index(entity.get("since")) :] if entity.get("since") in tokens else tokens[-1:]


def entries_match(*, extra: bool) -> Judge:
    """Return the judge of the entries; `extra` allows entries that are not wanted, which no verified read returns."""

    def judge(world: World) -> str | None:
        entity = world.rows.get(ENTITY)
        for address in "JST":
            entry = world.rows.get(entry_at(address))
            wanted = entity is not None and entity.get("value") == address
            if wanted and entity is not None and entry is None and entity.get("indexed"):
                return f"the entry {address} is missing"
            if (
                wanted
                and entity is not None
                and entry is not None
                and entry.get("version") not in _right_versions(entity)
            ):
                return f"the entry {address} is not of the newest version"
            if not wanted and entry is not None and not extra:
                return f"the entry {address} is not wanted"
        for name, result in world.results.items():
            if result == "refused" and entity is not None and name.lower() in entity.get("tokens"):
                return f"{name} was rejected, and its write was applied"
        return committed_is_left(world)

    return judge


STRICT, LOOSE = entries_match(extra=False), entries_match(extra=True)


def stored(*, indexed: bool = True) -> dict[Key, Row]:
    """Return the rows of an entity with the value S, and of its entry unless it is older than the index."""
    entity = Row("e0", values(value="S", tokens=("t0",), since="t0", indexed=indexed or None))
    return {ENTITY: entity, entry_at("S"): Row("e1", values(version="t0"))} if indexed else {ENTITY: entity}


def changes(name: str, value: str | None, *, worker_applies: bool = False, broken: str = "") -> Client:
    def program(token: str) -> Program:
        return change(token, value, worker_applies=worker_applies, broken=broken)

    return Client(name, program, (name.lower(),))


TO_J, TO_S, GONE = changes("A", "J"), changes("B", "S"), changes("B", None)
TOUCH = Client("D", touch, ("d",))
WORKER = Client("W", work, fails=False)
run = run_with(rows=stored(), at_end=STRICT)


@pytest.mark.one_of(2)
@runs(
    run("two values in turn", TO_J, TO_S),
    run("a change and a delete", TO_J, GONE),
    run("an insert and a change", TO_J, TO_S, rows={}),
    run("an insert and a delete", TO_J, GONE, rows={}),
    run("a change and a write of what no entry holds", TO_J, TOUCH),
    run("an insert and a write of what no entry holds", TO_J, TOUCH, rows={}),
    run(
        "a change that crashes, and a write of what no entry holds",
        TO_J,
        TOUCH,
        WORKER,
        crash=1,
        at_end=LOOSE,
        large=True,
    ),
    run("two values in turn, and a write of what no entry holds", TO_J, TO_S, TOUCH, large=True),
    run("an insert that crashes", TO_J, WORKER, crash=1, at_end=LOOSE, rows={}),
    run("an insert with any fault", TO_J, WORKER, **ANY_FAULT, at_end=LOOSE, large=True, rows={}),
    run(
        "an insert and a change, one crashes",
        TO_J,
        changes("B", "S", worker_applies=True),
        WORKER,
        crash=1,
        at_end=LOOSE,
        large=True,
        rows={},
    ),
    run(
        "an insert and a delete, one crashes",
        TO_J,
        changes("B", None),
        WORKER,
        crash=1,
        at_end=LOOSE,
        large=True,
        rows={},
    ),
    run("a change, a delete and an insert", TO_J, GONE, changes("C", "S"), large=True),
    run("a change with a lost reply", TO_J, WORKER, lost=1, at_end=LOOSE),
    run("a change with any fault", TO_J, WORKER, **ANY_FAULT, at_end=LOOSE, large=True),
    run(
        "two workers of which one crashes",
        changes("A", "J", worker_applies=True),
        WORKER,
        Client("V", work),
        crash=1,
        at_end=LOOSE,
    ),
    run(
        "two values in turn, one crashes",
        TO_J,
        changes("B", "S", worker_applies=True),
        WORKER,
        crash=1,
        at_end=LOOSE,
        large=True,
    ),
    run(
        "a change and a delete, one crashes",
        TO_J,
        changes("B", None, worker_applies=True),
        WORKER,
        crash=1,
        at_end=LOOSE,
        large=True,
    ),
    run(
        "a change and a delete with a lost reply",
        TO_J,
        changes("B", None, worker_applies=True),
        WORKER,
        lost=1,
        at_end=LOOSE,
        large=True,
    ),
    run(
        "an index that is built",
        Client("B", build, (("b",),)),
        TO_J,
        WORKER,
        rows=stored(indexed=False),
        crash=1,
        at_end=LOOSE,
        large=True,
    ),
    run("an index that is built at once", Client("B", build, (("b", "b2"),)), TO_J, rows=stored(indexed=False)),
)
def test_entries_follow_their_entity(run: Run) -> None:
    """In the end no entry is missing or wrong, no write is lost, and no committed decision row is left."""
    verify(run)


def changes_without(rule: str) -> tuple[Client, Client]:
    return changes("A", "J", broken=rule), changes("B", "S", broken=rule)


def without(rule: str) -> Client:
    return Client("W", work, (rule,), fails=False)


def s_is_missing(world: World) -> str | None:
    problem = LOOSE(world)
    return problem if problem == "the entry S is missing" else None


PROBLEMS = {
    "a message is dropped before its change is void": "the entry J is missing",
    "nobody looks at the entity again": "the entry J is not wanted",
    "entries are written without conditions": "the entry S is missing",
    "the entity is read before the entries": "the entry S is missing",
    "an entry of an older version is left alone": "the entry S is missing",
    "not promised: no entry that is not wanted": "the entry J is not wanted",
}


@runs(
    run("a message is dropped before its change is void", TO_J, without("void"), crash=1, at_end=LOOSE),
    run("nobody looks at the entity again", *changes_without("second look")),
    run("entries are written without conditions", *changes_without("conditions"), at_end=LOOSE),
    run(
        "the entity is read before the entries",
        changes_without("entity before entries")[0],
        changes("B", "S", worker_applies=True),
        WORKER,
        crash=1,
        at_end=LOOSE,
        large=True,
    ),
    run(
        "an entry of an older version is left alone",
        TO_J,
        changes("B", "S", worker_applies=True),
        without("version"),
        crash=1,
        at_end=s_is_missing,
        large=True,
    ),
    run(
        "not promised: no entry that is not wanted",
        TO_J,
        changes("B", "S", worker_applies=True),
        WORKER,
        crash=1,
        large=True,
    ),
)
def test_each_rule_is_needed(run: Run) -> None:
    """A protocol without one of the rules goes wrong; and an entry that is not wanted can be left after a crash."""
    assert find_violation(run)[-1] == PROBLEMS[run.title]
