"""
Copies across partitions: an entity holds a field of another one, its source, which is in another partition.

The source does not know who holds copies of it: holders are found by an index, page after page, and each page that was
done is noted in the decision row of the change. A holder that comes to a source, or whose place in the index changes,
is looked at itself, once its index entry is there. A copy says which version of the source it is of.

A page has one entry here: the holder is at one of two positions of the index, for each of two sources.
"""

from tests.protocols.deferring import Change, decide, decision_of, work
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
    is_committed,
    replace,
    run_with,
    runs,
    together,
    values,
    verify,
)

HOLDER: Key = ("h", "holder")
POSITIONS = 2


def source_of(name: str) -> Key:
    return (name, "source")


def entry_of(place: str) -> Key:
    """A place is the name of the source, and the position: "d1"."""
    return ("index", place)


def place_in(holder: Row | None) -> str | None:
    return None if holder is None else f"{holder.get('of')}{holder.get('at')}"


# The protocol; `broken` names a rule that a run leaves out.


def rename(name: str, token: str, text: str, broken: str = "") -> Program:
    """Give a source another text."""
    source = yield Get(source_of(name))
    change = (name, token)
    if (yield Put(change)) == LOST:
        return "refused"
    outcome, _ = yield together(
        replace(source_of(name), values(text=text, version=token), source.etag),
        insert(decision_of(change), values(state="committed", page=1)),
    )
    return _after_commit(change, None, outcome, broken) if outcome in (OK, LOST) else Goto(refuse, (change,))


def move(token: str, of: str, at: int, broken: str = "") -> Program:
    """Let the holder refer to a source, at a position of the index; what it copies is read before."""
    source = yield Get(source_of(of))
    holder = yield Get(HOLDER)
    change = ("h", token)
    if (yield Put(change)) == LOST:
        return "refused"
    copied = source if broken != "position" or of != holder.get("of") else holder
    content = values(of=of, at=at, text=copied.get("text"), version=copied.get("version"), token=token)
    places = tuple(sorted({f"{holder.get('of')}{holder.get('at')}", f"{of}{at}"}))
    outcome, _ = yield together(
        replace(HOLDER, content, holder.etag),
        insert(decision_of(change), values(state="committed", work=places)),
    )
    return _after_commit(change, places, outcome, broken) if outcome in (OK, LOST) else Goto(refuse, (change,))


def refuse(change: Change) -> Program:
    yield Ack(change)
    return "refused"


def _after_commit(change: Change, places: tuple[str, ...] | None, outcome: str, broken: str) -> Goto:
    if outcome == LOST:
        return Goto(decide, (change, False, broken, carry_out))
    return Goto(carry_out, (change, places, False, broken))


def carry_out(change: Change, places: tuple[str, ...] | None, works: bool, broken: str) -> Program:
    """Do what a change has left to do."""
    decision = yield Get(decision_of(change))
    if not is_committed(decision):
        return Goto(end, (change, works, broken))
    if places is None:
        return Goto(walk, (change, works, broken))
    if broken == "index":
        return Goto(look, (change, places, works, broken))
    return Goto(enter, (change, places, works, broken))


def enter(change: Change, places: tuple[str, ...], works: bool, broken: str) -> Program:
    """Reconcile the entries of the holder, as an eventual index does; then look at what it copies."""
    again = Goto(enter, (change, places, works, broken))
    entries: dict[str, Row | None] = {}
    for place in places:
        entries[place] = yield Get(entry_of(place))
    holder = yield Get(HOLDER)
    for place, found in entries.items():
        outcome = OK
        if place_in(holder) == place and (found is None or found.get("token") != holder.get("token")):
            content = values(token=holder.get("token"))
            outcome, _ = yield (
                insert(entry_of(place), content) if found is None else replace(entry_of(place), content, found.etag)
            )
        elif place_in(holder) != place and found is not None:
            outcome, _ = yield delete(entry_of(place), found.etag)
        if outcome != OK:
            return again
    if (yield Get(HOLDER)) != holder:
        return again
    if broken in ("index", "position"):
        return Goto(end, (change, works, broken))
    return Goto(look, (change, places, works, broken))


def look(change: Change, places: tuple[str, ...], works: bool, broken: str) -> Program:
    """Let the holder have what its source says."""
    again = Goto(look, (change, places, works, broken))
    holder = yield Get(HOLDER)
    name = holder.get("of")
    source = yield Get(source_of(name))
    if holder.get("version") != source.get("version"):
        outcome, _ = yield replace(HOLDER, copied(holder, source), holder.etag)
        if outcome != OK:
            return again
    return Goto(enter, (change, places, works, "index")) if broken == "index" else Goto(end, (change, works, broken))


