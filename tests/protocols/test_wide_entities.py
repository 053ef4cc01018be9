"""
Wide entities: a guard and parts, each part carrying the token of its last write, the guard the token that every part
must have. The reader gets row by row, in any order, with writers in between.
"""

from itertools import permutations
from typing import Any

import pytest

from tests.protocols.explorer import (
    ANY_FAULT,
    OK,
    Client,
    Get,
    Key,
    Program,
    Row,
    Run,
    World,
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

GUARD: Key = ("p", "e")
PARTS: tuple[Key, ...] = (("p", "e~01"), ("p", "e~02"))
HEADS = ("p1", "p2")


def guard(heads: tuple[str | None, ...], content: str | None) -> Any:
    return values(**dict(zip(HEADS, heads, strict=True)), c=content)


def heads_of(row: Row) -> list[str | None]:
    return [row.get(name) for name in HEADS]


def part(token: str) -> Any:
    return values(w=token, c=token)


# The protocol; `broken` names a rule that a run leaves out.


def write_part(at: int, token: str, broken: str = "") -> Program:
    """Change one part, or make it: two operations whatever the size of the entity."""
    row = yield Get(GUARD)
    if row is None:
        return "absent"
    heads = heads_of(row)
    change = insert(PARTS[at], part(token)) if heads[at] is None else replace(PARTS[at], part(token), "*")
    heads[at] = token
    own = replace(GUARD, guard(tuple(heads), row.get("c")), row.etag)
    reply, _ = yield change if broken == "guard" else together(own, change)
    return "done" if reply == OK else "refused or lost"


def write_all(token: str, kept: int = 2) -> Program:
    """Replace the whole entity, with so many parts."""
    row = yield Get(GUARD)
    if row is None:
        return "absent"
    heads = heads_of(row)
    operations = [replace(GUARD, guard(tuple(token if at < kept else None for at in range(2)), token), row.etag)]
    for at, key in enumerate(PARTS):
        if at < kept:
            operations.append(insert(key, part(token)) if heads[at] is None else replace(key, part(token), "*"))
        elif heads[at] is not None:
            operations.append(delete(key, "*"))
    reply, _ = yield together(*operations)
    return "done" if reply == OK else "refused or lost"


def delete_all() -> Program:
    row = yield Get(GUARD)
    if row is None:
        return "absent"
    there = [delete(key, "*") for key, head in zip(PARTS, heads_of(row), strict=True) if head is not None]
    reply, _ = yield together(delete(GUARD, row.etag), *there)
    return "done" if reply == OK else "refused or lost"


def create(token: str) -> Program:
    reply, _ = yield together(insert(GUARD, guard((token, token), token)), *(insert(key, part(token)) for key in PARTS))
    return "done" if reply == OK else "refused or lost"


def read(order: tuple[Key, ...], broken: str = "") -> Program:
    """Read, and again if the rows do not fit together. A part that the guard does not name is left out."""
    for _ in range(2):
        got: dict[Key, Row | None] = {}
        for key in order:
            got[key] = yield Get(key)
        own = got[GUARD]
        if own is None:
            return ("read", None)
        pairs = [(got[key], head) for key, head in zip(PARTS, heads_of(own), strict=True) if head is not None]
        if broken == "presence":
            torn = any(row is None for row, _ in pairs)
        elif broken == "number":  # a part may be older than its guard, as if tokens had an order
            torn = any(row is None or row.get("w") > head for row, head in pairs)
        else:
            torn = any(row is None or row.get("w") != head for row, head in pairs)
        if not torn:
            return ("read", entity(own, [row for row, _ in pairs]))
    return "torn twice"


def entity(own: Row, parts: list[Row | None]) -> Any:
    return (own.get("c"), *(row.get("c") for row in parts if row is not None))


# What must hold


def watch(world: World) -> Any:
    """Note each version of the entity that there was while the reader was at work."""
    own = world.rows.get(GUARD)
    now = (
        None
        if own is None
        else entity(own, [world.rows.get(k) for k, h in zip(PARTS, heads_of(own), strict=True) if h])
    )
    seen: tuple[Any, ...] = world.history or ()
    if "R" in world.running or ("R" in world.results and not seen):
        seen = tuple(sorted({*seen, now}, key=str))
    return seen


def always(world: World) -> str | None:
    own = world.rows.get(GUARD)
    for key, name in zip(PARTS, HEADS, strict=True):
        row = world.rows.get(key)
        if (None if row is None else row.get("w")) != (None if own is None else own.get(name)):
            return "a part does not match the guard"
    found = world.results.get("R")
    if isinstance(found, tuple) and found[1] not in world.history:
        return "a reader has seen rows of different writes"
    return None


START = {GUARD: Row("e0", guard(("o", "o"), "o")), **{key: Row("e0", part("o")) for key in PARTS}}
SMALL = {GUARD: Row("e0", guard(("o", None), "o")), PARTS[0]: Row("e0", part("o"))}
A, B = Client("A", write_part, (0, "a")), Client("B", write_part, (1, "b"))
FULL, SHRINK = Client("F", write_all, ("f",)), Client("H", write_all, ("h", 1))
NEWER = Client("F", write_all, ("z",))
GONE, BORN = Client("X", delete_all), Client("N", create, ("n",))


def reader(order: tuple[Key, ...] = (GUARD, *PARTS), broken: str = "") -> Client:
    return Client("R", read, (order, broken))


run = run_with(rows=START, always=always, watch=watch, **ANY_FAULT)


def in_each_order(title: str, *clients: Client, rows: Any = START) -> list[Run]:
    """The run for each order in which a reader gets the rows; one of them in `make test`."""
    orders = [*permutations((GUARD, *PARTS))]
    return [
        run(f"{title}, {' '.join(key[1] for key in order)}", *clients, reader(order), rows=rows, large=at % 5 > 0)
        for at, order in enumerate(orders)
    ]


@runs(
    *in_each_order("two writers of parts", A, B),
    *in_each_order("a part, and all", A, FULL),
    *in_each_order("growth, and all", B, FULL, rows=SMALL),
    *in_each_order("shrinking, and a part", SHRINK, B),
    *in_each_order("delete, and insert", GONE, BORN),
    run("delete, insert, and a part", GONE, BORN, A, reader(), lost=0, late=0, crash=0),
)
def test_a_reader_sees_what_was_the_entity_at_one_moment(run: Run) -> None:
    """Whatever is lost, late or dead, and in whichever order rows come; parts are always what the guard says."""
    verify(run)


@pytest.mark.parametrize(
    ("run", "problem"),
    [
        (run("only whether parts are there", FULL, reader(broken="presence")), "a reader has seen rows of different"),
        (
            run("parts may be older than the guard", NEWER, reader((*PARTS, GUARD), "number")),
            "a reader has seen rows of different",
        ),
        (
            run("a part without the guard", Client("A", write_part, (0, "a", "guard"))),
            "a part does not match the guard",
        ),
    ],
)
def test_each_rule_is_needed(run: Run, problem: str) -> None:
    """Without one of its rules a reader takes rows of different writes for one entity, or never again reads it."""
    assert find_violation(run)[-1].startswith(problem)
