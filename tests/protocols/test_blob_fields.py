"""
Blobs as fields of entities: the bytes in blob storage, their address in the row of the entity.

A blob is uploaded under a new name before the transaction that writes its address, and deleted after the one that drops
it. The transaction inserts the row of the blob beside the entity: it stays as long as the blob. Who finds an upload
without that row inserts it as void, so that the transaction can never commit, and only then deletes the upload. What
was dropped is in the decision row of the transaction, and nothing else is ever deleted for it.
"""

import pytest

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
    Take,
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


def entity_of(name: str) -> Key:
    """Return the key of an entity; all of them are in one partition."""
    return ("k", f"x{name}")


def row_of(blob: str) -> Key:
    """Return the key of the row of a blob, which stays as long as that."""
    return ("k", f"~b_{blob}")


def decision_of(token: str) -> Key:
    return ("k", f"~o_{token}")


def blob_of(blob: str) -> Key:
    return (f"blob {blob}", "")


# The protocol; `broken` names a rule that a run leaves out.


def change(name: str, token: str, action: str, broken: str = "") -> Program:
    """Give an entity a new blob, or insert one with a blob, or delete the entity."""
    entity = yield Get(entity_of(name))
    if (entity is None) is not (action == "insert"):
        return "nothing to do"
    if action == "delete":
        return Goto(commit, (name, token, None, entity, broken))
    if (yield Put(("upload", token))) == LOST:
        return "refused"
    if broken == "in place" and entity is not None:
        outcome, _ = yield upsert(blob_of(entity.get("blob")), values(bytes=token))
        return Goto(commit, (name, token, entity.get("blob"), entity, broken))
    outcome, _ = yield insert(blob_of(token), values(bytes=token))
    return "unknown" if outcome == LOST else Goto(commit, (name, token, token, entity, broken))


def commit(name: str, token: str, blob: str | None, entity: Row | None, broken: str) -> Program:
    """Write the entity with the row of its new blob, and with the decision row, if an old blob is dropped."""
    dropped = None if entity is None else entity.get("blob")
    if broken == "delete first" and dropped is not None:
        yield delete(blob_of(dropped), "*")
    if dropped is not None and (yield Put(("drop", token))) == LOST:
        return Goto(give_up, (token, blob))
    if entity is None:
        write = insert(entity_of(name), values(blob=blob, bytes=blob))
    elif blob is None:
        write = delete(entity_of(name), entity.etag)
    else:
        write = replace(entity_of(name), values(blob=blob, bytes=token), entity.etag)
    if blob == token and broken != "no row":
        write = together(write, insert(row_of(token), values(state="held")))
    if dropped is not None:
        write = together(write, insert(decision_of(token), values(state="committed", dropped=dropped, came=blob)))
    outcome, _ = yield write
    if outcome == OK:
        return Goto(finish, (token, dropped, blob, False, broken))
    return "unknown" if outcome == LOST else Goto(give_up, (token, blob))


def give_up(token: str, blob: str | None) -> Program:
    """Delete the upload of a change that was rejected, and never commits."""
    if blob == token:
        outcome, _ = yield delete(blob_of(token), "*")
        if outcome == LOST:
            return "refused"
        yield Ack(("upload", token))
    yield Ack(("drop", token))
    return "refused"


def finish(token: str, dropped: str | None, came: str | None, works: bool, broken: str) -> Program:
    """Delete the blob that was dropped, then its row, then the decision row, then the messages."""
    again = Goto(finish, (token, dropped, came, works, broken))
    for key in (blob_of(dropped), row_of(dropped)) if dropped is not None and dropped != came else ():
        outcome, _ = yield delete(key, "*")
        if outcome == LOST:
            return again
    if broken == "by state" and came is not None:
        entity = yield Get(entity_of("1"))
        if entity is None or entity.get("blob") != came:
            yield delete(blob_of(came), "*")
    if broken == "row goes":
        yield delete(row_of(token), "*")
    outcome, _ = yield delete(decision_of(token), "*")
    if outcome == LOST:
        return again
    yield Ack(("drop", token))
    if works:
        return Goto(work, (broken,))
    yield Ack(("upload", token))
    return "done"


def move(name: str, to: str) -> Program:
    """Give an entity another key: the address of its blob is carried along, and nothing is dropped."""
    entity = yield Get(entity_of(name))
    if entity is None:
        return "nothing to do"
    outcome, _ = yield together(delete(entity_of(name), entity.etag), insert(entity_of(to), entity.content))
    return "moved" if outcome == OK else "refused"


# The worker


def work(broken: str) -> Program:
    """Take messages until there are no more."""
    message = yield Take()
    if message is None:
        return "idle"
    return Goto(settle_upload if message[0] == "upload" else settle_drop, (message[1], True, broken))


def settle_upload(token: str, works: bool, broken: str) -> Program:
    """Delete an upload, unless a transaction has committed its address."""
    again = Goto(settle_upload, (token, works, broken))
    found = yield Get(row_of(token))
    if found is None and broken != "not void":
        outcome, _ = yield insert(row_of(token), values(state="void"))
        if outcome != OK:
            return again
    if found is None or found.get("state") == "void":
        outcome, _ = yield delete(blob_of(token), "*")
        if outcome == LOST:
            return again
    yield Ack(("upload", token))
    return Goto(work, (broken,)) if works else "settled"


