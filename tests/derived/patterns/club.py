"""
The models of the stateful tests, each derivation in every variant, and what must be stored: worked out by hand.

A `Player` is in a unique index, in one of keys alone under a condition, in one for each element of a list, and in two
lists, of which one is sparse and under a condition; it is counted in its squad,
by another count under a condition, summed, and counted in a `Total` that is made when it is needed; it holds copies of
another player, perhaps of itself. A `Squad` is counted in the squad above it, perhaps itself, and holds copies of two
players, perhaps of one. Keys are so long that five of them divide a list.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from tableorm import Count, Embedded, Entity, Index, IndexList, Int32, Mapped, PropertyBag, Sum, field
from tests.derived.index.oracle import Copies, Kind, Table, audit

CLUB = "c"
HEAD = "player_" + "of_a_long_key_" * 33


class Total(Entity, table="Club", partition_key="{club}", row_key="total_{what}"):
    club: Mapped[str]
    what: Mapped[str]
    number: Mapped[int] = field(default=0, maintained=True)


class Squad(Entity, table="Club", partition_key="{club}", row_key="squad_{name}", tracked=True):
    club: Mapped[str] = field(default=CLUB)
    name: Mapped[str]
    above: Mapped[str | None] = field(default=None)
    below: Mapped[int] = field(default=0, maintained=True)
    size: Mapped[int] = field(default=10, maintained=True)
    fit: Mapped[Int32] = field(default=0, maintained=True)
    points: Mapped[int] = field(default=0, name="Points", maintained=True)
    captain: Mapped[int | None] = field(default=None)
    captain_nick: Mapped[str | None] = field(default=None, maintained=True)
    captain_points: Mapped[int | None] = field(default=None, maintained=True)
    vice: Mapped[int | None] = field(default=None)
    vice_points: Mapped[int | None] = field(default=None, maintained=True)
    note: Mapped[str | None] = field(default=None)

    counted = Count(lambda: Squad.below, club="{club}", name="{above}")
    led = Embedded(lambda: Player, {"captain_nick": "nick", "captain_points": "points"}, club="{club}", id="{captain}")
    led_too = Embedded(lambda: Player, {"vice_points": "points"}, club="{club}", id="{vice}")


class Player(Entity, table="Club", partition_key="{club}", row_key=HEAD + "{id:02d}"):
    club: Mapped[str] = field(default=CLUB)
    id: Mapped[int]
    name: Mapped[str] = field(default="Li")
    nick: Mapped[str | None] = field(default=None)
    points: Mapped[int | None] = field(default=None)
    squad: Mapped[str | None] = field(default=None)
    active: Mapped[bool] = field(default=True)
    tags: Mapped[list[str]] = field(factory=list)
    friend: Mapped[int | None] = field(default=None)
    friend_name: Mapped[str | None] = field(default=None, maintained=True)

    by_nick = Index(row_key="nick_{nick}", unique=True, include=["points"])
    by_rank = Index(row_key="rank_{points:03d}_{id:02d}", include="keys", where=lambda p: (p.points or 0) > 2)
    by_tag = Index(row_key="tag_{tags:each}_{id:02d}")
    by_name = IndexList(row_key="name_{name}", divide_at=2048)
    by_points = IndexList(row_key="points_{points:03d}_{squad}", where=lambda p: p.active, divide_at=2048)
    counted = Count(lambda: Squad.size, club="{club}", name="{squad}")
    fit = Count(lambda: Squad.fit, where=lambda p: p.active, club="{club}", name="{squad}")
    summed = Sum("points", lambda: Squad.points, club="{club}", name="{squad}")
    all = Count(lambda: Total.number, create=True, club="{club}", what="players")
    liked = Embedded(lambda: Player, {"friend_name": "name"}, club="{club}", id="{friend}")


def _rank_of(player: Mapping[str, Any]) -> str | None:
    points = player.get("points") or 0
    return f"rank_{points:03d}_{player['id']:02d}" if points > 2 else None


_PLAYER = Kind(
    "Player",
    lambda club, row_key: {"club": club, "id": int(row_key.removeprefix(HEAD))},
    (
        Copies(
            "by_nick",
            lambda e: f"nick_{e['nick']}" if e.get("nick") is not None else None,
            frozenset({"nick", "points"}),
            adds=lambda e: {"id": e["id"]},
        ),
        Copies("by_rank", _rank_of, frozenset()),
        Copies(
            "by_tag",
            lambda e: {f"tag_{tag.replace('_', '^5F')}_{e['id']:02d}" for tag in json.loads(e["tags"])},
            frozenset({"name", "nick", "points", "squad", "active", "tags", "friend"}),
        ),
    ),
)
ENTRIES = {index.name for index in _PLAYER.indexes}

Bags = dict[str, PropertyBag]
"""Entities of one kind, by RowKey."""


def player_row(number: int) -> str:
    return f"{HEAD}{number:02d}"


def squad_row(name: str) -> str:
    return f"squad_{name}"


def _of_kind(table: Table, kind: str) -> Bags:
    return {key[1]: bag for key, bag in table.items() if bag.get("EntityType") == kind}


def _added(player: Mapping[str, Any]) -> dict[str, tuple[str, str, int]]:
    """What a player adds, by name of the count or sum: to which row, in which property, how much."""
    found = {"all": ("total_players", "number", 1)}
    if player.get("squad") is not None:
        squad = squad_row(player["squad"])
        found |= {
            "counted": (squad, "size", 1),
            "fit": (squad, "fit", int(player["active"])),
            "summed": (squad, "Points", player.get("points") or 0),
        }
    return {name: each for name, each in found.items() if each[2]}


def _lists(player: Mapping[str, Any]) -> dict[str, str]:
    """The lists that a player is in, by name of the index."""
    found = {"by_name": f"name_{player['name']}"}
    if player["active"] and player.get("points") is not None and player.get("squad") is not None:
        found["by_points"] = f"points_{player['points']:03d}_{player['squad']}"
    return found


def _held(bag: PropertyBag) -> Iterable[tuple[str, int, dict[str, str]]]:
    """What an entity holds of players: declaration, number, and by property of its own the player's."""
    if bag["EntityType"] == "Player":
        held = [("Player.liked", bag.get("friend"), {"friend_name": "name"})]
    else:
        held = [
            ("Squad.led", bag.get("captain"), {"captain_nick": "nick", "captain_points": "points"}),
            ("Squad.led_too", bag.get("vice"), {"vice_points": "points"}),
        ]
    return [(label, number, fields) for label, number, fields in held if number is not None]


