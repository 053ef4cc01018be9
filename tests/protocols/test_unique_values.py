"""
Unique values across partitions: reservations, the tokens of claims, and how an abandoned claim is taken over.

A reservation says which entity claims a value, and under which token; the entity stores the token of its claim. The
commit is one transaction in the entity's partition: the new value with its token, and a decision row. Who wants a value
that is reserved by an entity which does not hold it inserts the other claim's decision row as void, so that it can
never commit, looks again, and takes the reservation over. A reservation is released by its token, never by its owner.

A transaction can hand a value over from one entity to another one of its partition. The reservation gets the new owner
and token after the commit; until then the decision row tells of the new owner, so that whoever takes over reads it too.
"""

from collections.abc import Generator
from typing import Any

import pytest

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
    Request,
    Row,
    Run,
    Take,
    World,
    delete,
    find_violation,
    insert,
    is_committed,
    replace,
    run_with,
    runs,
    together,
    values,
    verify,
)

Claim = tuple[str, str | None]
"""The value that an entity gives up, and the token under which it has claimed it."""


def entity_of(name: str) -> Key:
    """Return the key of an entity; k1 and k1b are in one partition."""
    return (name[:2], f"x{name[2:]}")


def name_of(key: Key) -> str:
    return key[0] + key[1][1:]


def decision_of(name: str, token: str) -> Key:
    return (name[:2], f"~o_{token}")


def reservation_of(value: str) -> Key:
    return (f"r{value}", "r")


# The protocol; `broken` names a rule that a run leaves out.


def change(name: str, token: str, value: str | None, broken: str = "") -> Program:
    """Give an entity a value, None to delete it."""
    entity = yield Get(entity_of(name))
    if (entity is None and value is None) or (entity is not None and entity.get("value") == value):
        return "nothing to do"
    if (yield Put((name, token, value))) == LOST:
        return "refused"
    if value is None:
        return Goto(commit, (name, token, None, entity, broken))
    return Goto(reserve, (name, token, value, entity, broken))


def reserve(name: str, token: str, value: str, entity: Row | None, broken: str) -> Program:
    """Reserve a value, or take the reservation of a claim over that cannot commit any more."""
    again = Goto(reserve, (name, token, value, entity, broken))
    committing = Goto(commit, (name, token, value, entity, broken))
    mine = values(owner=name, token=token)
    outcome, _ = yield insert(reservation_of(value), mine)
    if outcome == OK:
        return committing
    if outcome == LOST:
        return again
    found = yield Get(reservation_of(value))
    if found is None:
        return again
    if found.get("token") == token:
        return committing
    owner = entity_of(found.get("owner"))
    holder = yield Get(owner)
    if holder is not None and holder.get("value") == value:
        return Goto(abandon, (name, token, value, "violation", False))
    if broken != "fence":
        outcome, _ = yield insert(decision_of(found.get("owner"), found.get("token")), values(state="void"))
        if outcome == LOST:
            return again
        held = yield from is_held(found.get("owner"), value, broken)  # it may have committed just before
        if held:
            return Goto(abandon, (name, token, value, "violation", False))
    outcome, _ = yield replace(reservation_of(value), mine, found.etag)
    return committing if outcome == OK else again


def is_held(owner: str, value: str, broken: str) -> Generator[Request, Any, bool]:
    """Return whether an entity holds a value: the owner, or an heir that a decision row of its partition tells of."""
    holder = yield Get(entity_of(owner))
    if holder is not None and holder.get("value") == value:
        return True
    for token in () if broken == "heirs" else HANDING_OVER:
        decision = yield Get(decision_of(owner, token))
        if decision is not None and decision.get("heir") is not None:
            heir = yield Get(entity_of(decision.get("heir")))
            if heir is not None and heir.get("value") == value:
                return True
    return False