def settle_drop(token: str, works: bool, broken: str) -> Program:
    """Delete what a transaction has dropped, if it has committed; otherwise see to it that it never does."""
    again = Goto(settle_drop, (token, works, broken))
    found = yield Get(decision_of(token))
    if found is None:
        outcome, _ = yield insert(decision_of(token), values(state="void"))
        if outcome != OK:
            return again
    elif found.get("state") == "committed":
        return Goto(finish, (token, found.get("dropped"), found.get("came"), works, broken))
    yield Ack(("drop", token))
    return Goto(work, (broken,)) if works else "settled"


# What must hold


def none_dangles(world: World) -> str | None:
    """Each entity has its blob, with the bytes whose hash it has, at any time."""
    for (_, kind), row in world.rows.items():
        if kind.startswith("x"):
            blob = world.rows.get(blob_of(row.get("blob")))
            if blob is None or blob.get("bytes") != row.get("bytes"):
                return f"{kind} has no blob, or another one than it says"
    return None


def none_is_left(world: World) -> str | None:
    """In the end each blob is that of an entity, and no other blob has a row that says so."""
    used = {row.get("blob") for (_, kind), row in world.rows.items() if kind.startswith("x")}
    for (partition, kind), row in world.rows.items():
        blob = partition.removeprefix("blob ") if partition != "k" else kind.removeprefix("~b_")
        is_one = partition != "k" or (kind.startswith("~b_") and row.get("state") == "held")
        if is_one and blob not in used:
            return f"the blob {blob} is left"
        if row.get("state") == "committed":
            return f"the decision {kind} is left"
    return None


def late_ones_are_void(world: World) -> str | None:
    """As above, but for uploads that came after a worker had given them up: by their void rows an audit finds them."""
    void = {key for key, row in world.rows.items() if row.get("state") == "void"}
    rest = {key: row for key, row in world.rows.items() if row_of(key[0].removeprefix("blob ")) not in void}
    return none_is_left(World(rest, world.results, world.running, world.history))


STORED = {
    entity_of("1"): Row("e0", values(blob="old", bytes="old")),
    row_of("old"): Row("e1", values(state="held")),
    blob_of("old"): Row("e2", values(bytes="old")),
}


def changes(client: str, name: str, action: str, broken: str = "") -> Client:
    return Client(client, change, (name, client.lower(), action, broken))


ONE, TWO, GONE = changes("A", "1", "replace"), changes("B", "1", "replace"), changes("D", "1", "delete")
NEW, MOVED = changes("N", "2", "insert"), Client("M", move, ("1", "2"))
AGAIN = Client("L", settle_upload, ("old", False, ""), fails=False)
"""A worker that gets the message of the stored blob once more."""
WORKER = Client("W", work, ("",), fails=False)
run = run_with(rows=STORED, always=none_dangles)

GROUPS: dict[str, tuple[Client, ...]] = {
    "a replace": (ONE,),
    "an insert": (NEW,),
    "two replaces": (ONE, TWO),
    "a replace and a delete": (ONE, GONE),
    "a replace and a move": (ONE, MOVED),
    "a delete and a message that comes again": (GONE, AGAIN),
    "a move and a message that comes again": (MOVED, AGAIN),
    "an insert, a move to its key and a message that comes again": (NEW, MOVED, AGAIN),
}


@pytest.mark.one_of(3)
@runs(
    *(run(title, *some, at_end=none_is_left) for title, some in GROUPS.items()),
    *(
        run(f"{title}, one crashes", *some, WORKER, crash=1, at_end=late_ones_are_void)
        for title, some in GROUPS.items()
        if len(some) < 3
    ),
    *(
        run(f"{title}, with any fault", *some, WORKER, **ANY_FAULT, at_end=late_ones_are_void)
        for title, some in GROUPS.items()
        if len(some) == 1
    ),
    *(
        run(f"{title}, {fault}", *some, WORKER, **{fault: 1}, at_end=late_ones_are_void, large=True)
        for title, some in GROUPS.items()
        for fault in ("lost", "late")  # all faults in one run would be 100 million states
        if len(some) == 2
    ),
)
def test_no_address_dangles(run: Run) -> None:
    """At no time an entity names a blob that is not there; what nobody names is gone when its message was worked."""
    verify(run)


@runs(
    run(
        "a worker deletes an upload before it is void",
        ONE,
        Client("W", work, ("not void",), fails=False),
        crash=1,
        late=1,
    ),
    run("a name is written twice", changes("A", "1", "replace", "in place")),
    run(
        "the row of a blob goes with its message",
        changes("A", "1", "replace", "row goes"),
        Client("L", settle_upload, ("a", False, ""), fails=False),
    ),
    run("a blob is committed without its row", changes("A", "1", "replace", "no row"), WORKER, crash=1),
    run("the old blob goes before the commit", changes("A", "1", "replace", "delete first")),
    run("what is deleted is judged by the entity as it is later", changes("A", "1", "replace", "by state"), MOVED),
)
def test_each_rule_is_needed(run: Run) -> None:
    """Without one of the rules an entity names a blob that is not there, or has other bytes."""
    assert find_violation(run)[-1].endswith("has no blob, or another one than it says")