def check(table: Table) -> list[str]:
    """What is wrong with a partition that was read at one moment."""
    players, squads = _of_kind(table, "Player"), _of_kind(table, "Squad")
    totals = _of_kind(table, "Total")
    wrong = [*audit(table, (_PLAYER,)), *_wrong_lists(table, players), *_wrong_totals(players, squads, totals)]
    for row_key, bag in {**players, **squads}.items():
        wrong += _wrong_copies(row_key, bag, players)
        noted, due = json.loads(bag.get("_ix", "{}")), _notes(row_key, bag, {**players, **squads})
        noted = {name: at for name, at in noted.items() if name not in ENTRIES}
        if noted != due:
            wrong.append(f"{_short(row_key)} notes {noted}, and should note {due}")
    return wrong


def _short(row_key: str) -> str:
    return row_key.replace(HEAD, "player_")


def _notes(row_key: str, bag: PropertyBag, everyone: Bags) -> dict[str, Any]:
    """What an entity has to note but for its index entries."""
    due: dict[str, Any] = {}
    if bag["EntityType"] == "Player":
        due |= {name: {"list": [key, f"Player#{name}"]} for name, key in _lists(bag).items()}
        due |= {name: {"add": [to, {field_: much}]} for name, (to, field_, much) in _added(bag).items()}
    elif bag.get("above") is not None:
        due["counted"] = {"add": [squad_row(bag["above"]), {"below": 1}]}
    for label, number, _ in _held(bag):
        due[label.partition(".")[2]] = {"from": [player_row(number), f"{label}:{row_key}"]}
    for holder, other in everyone.items():
        for label, number, fields in _held(other):
            if player_row(number) == row_key:
                theirs = {mine: own for own, mine in fields.items()}
                due[f"{label}:{holder}"] = {"to": [holder, theirs]}
    return due