def hand_over(giver: str, heir: str, token: str, broken: str = "") -> Program:
    """Delete an entity, and insert another one with its value, in one transaction."""
    entity = yield Get(entity_of(giver))
    if entity is None:
        return "nothing to do"
    value = entity.get("value")
    found = yield Get(reservation_of(value))
    if found is None or (found.get("token") != entity.get("token") and broken != "chain"):
        return "not yet"
    if (yield Put((heir, token, value))) == LOST:
        return "refused"
    decision = values(state="committed", old=(value, entity.get("token")), heir=heir)
    outcome, _ = yield together(
        delete(entity_of(giver), entity.etag),
        insert(entity_of(heir), values(value=value, token=token)),
        insert(decision_of(heir, token), decision),
    )
    if outcome == OK:
        return Goto(give, (heir, token, value, entity.get("token"), False))
    if outcome == LOST:
        return Goto(decide, (heir, token, value, False, ""))
    return Goto(acknowledge, (heir, token, value, "refused", False))


def give(heir: str, token: str, value: str, old: str, works: bool) -> Program:
    """Give the reservation to the heir, then forget the claim."""
    again = Goto(give, (heir, token, value, old, works))
    found = yield Get(reservation_of(value))
    if found is not None and found.get("token") == old:
        entity = yield Get(entity_of(heir))
        if entity is None or entity.get("token") != token:
            outcome, _ = yield delete(reservation_of(value), found.etag)
            if outcome != OK:
                return again
        else:
            outcome, _ = yield replace(reservation_of(value), values(owner=heir, token=token), found.etag)
            if outcome != OK:
                return again
            entity = yield Get(entity_of(heir))
            if entity is None or entity.get("token") != token:
                yield from vacate(heir, token, value)
    return Goto(forget, (heir, token, value, works))


def vacate(name: str, token: str, value: str) -> Generator[Request, Any, None]:
    """Delete the reservation of a claim if nobody holds the value."""
    while True:
        found = yield Get(reservation_of(value))
        if found is None or found.get("token") != token:
            return
        yield insert(decision_of(name, token), values(state="void"))
        if (yield Get(decision_of(name, token))) is None:
            continue
        held = yield from is_held(name, value, "")
        if held:
            return
        outcome, _ = yield delete(reservation_of(value), found.etag)
        if outcome == OK:
            return


def commit(name: str, token: str, value: str | None, entity: Row | None, broken: str) -> Program:
    """Write the entity and the decision row."""
    old: Claim | None = None if entity is None else (entity.get("value"), entity.get("token"))
    committed = insert(decision_of(name, token), values(state="committed", old=old))
    content = values(value=value, token=token)
    if entity is None:
        write = insert(entity_of(name), content)
    elif value is None:
        write = delete(entity_of(name), entity.etag)
    else:
        write = replace(entity_of(name), content, entity.etag)
    outcome, _ = yield together(write, committed)
    if outcome == OK:
        return Goto(finish, (name, token, value, old, False, broken))
    if outcome == LOST:
        return Goto(decide, (name, token, value, False, broken))
    return Goto(abandon, (name, token, value, "refused", False))


def decide(name: str, token: str, value: str | None, works: bool, broken: str) -> Program:
    """Find out what became of a claim, after a lost reply or for a message; make it void if it has not committed."""
    decision = yield Get(decision_of(name, token))
    if decision is None:
        yield insert(decision_of(name, token), values(state="void"))
        decision = yield Get(decision_of(name, token))
        if decision is None:
            return Goto(decide, (name, token, value, works, broken))
    if decision.get("state") == "committed":
        if decision.get("heir") is not None:
            return Goto(give, (name, token, value, decision.get("old")[1], works))
        return Goto(finish, (name, token, value, decision.get("old"), works, broken))
    if broken == "heirs":
        return Goto(abandon, (name, token, value, "unknown", works))
    if value is not None:
        yield from vacate(name, token, value)  # unless it was completed before the void row was written
    return Goto(acknowledge, (name, token, value, "unknown", works))


