"""
The models of the concurrent tests: everything that a transaction keeps right, on the same entities.

`Person` has a unique and sparse index, one of keys alone under a condition, and a list; it is counted and summed in
`Team`, which holds copies of its leader. `check` says of all rows of a partition, in one look, what is wrong. The
change feed of the partition notes each `Note`.
"""

import datetime as dt
import json
from collections import Counter
from collections.abc import Iterable
from typing import Any, cast

from tableorm import Count, Embedded, Entity, Feed, Index, IndexList, Mapped, PropertyBag, Sum, field
from tests.derived.index.oracle import Copies, Kind, Table, audit

__all__ = ["KINDS", "PARTITION", "PERSON", "Note", "Person", "Team", "check"]

PARTITION = "p"
HEAD = "person_" + "of_a_long_key_" * 28
"""So long that six of them divide a list."""


class Team(Entity, table="Office", partition_key="p", row_key="team_{name}"):
    name: Mapped[str]
    members: Mapped[int] = field(default=0, maintained=True)
    points: Mapped[int] = field(default=0, maintained=True)
    leader: Mapped[int | None] = field(default=None)
    leader_mail: Mapped[str | None] = field(default=None, maintained=True)
    leader_points: Mapped[int | None] = field(default=None, maintained=True)

    led = Embedded(lambda: Person, {"leader_mail": "mail", "leader_points": "points"}, id="{leader}")


class Person(Entity, table="Office", partition_key="p", row_key=HEAD + "{id:03d}"):
    id: Mapped[int]
    mail: Mapped[str | None] = field(default=None)
    city: Mapped[str] = field(default="a")
    points: Mapped[int] = field(default=0)
    team: Mapped[str | None] = field(default=None)
    note: Mapped[str | None] = field(default=None)

    by_mail = Index(row_key="mail_{mail}", unique=True)
    by_points = Index(row_key="points_{points:03d}_{id:03d}", include="keys", where=lambda p: p.points > 2)
    by_city = IndexList(row_key="city_{city}", divide_at=2048)
    counted = Count(lambda: Team.members, name="{team}")
    summed = Sum("points", lambda: Team.points, name="{team}")


class Note(Entity, table="Office", partition_key="p", row_key="note_{id}"):
    id: Mapped[int]

    changes = Feed(keep=dt.timedelta(days=1))


PERSON = Kind(
    "Person",
    lambda _, row_key: {"id": int(row_key.removeprefix(HEAD))},
    (
        Copies(
            "by_mail",
            lambda e: f"mail_{e['mail']}" if e.get("mail") is not None else None,
            adds=lambda e: {"id": e["id"]},
        ),
        Copies(
            "by_points",
            lambda e: f"points_{e['points']:03d}_{e['id']:03d}" if e["points"] > 2 else None,
            frozenset(),
        ),
    ),
)
KINDS = (PERSON,)


def check(table: Table) -> list[str]:
    """What is wrong with a partition that was read at one moment; nothing if all that is derived is right."""
    people = {key[1]: bag for key, bag in table.items() if bag.get("EntityType") == "Person"}
    teams = {key[1]: bag for key, bag in table.items() if bag.get("EntityType") == "Team"}
    return [*audit(table, KINDS), *_lists(table, people), *_totals(people, teams), *_leaders(people, teams)]


def _lists(table: Table, people: dict[str, PropertyBag]) -> list[str]:
    """Each person is in the list of its city, once, and in no other."""
    wrong: list[str] = []
    listed: Counter[tuple[str, str]] = Counter()
    for (_, row_key), bag in table.items():
        if bag.get("EntityType") == "Person#by_city":
            name, _, bits = row_key.removeprefix("city_").partition("~")
            packed = b"".join(bag[each] for each in sorted(bag) if each.startswith("Keys"))
            keys = packed.decode().split("\n")[:-1]
            if bag.get("Divided") and keys:
                wrong.append(f"{row_key} was divided, and has keys")
            if not bag.get("Divided") and any(
                f"city_{name}~{bits[:n]}" not in _divided(table) for n in range(len(bits))
            ):
                wrong.append(f"{row_key} is reached by nobody")
            listed.update((name, key) for key in keys)
    wanted = Counter((bag["city"], row_key) for row_key, bag in people.items())
    if listed != wanted:
        wrong.append(f"the lists have {listed - wanted} and lack {wanted - listed}")
    return wrong


def _divided(table: Table) -> set[str]:
    return {key[1] for key, bag in table.items() if bag.get("Divided")}


def _totals(people: dict[str, PropertyBag], teams: dict[str, PropertyBag]) -> list[str]:
    """Each team counts its members and their points."""
    counts, sums = Counter[str](), Counter[str]()
    for bag in people.values():
        if bag.get("team") is not None:
            counts[f"team_{bag['team']}"] += 1
            sums[f"team_{bag['team']}"] += bag["points"]
    return [
        f"{row_key} has {bag['members']} members with {bag['points']} points, and there are {counts[row_key]} with "
        f"{sums[row_key]}"
        for row_key, bag in teams.items()
        if (bag["members"], bag["points"]) != (counts[row_key], sums[row_key])
    ]


def _leaders(people: dict[str, PropertyBag], teams: dict[str, PropertyBag]) -> list[str]:
    """Each team holds what its leader has, and the leader notes that."""
    wrong: list[str] = []
    for row_key, bag in teams.items():
        held: tuple[Any, Any] = bag.get("leader_mail"), bag.get("leader_points")
        leader: Any = None
        if bag.get("leader") is not None:
            leader = people.get(f"{HEAD}{bag['leader']:03d}")
            if leader is None:
                wrong.append(f"{row_key} is led by {bag['leader']}, which is not there")
                continue
        real = (None, None) if leader is None else (leader.get("mail"), leader.get("points"))
        if held != real:
            wrong.append(f"{row_key} holds {held} of its leader, which has {real}")
    for row_key, bag in people.items():
        noted = {mark["to"][0] for mark in _marks(bag) if "to" in mark}
        led = {key for key, team in teams.items() if f"{HEAD}{team.get('leader') or -1:03d}" == row_key}
        if noted != led:
            wrong.append(f"{row_key} notes {noted}, and leads {led}")
    return wrong


def _marks(bag: PropertyBag) -> Iterable[dict[str, Any]]:
    marks: dict[str, Any] = json.loads(bag.get("_ix", "{}"))
    return [cast("dict[str, Any]", mark) for mark in marks.values() if isinstance(mark, dict)]