def _wrong_copies(row_key: str, bag: PropertyBag, players: Bags) -> list[str]:
    names = ["friend_name"] if bag["EntityType"] == "Player" else ["captain_nick", "captain_points", "vice_points"]
    due: dict[str, Any] = dict.fromkeys(names)
    for label, number, fields in _held(bag):
        other = players.get(player_row(number))
        if other is None:
            return [f"{_short(row_key)} refers to player {number} ({label}), which is not there"]
        due |= {mine: other.get(theirs) for mine, theirs in fields.items()}
    held = {name: bag.get(name) for name in names}
    return [] if held == due else [f"{_short(row_key)} holds {held}, and should hold {due}"]


def _wrong_totals(players: Bags, squads: Bags, totals: Bags) -> list[str]:
    """Each count and sum is its default and what is added."""
    due: Counter[tuple[str, str]] = Counter({(row_key, "size"): 10 for row_key in squads})
    for player in players.values():
        for to, name, much in _added(player).values():
            due[to, name] += much
    for squad in squads.values():
        if squad.get("above") is not None:
            due[squad_row(squad["above"]), "below"] += 1
    kept = {**dict.fromkeys(squads, ("size", "fit", "Points", "below")), **dict.fromkeys(totals, ("number",))}
    found = Counter({(key, name): {**squads, **totals}[key][name] for key, names in kept.items() for name in names})
    return [] if found == due else [f"the totals are {found}, and should be {due}"]


def _wrong_lists(table: Table, players: Bags) -> list[str]:
    """Each player is in its lists, once, and in no other; and readers find each row."""
    wrong: list[str] = []
    listed: Counter[tuple[str, str, str]] = Counter()
    for index in ("by_name", "by_points"):
        rows = _of_kind(table, f"Player#{index}")
        for row_key, bag in rows.items():
            list_key, _, bits = row_key.rpartition("~")
            keys = b"".join(bag[each] for each in sorted(bag) if each.startswith("Keys")).decode().split("\n")[:-1]
            above = [rows.get(row_key[: len(row_key) - n]) for n in range(1, len(bits) + 1)]
            if not all(each is not None and each.get("Divided") for each in above):
                wrong.append(f"{row_key} is reached by nobody")
            if bag.get("Divided") and keys:
                wrong.append(f"{row_key} was divided, and has keys")
            listed.update((index, list_key, key) for key in keys)
    due = Counter((index, key, row_key) for row_key, bag in players.items() for index, key in _lists(bag).items())
    if listed != due:
        wrong.append(f"the lists have {listed - due}, and lack {due - listed}")
    return wrong


def refusals(table: Table, row_key: str, after: Mapping[str, Any] | None) -> set[str]:
    """
    Names of the errors that a single write must raise because of other entities; none if it must succeed.

    Args:
        table: All rows.
        row_key: Of the entity.
        after: What it will be like; None if it goes.
    """
    players, squads = _of_kind(table, "Player"), _of_kind(table, "Squad")
    others = {key: bag for key, bag in {**players, **squads}.items() if key != row_key}
    if after is None:
        held = any(player_row(number) == row_key for bag in others.values() for _, number, _ in _held(bag))
        counted = any(
            squad_row(name) == row_key
            for bag in others.values()
            for name in (bag.get("squad"), bag.get("above"))
            if name
        )
        return {"Conflict"} if held or counted else set()
    found: set[str] = set()
    here = {*others, row_key}
    for name in (after.get("squad"), after.get("above")):
        if name is not None and squad_row(name) not in here:
            found.add("ReferenceNotFound")
    for name in ("friend", "captain", "vice"):
        number = after.get(name)
        if number is not None and player_row(number) not in here:
            found.add("ReferenceNotFound")
    nicks = {bag.get("nick") for key, bag in players.items() if key != row_key}
    if after.get("nick") is not None and after["nick"] in nicks:
        found.add("UniqueViolation")
    return found
