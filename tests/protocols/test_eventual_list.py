"""
Index lists in other partitions: entities of several partitions are named by one row, which all their writers share.

A change commits as it does for an index entry. Then the rows of the old and of the new value are reconciled: the list
is read, the entity after it, and the list is replaced under its ETag, so that the entity is named in it, with its
newest version, or is not. The entity is looked at again before the change is forgotten.
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
    Judge,
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

WORKER_APPLIES = "the worker applies"
"""Given as the rule that is broken: the client leaves the lists to the worker."""

Members = dict[str, str]
"""The entities that a list names, with the versions at which they were named."""


def entity_of(name: str) -> Key:
    return (name, "x")


def list_of(value: str) -> Key:
    return ("lists", value)


def members_of(row: Row | None) -> Members:
    return {} if row is None else dict(row.get("members") or ())


# The protocol; `broken` names a rule that a run leaves out.


def change(name: str, token: str, value: str | None, broken: str = "") -> Program:
    """Give an entity a value, None to delete it."""
    key = (name, token)
    entity = yield Get(entity_of(name))
    if entity is None:
        return "absent"
    if (yield Put(key)) == LOST:
        return "refused"
    touched = tuple(sorted({each for each in (entity.get("value"), value) if each}))
    committed = insert(decision_of(key), values(state="committed", work=touched))
    content = values(value=value, tokens=(*entity.get("tokens"), token))
    write = delete(entity_of(name), entity.etag) if value is None else replace(entity_of(name), content, entity.etag)
    outcome, _ = yield together(write, committed)
    if outcome == OK and broken == WORKER_APPLIES:
        return "done"
    if outcome == OK:
        return Goto(reconcile, (key, touched, False, broken))
    if outcome == LOST:
        return Goto(decide, (key, False, broken, reconcile))
    yield Ack(key)
    return "refused"


def reconcile(key: Change, lists: tuple[str, ...], works: bool, broken: str) -> Program:
    """Let some lists say of an entity what is so; look at it again; only then forget the change."""
    again, name = Goto(reconcile, (key, lists, works, broken)), key[0]
    rows: dict[str, Row | None] = {}
    for value in lists:
        rows[value] = yield Get(list_of(value))
    entity = yield Get(entity_of(name))
    for value, found in rows.items():
        before = members_of(found)
        after = {each: version for each, version in before.items() if each != name}
        if entity is not None and entity.get("value") == value:
            after[name] = before[name] if broken == "version" and name in before else entity.get("tokens")[-1]
        if after == before:
            continue
        content = values(members=tuple(sorted(after.items())))
        condition = "*" if broken == "condition" and found is not None else None if found is None else found.etag
        outcome, _ = yield (
            insert(list_of(value), content) if condition is None else replace(list_of(value), content, condition)
        )
        if outcome != OK:
            return again
    if broken != "second look" and (yield Get(entity_of(name))) != entity:
        return again
    return Goto(forget, (key, again, works, broken, reconcile))


# What must hold in the end


def lists_match(*, extra: bool) -> Judge:
    """Return the judge of the lists; `extra` allows names that are not wanted, which no verified read returns."""

    def judge(world: World) -> str | None:
        for value in "ST":
            members = members_of(world.rows.get(list_of(value)))
            for name in ("k1", "k2"):
                entity = world.rows.get(entity_of(name))
                wanted = entity is not None and entity.get("value") == value
                if wanted and name not in members:
                    return f"the list {value} lacks {name}"
                if wanted and entity is not None and members[name] != entity.get("tokens")[-1]:
                    return f"the list {value} names an older version of {name}"
                if not wanted and name in members and not extra:
                    return f"the list {value} names {name}"
        return committed_is_left(world)

    return judge


STRICT, LOOSE = lists_match(extra=False), lists_match(extra=True)

STORED: dict[Key, Row] = {
    entity_of("k1"): Row("e1", values(value="S", tokens=("t1",))),
    entity_of("k2"): Row("e2", values(value="S", tokens=("t2",))),
    list_of("S"): Row("e3", values(members=(("k1", "t1"), ("k2", "t2")))),
}


def changes(client: str, name: str, value: str | None, broken: str = "") -> Client:
    return Client(client, change, (name, client.lower(), value, broken))


COMES = changes("A", "k1", "T")
WORKER = Client("W", work, ("", reconcile), fails=False)
run = run_with(rows=STORED, at_end=STRICT)


@runs(
    run("two entities come into one list", COMES, changes("B", "k2", "T")),
    run("one entity goes and comes back", COMES, changes("B", "k1", "S")),
    run("one comes and one is deleted", COMES, changes("B", "k2", None)),
    run("a crash", COMES, WORKER, crash=1, at_end=LOOSE),
    run("any fault", COMES, WORKER, **ANY_FAULT, at_end=LOOSE, large=True),
    run(
        "two entities come into one list, one crashes",
        COMES,
        changes("B", "k2", "T", WORKER_APPLIES),
        WORKER,
        crash=1,
        at_end=LOOSE,
        large=True,
    ),
    run(
        "one entity goes and comes back, one crashes",
        COMES,
        changes("B", "k1", "S", WORKER_APPLIES),
        WORKER,
        crash=1,
        at_end=LOOSE,
        large=True,
    ),
)
def test_lists_name_their_entities(run: Run) -> None:
    """In the end each list names every entity that has its value, at its newest version."""
    verify(run)


PROBLEMS = {
    "a list is written without a condition": "the list S names",
    "nobody looks at the entity again": "the list T names k1",
    "an older version is left alone": "the list S names an older version of k1",
}


@runs(
    run(
        "a list is written without a condition",
        changes("A", "k1", "T", "condition"),
        changes("B", "k2", "T", "condition"),
    ),
    run(
        "nobody looks at the entity again",
        changes("A", "k1", "T", "second look"),
        changes("B", "k1", "S", "second look"),
    ),
    run(
        "an older version is left alone",
        changes("A", "k1", "T", "version"),
        changes("B", "k1", "S", "version"),
        at_end=LOOSE,
    ),
)
def test_each_rule_is_needed(run: Run) -> None:
    """A protocol without one of the rules keeps a name for ever, or takes an older version for the newest."""
    assert find_violation(run)[-1].startswith(PROBLEMS[run.title])