def finish(name: str, token: str, value: str | None, old: Claim | None, works: bool, broken: str) -> Program:
    """Release what the commit gave up, then forget the claim."""
    again = Goto(finish, (name, token, value, old, works, broken))
    if old is not None and old[0] != value:
        found = yield Get(reservation_of(old[0]))
        if found is not None:
            ours = found.get("owner") == name if broken == "token" else found.get("token") == old[1]
            if ours and (yield delete(reservation_of(old[0]), found.etag))[0] != OK:
                return again
    return Goto(forget, (name, token, value, works))


def forget(name: str, token: str, value: str | None, works: bool) -> Program:
    """Delete the decision row of a claim that is done, then its message."""
    decision = yield Get(decision_of(name, token))
    if is_committed(decision):
        outcome, _ = yield delete(decision_of(name, token), decision.etag)
        if outcome != OK:
            return Goto(forget, (name, token, value, works))
    return Goto(acknowledge, (name, token, value, "done", works))


def abandon(name: str, token: str, value: str | None, result: str, works: bool) -> Program:
    """Give the reservation of a claim back that has not committed and cannot."""
    if value is not None:
        found = yield Get(reservation_of(value))
        if found is not None and found.get("token") == token:
            outcome, _ = yield delete(reservation_of(value), found.etag)
            if outcome != OK:
                return Goto(abandon, (name, token, value, result, works))
    return Goto(acknowledge, (name, token, value, result, works))


def acknowledge(name: str, token: str, value: str | None, result: str, works: bool) -> Program:
    """Delete the message of a claim."""
    yield Ack((name, token, value))
    return Goto(work, ()) if works else result


def work() -> Program:
    """Take messages until there are no more."""
    message = yield Take()
    return "idle" if message is None else Goto(decide, (*message, True, ""))


# What must hold


def held_once(world: World) -> str | None:
    """No two entities have one value, at any time."""
    held = [row.get("value") for (_, kind), row in world.rows.items() if kind.startswith("x")]
    return None if len(held) == len(set(held)) else f"one value is held twice: {held}"


def reservations_match(*, leaks: bool) -> Judge:
    """Return the judge of the reservations; `leaks` allows those that nobody holds, which the next claim takes over."""

    def judge(world: World) -> str | None:
        for key, row in world.rows.items():
            name, kind = name_of(key), key[1]
            if kind.startswith("x"):
                found = world.rows.get(reservation_of(row.get("value")))
                if found is None or (found.get("owner"), found.get("token")) != (name, row.get("token")):
                    return f"{name} has a value without its reservation"
            if kind == "r" and not leaks:
                holder = world.rows.get(entity_of(row.get("owner")))
                if holder is None or holder.get("token") != row.get("token"):
                    return f"the reservation {key[0]} is nobody's"
        return None

    return judge


STRICT, LOOSE = reservations_match(leaks=False), reservations_match(leaks=True)

STORED = {
    entity_of("k1"): Row("e0", values(value="u", token="t0")),
    reservation_of("u"): Row("e1", values(owner="k1", token="t0")),
}
ABANDONED = {reservation_of("v"): Row("e1", values(owner="k1", token="t9"))}


def claims(client: str, name: str, value: str | None, broken: str = "") -> Client:
    return Client(client, change, (name, client.lower(), value, broken))


K1_TO_V, K2_TO_V, K2_TO_U = claims("A", "k1", "v"), claims("B", "k2", "v"), claims("C", "k2", "u")
HANDING_OVER = ("m", "n")
"""The tokens of transactions that hand values over."""

K1_TO_K1B = Client("M", hand_over, ("k1", "k1b", "m"))
K1B_TO_K1C = Client("N", hand_over, ("k1b", "k1c", "n"))
K1B_GONE = claims("G", "k1b", None)
TAKER = claims("F", "k3", "u")
LATE_MESSAGE = Client("L", decide, ("k1", "t0", "u", False, ""))
"""A worker that finds a message of the claim by which k1 has got its value long ago."""
K1_GONE, K1_BACK_TO_U = claims("D", "k1", None), claims("E", "k1", "u")
WORKER = Client("W", work, fails=False)
run = run_with(rows=STORED, always=held_once)

