"""
A re-key of one entity: what the mover, live code of each phase, old code and a roll back do to it at the same time.

Each test has a small form, in which two clients meet and one may crash, and a large one in `make torture`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import attrs
import pytest

from tests.protocols.explorer import Client, Key, Row, Run, Values, find_violation, run_with, runs, values, verify
from tests.protocols.rekey_rules import (
    judge,
    judge_end,
    old_change,
    old_create,
    old_force_delete,
    old_upsert,
    watch,
)
from tests.protocols.rekeying import (
    CONFIRMED,
    FORWARD,
    NEW,
    OLD,
    SETTLED,
    change,
    change_in_place,
    change_sealed,
    change_seen,
    create,
    create_early,
    create_in_place,
    create_sealed,
    finalize,
    live,
    move,
    put,
    read,
    read_early,
    read_sealed,
    renew,
    repeat,
    resume,
    roll_back,
    roll_back_seen,
    tentative,
)
from tests.torture import choose_rounds


def rows(old: Values | None, new: Values | None = None) -> Mapping[Key, Row]:
    """Return the rows of an entity with their entries: the old key has ETag "e0", the new one "d0"."""
    found: dict[Key, Row] = {}
    for key, etag, content in ((OLD, "e0", old), (NEW, "d0", new)):
        if content is not None:
            found |= {each.key: Row(etag, each.content) for each in put(key, None, content).operations}
    return found


MOVED_BY_Z = values(state=FORWARD, move="z", etag="ez", text="o")
BACK_BY_Y = values(state=FORWARD, move="y", etag="dz", text="o")

STARTS = {
    "at the old key": rows(live("o")),
    "a move has begun": rows(live("o"), tentative("z", "e0", "o")),
    "a move has failed": rows(live("o"), tentative("z", "ez", "n")),
    "moved, not confirmed": rows(MOVED_BY_Z, tentative("z", "ez", "o")),
    "moved": rows(MOVED_BY_Z, values(state=CONFIRMED, move="z", text="o")),
    "written since": rows(SETTLED, live("o")),
    "deleted since": rows(SETTLED),
    "deleted, a row came late": rows(SETTLED, tentative("z", "ez", "o")),
    "free": rows(None),
    "free, a row came late": rows(None, tentative("z", "ez", "o")),
}
"""What the mover and live code can leave, if they stop at any time."""

STARTS_BACK = STARTS | {
    "a roll back has begun": rows(tentative("y", "d0", "o"), live("o")),
    "a roll back has failed": rows(tentative("y", "dz", "n"), live("o")),
    "rolled back, not live": rows(tentative("y", "dz", "o"), BACK_BY_Y),
    "rolled back, a forward is left": rows(live("o"), BACK_BY_Y),
    "a roll back has failed, deleted since": rows(tentative("y", "dz", "o")),
}

STARTS_SEALED = {title: start for title, start in STARTS.items() if start.get(OLD, Row("", ())).get("state") != "live"}


# The clients: X deletes, R reads, and what the others write is in `LETTERS`. Each begins one move at most.

MOVER, MOVER_2 = Client("M", move, ("m", 1)), Client("N", move, ("n", 1))
MOVER_BACK = Client("P", resume, ("p",))
UPDATE, UPDATE_2 = Client("U", change, ("u", "u", 1)), Client("V", change, ("v", "v", 1))
UPDATE_SEEN = Client("S", change_seen, ("s", "s"))
DELETE = Client("X", change, ("x", None, 1))
INSERT, INSERT_2 = Client("I", create, ("i", "i")), Client("J", create, ("j", "j"))
UPDATE_IN_PLACE, DELETE_IN_PLACE = Client("W", change_in_place, ("w",)), Client("XP", change_in_place, (None,))
INSERT_EARLY = Client("E", create_early, ("e", "e"))
INSERT_IN_PLACE, INSERT_IN_PLACE_2 = Client("K", create_in_place, ("k",)), Client("L", create_in_place, ("l",))
ROLL_BACK, ROLL_BACK_2 = Client("B", roll_back, ("b", 1)), Client("B2", roll_back, ("c", 1))
ROLL_BACK_SEEN = Client("B3", roll_back_seen, ("d",))
RENEWAL = Client("XM", renew, ("r",))
UPDATE_SEALED, DELETE_SEALED = Client("A", change_sealed, ("a",)), Client("XS", change_sealed, (None,))
INSERT_SEALED = Client("C", create_sealed, ("c",))
FINALIZE, FINALIZE_2 = Client("Z", finalize), Client("Z2", finalize)
OLD_UPDATE, OLD_DELETE = Client("O", old_change, ("p",)), Client("XO", old_change, (None,))
OLD_INSERT = Client("Q", old_create, ("q",))
READER = Client("R", read, fails=False)
READER_EARLY = Client("R", read_early, fails=False)
READER_SEALED = Client("R", read_sealed, fails=False)
LATE = Client("G", repeat, fails=False)

TWINS = (MOVER_2, UPDATE_2, INSERT_2, INSERT_IN_PLACE_2, ROLL_BACK_2, FINALIZE_2)
"""Those who meet only somebody who does the same."""

OLD_CODE = (OLD_UPDATE, OLD_DELETE, OLD_INSERT)
LIVE = (UPDATE, UPDATE_SEEN, DELETE, INSERT)
EXPAND = (UPDATE_IN_PLACE, DELETE_IN_PLACE, INSERT_EARLY)
BACK = (UPDATE_IN_PLACE, DELETE_IN_PLACE, INSERT_IN_PLACE)
SEALED = (UPDATE_SEALED, DELETE_SEALED, INSERT_SEALED)


run_with_end = run_with(at_end=judge_end, watch=watch)


def run_of(title: str, start: Mapping[Key, Row], *clients: Client, sealed: bool = False, **faults: Any) -> Run:
    return run_with_end(title, *clients, rows=start, always=partial(judge, sealed=sealed), **faults)


def of_clients(*clients: Client) -> pytest.MarkDecorator:
    """Return the decorator that gives a test each of some `clients`, first, and those that come after it."""
    named = [clients[number:] for number in range(len(clients))]
    return pytest.mark.parametrize("clients", named, ids=[each[0].program.__name__ + each[0].name for each in named])


def verify_pairs(
    start: Mapping[Key, Row], clients: Sequence[Client], others: Iterable[Client], *, sealed: bool = False
) -> None:
    """
    Visit every state of the first client together with each other: with a crash; in `make torture` also with a lost
    and a late request.
    """
    one, faults = clients[0], choose_rounds(0, 1)
    for two in (*clients[1:], *others):
        if two not in TWINS or one.program is two.program:
            title = f"{one.name} {one.program.__name__}, {two.name} {two.program.__name__}"
            verify(run_of(title, start, one, two, sealed=sealed, lost=faults, late=faults, crash=1))


@pytest.mark.one_of(7)
@pytest.mark.torture
@pytest.mark.parametrize("start", STARTS)
@of_clients(MOVER, *LIVE)
def test_an_entity_is_moved_while_others_write(start: str, clients: Sequence[Client]) -> None:
    """At every moment the entity has one home. No write is lost or done twice, and nothing comes back."""
    others = (MOVER_2, UPDATE_2, INSERT_2, MOVER_BACK, LATE, READER, READER_EARLY, *EXPAND, *OLD_CODE)
    verify_pairs(STARTS[start], clients, others)


@pytest.mark.one_of(7)
@pytest.mark.torture
@pytest.mark.parametrize("start", STARTS_BACK)
@of_clients(ROLL_BACK, *BACK)
def test_an_entity_is_rolled_back_while_others_write(start: str, clients: Sequence[Client]) -> None:
    """The entity comes back to its old key with every write, and one that was deleted frees its old key."""
    others = (ROLL_BACK_2, INSERT_IN_PLACE_2, MOVER, MOVER_BACK, LATE, READER, *OLD_CODE)
    verify_pairs(STARTS_BACK[start], clients, others)


@runs(
    *(
        run_of(
            f"{start}: {other.name} {other.program.__name__}",
            STARTS[start],
            ROLL_BACK_SEEN,
            other,
            crash=1,
            large=other is not RENEWAL,
        )
        for start in ("moved", "written since")
        for other in (RENEWAL, ROLL_BACK, MOVER, READER, *BACK)
    )
)
def test_an_entity_is_rolled_back_that_was_read_before(run: Run) -> None:
    """A roll back may have read the row at the new key long before the one at the old key."""
    verify(run)


@pytest.mark.one_of(3)
@pytest.mark.torture
@pytest.mark.parametrize("start", STARTS_SEALED)
@of_clients(FINALIZE, *SEALED)
def test_an_entity_is_final_while_others_write(start: str, clients: Sequence[Client]) -> None:
    """The forward is deleted while sealed code writes, and code that does not know yet that it is sealed."""
    others = (FINALIZE_2, MOVER_BACK, LATE, READER_SEALED, READER, *LIVE)
    verify_pairs(STARTS_SEALED[start], clients, others, sealed=True)


def triples(starts: Iterable[str], *clients: tuple[Client, Client, Client], sealed: bool = False) -> Iterator[Run]:
    """Return the large runs of three clients, of which one may crash."""
    for start in starts:
        for three in clients:
            title = f"{start}: " + ", ".join(f"{each.name} {each.program.__name__}" for each in three)
            yield run_of(title, STARTS_BACK[start], *three, sealed=sealed, crash=1, large=True)


@runs(
    run_of("moved, a row comes late", STARTS["moved"], DELETE, INSERT, LATE, crash=1),
    *triples(
        ("at the old key",),
        (MOVER, MOVER_2, UPDATE),
        (MOVER, UPDATE, OLD_UPDATE),
        (MOVER, DELETE, OLD_UPDATE),
        (MOVER, UPDATE, OLD_DELETE),
        (MOVER, DELETE, INSERT),
        (MOVER, OLD_DELETE, OLD_INSERT),
        (UPDATE, DELETE, INSERT),
        (MOVER, DELETE, READER),
        (MOVER, UPDATE, READER),
        (UPDATE_IN_PLACE, UPDATE_2, MOVER),
        (DELETE_IN_PLACE, INSERT, MOVER),
    ),
    *triples(("free", "deleted since"), (INSERT, OLD_INSERT, MOVER), (INSERT_EARLY, INSERT_2, DELETE)),
    *triples(("moved, not confirmed", "moved"), (MOVER_BACK, DELETE, LATE), (UPDATE, DELETE, LATE)),
    *triples(("moved", "written since"), (ROLL_BACK, ROLL_BACK_2, UPDATE_IN_PLACE)),
    *triples(("at the old key", "rolled back, a forward is left"), (ROLL_BACK, MOVER, READER)),
    *triples(
        ("moved", "moved, not confirmed", "written since", "deleted since", "a roll back has begun"),
        (ROLL_BACK, MOVER, UPDATE_IN_PLACE),
        (ROLL_BACK, DELETE_IN_PLACE, OLD_INSERT),
        (ROLL_BACK, INSERT_IN_PLACE, OLD_INSERT),
        (ROLL_BACK, INSERT_IN_PLACE, DELETE_IN_PLACE),
        (ROLL_BACK, MOVER, READER),
        (ROLL_BACK, DELETE_IN_PLACE, READER),
    ),
    *triples(
        ("moved", "moved, not confirmed", "deleted since"),
        (FINALIZE, FINALIZE_2, DELETE_SEALED),
        (FINALIZE, DELETE_SEALED, LATE),
        (FINALIZE, DELETE_SEALED, INSERT_SEALED),
        (FINALIZE, DELETE_SEALED, INSERT_2),
        (FINALIZE, DELETE, LATE),
        (FINALIZE, MOVER_BACK, DELETE_SEALED),
        sealed=True,
    ),
)
def test_three_clients_meet(run: Run) -> None:
    """Also with three clients at a time the entity has one home, no write is lost, and nothing comes back."""
    verify(run)


def without(rule: str, program: Client, *arguments: object) -> Client:
    """Return a client that leaves out a rule; the arguments are those before it."""
    return program._replace(arguments=(*arguments, rule))


PROBLEMS: dict[str, str] = {}


def problem(found: str, title: str, start: str, *clients: Client, sealed: bool = False) -> Run:
    """Return a run that finds a problem."""
    PROBLEMS[title] = found
    run = run_of(title, STARTS_BACK[start], *clients, sealed=sealed)
    return attrs.evolve(run, always=partial(judge, rows=False))


COMMIT_BLINDLY = without("etag", MOVER, "m", 1, None)


@runs(
    problem("a state came back", "a forward without a condition", "at the old key", COMMIT_BLINDLY, OLD_UPDATE),
    problem(
        "it is lost",
        "a tentative row is deleted before the old row is touched",
        "at the old key",
        MOVER,
        without("touch", MOVER_2, "n", 1, None),
    ),
    problem(
        "a state came back",
        "a confirmed row is deleted before its forward is settled",
        "moved",
        without("settle", DELETE, "x", None, 1),
        LATE,
    ),
    problem(
        "a state came back",
        "a forward that was read before the tentative row",
        "moved, not confirmed",
        without("order", MOVER_BACK, "p"),
        DELETE,
        LATE,
    ),
    problem(
        "it is live twice",
        "an insert that does not take the old key",
        "free",
        without("take", INSERT, "i", "i"),
        OLD_INSERT,
    ),
    problem("it is live twice", "old code that writes blindly", "moved", Client("Q", old_upsert, ("q",))),
    problem(
        "it is live twice",
        "old code that deletes blindly",
        "moved",
        Client("X", old_force_delete),
        OLD_INSERT,
    ),
    problem(
        "None was read",
        "a reader of each key once, the new one first",
        "at the old key",
        MOVER,
        without("twice", READER),
    ),
    problem(
        "None was read",
        "a reader of the new key twice and of the old one once, as the entity comes and goes back",
        "at the old key",
        MOVER,
        ROLL_BACK,
        without("thrice", READER),
    ),
    problem(
        "None was read",
        "a reader of each key once, the old one first",
        "moved",
        ROLL_BACK,
        without("twice", READER_EARLY),
    ),
    problem(
        "it is live twice",
        "a roll back that does not wait for inserts at the new key",
        "deleted since",
        ROLL_BACK,
        INSERT,
        OLD_INSERT,
    ),
    problem(
        "it is lost",
        "the old key is freed under an ETag that was read after the new key",
        "deleted since",
        without("late", ROLL_BACK, "b", 1),
        INSERT_IN_PLACE,
    ),
    problem(
        "a write was overwritten",
        "an insert over an ETag that was read after the new key",
        "deleted since",
        without("late", INSERT_IN_PLACE, "k"),
        INSERT_IN_PLACE_2,
    ),
    problem(
        "it is live twice",
        "a roll back that deletes the rows of one that has failed",
        "a roll back has failed",
        without("drop", ROLL_BACK, "b", 1),
        OLD_INSERT,
    ),
    problem(
        "it is lost",
        "a roll back that has read the old key before a tentative row",
        "a move has begun",
        without("early", ROLL_BACK, "b", 1),
        Client("M", move, ("m", 2)),
    ),
    problem(
        "it is lost",
        "a roll back that has read the old key before a forward",
        "moved",
        without("early", ROLL_BACK, "b", 1),
        ROLL_BACK_2,
    ),
    problem(
        "a state came back",
        "a roll back of a row that was read before a newer move",
        "written since",
        without("newer", ROLL_BACK_SEEN, "d"),
        RENEWAL,
    ),
    problem(
        "a state came back",
        "a final entity whose forward was read before its tentative row",
        "moved, not confirmed",
        without("order", FINALIZE),
        DELETE_SEALED,
        LATE,
        sealed=True,
    ),
    problem(
        "it is lost",
        "a final entity that is not confirmed first",
        "moved, not confirmed",
        without("confirm", FINALIZE),
        sealed=True,
    ),
)
def test_each_rule_is_needed(run: Run) -> None:
    """
    A protocol without one of the rules loses a write, has two homes for an entity, or brings back a deleted one. So
    does old code that writes without a condition: it has to end before anything is moved.
    """
    assert find_violation(run)[-1].startswith(PROBLEMS[run.title])