def copied(holder: Row, source: Row) -> tuple[tuple[str, object], ...]:
    kept = {name: holder.get(name) for name in ("of", "at", "token")}
    return values(**kept, text=source.get("text"), version=source.get("version"))


def walk(change: Change, works: bool, broken: str) -> Program:
    """Let the holders of a page of the index have what their source says; note that the page is done."""
    again = Goto(walk, (change, works, broken))
    decision = yield Get(decision_of(change))
    if not is_committed(decision):
        return Goto(end, (change, works, broken))
    page, name = decision.get("page"), change[0]
    if page > POSITIONS:
        return Goto(end, (change, works, broken))
    noted = replace(decision_of(change), values(state="committed", page=page + 1), decision.etag)
    if broken == "page":
        yield noted
    early = (yield Get(source_of(name))) if broken == "order" else None
    if (yield Get(entry_of(f"{name}{page}"))) is not None:
        holder = yield Get(HOLDER)
        source = early or (yield Get(source_of(name)))
        same = "text" if broken == "version" else "version"
        if holder.get("of") == name and holder.get(same) != source.get(same):
            outcome, _ = yield replace(HOLDER, copied(holder, source), holder.etag)
            if outcome != OK:
                return again
    if broken != "page":
        yield noted
    return again


def end(change: Change, works: bool, broken: str) -> Program:
    """Forget a change that is carried out."""
    decision = yield Get(decision_of(change))
    if is_committed(decision):
        outcome, _ = yield delete(decision_of(change), decision.etag)
        if outcome != OK:
            return Goto(end, (change, works, broken))
    yield Ack(change)
    return Goto(work, (broken, carry_out)) if works else "done"


# What must hold in the end


def copies_are_right(world: World) -> str | None:
    """The holder has the text of its source, and its entry is there."""
    holder = world.rows[HOLDER]
    source = world.rows[source_of(holder.get("of"))]
    if left := committed_is_left(world):
        return left
    if entry_of(str(place_in(holder))) not in world.rows:
        return "the entry of the holder is missing"
    if holder.get("text") != source.get("text"):
        return f"the holder has {holder.get('text')} instead of {source.get('text')}"
    return None


STORED: dict[Key, Row] = {
    source_of("d"): Row("e1", values(text="x", version="v1")),
    source_of("e"): Row("e2", values(text="y", version="v2")),
    HOLDER: Row("e3", values(of="d", at=2, text="x", version="v1", token="v3")),
    entry_of("d2"): Row("e4", values(token="v3")),
}


def renames(client: str, name: str, text: str, broken: str = "") -> Client:
    return Client(client, rename, (name, client.lower(), text, broken))


def moves(client: str, of: str, at: int, broken: str = "") -> Client:
    return Client(client, move, (client.lower(), of, at, broken))


RENAME, RENAME_E, MOVE = renames("A", "d", "z"), renames("A", "e", "z"), moves("B", "e", 1)
WORKER = Client("W", work, ("", carry_out), fails=False)
run = run_with(rows=STORED, at_end=copies_are_right)


@runs(
    run("a holder comes while its source is renamed", RENAME_E, MOVE),
    run("a holder goes while its source is renamed", RENAME, MOVE),
    run(
        "a holder changes its place in the index while its source is renamed",
        RENAME,
        moves("B", "d", 1),
    ),
    run("a source is renamed and gets its old name back", RENAME, renames("B", "d", "x")),
    run("a crash", RENAME, WORKER, crash=1),
    run("any fault", RENAME, WORKER, **ANY_FAULT, large=True),
    run(
        "a holder comes while its source is renamed, one crashes",
        RENAME_E,
        MOVE,
        WORKER,
        crash=1,
        large=True,
    ),
)
def test_copies_are_right_at_rest(run: Run) -> None:
    """When nothing is left to do, the holder has what its source says, wherever it has gone meanwhile."""
    verify(run)


@runs(
    run(
        "a holder is looked at before its entry is there", renames("A", "e", "z", "index"), moves("B", "e", 1, "index")
    ),
    run(
        "a holder is not looked at whose place in the index changes",
        renames("A", "d", "z", "position"),
        moves("B", "d", 1, "position"),
    ),
    run("the source is read before the holder", renames("A", "d", "z", "order"), renames("B", "d", "w", "order")),
    run("a copy that is equal is left alone", renames("A", "d", "z", "version"), renames("B", "d", "x", "version")),
    run("a page is noted before it is done", renames("A", "d", "z", "page"), WORKER, crash=1),
)
def test_each_rule_is_needed(run: Run) -> None:
    """A protocol without one of the rules ends with an old copy."""
    assert find_violation(run)[-1].startswith("the holder has ")