PAIRS: dict[str, tuple[Client, Client]] = {
    "two claims of one value": (K1_TO_V, K2_TO_V),
    "a claim of a value that is given up": (K1_TO_V, K2_TO_U),
    "a change and a delete": (K1_TO_V, K1_GONE),
    "a delete and a claim": (K1_GONE, K2_TO_U),
    "there and back": (K1_TO_V, K1_BACK_TO_U),
}


@pytest.mark.one_of(3)
@runs(
    *(run(title, *pair, at_end=STRICT) for title, pair in PAIRS.items()),
    *(run(f"{title}, with any fault", *pair, **ANY_FAULT, large=True) for title, pair in PAIRS.items()),
    *(run(f"{title}, one crashes", *pair, WORKER, crash=1, at_end=LOOSE, large=True) for title, pair in PAIRS.items()),
    run("a claim that crashes", K1_TO_V, WORKER, crash=1, at_end=LOOSE),
    run("a claim with any fault", K1_TO_V, WORKER, **ANY_FAULT, at_end=LOOSE, large=True),
    run("a reservation that was abandoned", K2_TO_V, claims("F", "k3", "v"), rows=ABANDONED),
    run(
        "a reservation that was abandoned, with any fault",
        K2_TO_V,
        claims("F", "k3", "v"),
        rows=ABANDONED,
        **ANY_FAULT,
        large=True,
    ),
    run("handed over against a claim", K1_TO_K1B, TAKER, at_end=STRICT),
    run("handed over against a claim, with any fault", K1_TO_K1B, TAKER, **ANY_FAULT, large=True),
    run("handed over against a claim, one crashes", K1_TO_K1B, TAKER, WORKER, crash=1, at_end=LOOSE, large=True),
    run("handed over and given up against a claim", K1_TO_K1B, K1B_GONE, TAKER, at_end=LOOSE, large=True),
    run("handed over twice against a claim", K1_TO_K1B, K1B_TO_K1C, TAKER, at_end=LOOSE),
    run("handed over against a claim, and a late message", K1_TO_K1B, LATE_MESSAGE, TAKER, at_end=LOOSE, large=True),
    run(
        "handed over by one who crashes, and once more",
        K1_TO_K1B,
        K1B_TO_K1C,
        WORKER,
        crash=1,
        at_end=LOOSE,
        large=True,
    ),
    run("there and back against a claim", K1_TO_V, K1_BACK_TO_U, K2_TO_U, at_end=STRICT, large=True),
)
def test_a_value_is_held_once(run: Run) -> None:
    """At no time two entities have one value, and whoever has one has its reservation in the end."""
    verify(run)


@runs(
    run("a claim is taken over that can still commit", K1_TO_V, claims("B", "k2", "v", "fence")),
    run(
        "a reservation is released by its owner instead of its token",
        claims("A", "k1", "v", "token"),
        K1_BACK_TO_U,
        K2_TO_U,
    ),
    run("a value is taken over without a look at the heirs of its owner", K1_TO_K1B, claims("F", "k3", "u", "heirs")),
    run(
        "a value is handed on before the reservation was",
        K1_TO_K1B,
        Client("N", hand_over, ("k1b", "k1c", "n", "chain")),
        TAKER,
    ),
    run(
        "a worker gives back without a look at heirs",
        K1_TO_K1B,
        Client("L", decide, ("k1", "t0", "u", False, "heirs")),
        TAKER,
    ),
)
def test_each_rule_is_needed(run: Run) -> None:
    """Without the void row of the other claim, released by owner, or without a look at heirs, a value is held twice."""
    assert find_violation(run)[-1].startswith("one value is held twice")
