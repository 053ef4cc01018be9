"""
Random programs of every verb on what is listed, counted, summed and embedded, by two clients of one table.

After each step everything derived is what the entities make it: by an oracle, and by an audit. What is rejected is
refused for a reason, and leaves all as it was.
"""

import json
from collections.abc import Coroutine
from typing import Any, cast

import hypothesis.strategies as st
from hypothesis.stateful import initialize, invariant, rule

from tableorm import Database, Entity, Key, PropertyBag, TableOrmError, Transaction, TransactionFailed
from tests.derived.index.oracle import Table, read_table
from tests.derived.index.test_verbs import DELETES, MERGES, OF_ANY_KEY, VERBS
from tests.derived.patterns.club import CLUB, Player, Squad, check, player_row, refusals, squad_row
from tests.derived.two_clients import ALLOWED, TwoClients
from tests.faults import Fate

CLIENTS = st.integers(0, 1)
SLOTS = st.integers(0, 5)
NUMBERS = st.integers(0, 11)
OTHERS = st.integers(0, 3)
"""Of players that are referred to: few, so that several refer to one."""
NAMES = st.sampled_from("abc")
verbs = cast("dict[str, Any]", VERBS)
PLAYERS = st.fixed_dictionaries(
    {},
    optional={
        "name": st.sampled_from(["Li", "Wu"]),
        "nick": st.sampled_from([None, "x", "y"]),
        "points": st.sampled_from([None, 0, 1, 7]),
        "squad": st.none() | NAMES,
        "active": st.booleans(),
        "friend": st.none() | OTHERS,
        "tags": st.lists(st.sampled_from(["a", "a_b", ""]), max_size=3),
    },
)
SQUADS = st.fixed_dictionaries(
    {},
    optional={
        "above": st.none() | NAMES,
        "captain": st.none() | OTHERS,
        "vice": st.none() | OTHERS,
        "note": st.sampled_from([None, "n"]),
    },
)
CHANGES = st.tuples(st.just(Player), NUMBERS, PLAYERS) | st.tuples(st.just(Squad), NAMES, SQUADS)
"""A model, what its key is made of, and some fields."""
FATES = st.lists(st.sampled_from([Fate.FINE, Fate.LOST_REPLY, Fate.LOST_REQUEST, Fate.BUSY]), max_size=3)

in_any_way = rule(client=CLIENTS, change=CHANGES, how=st.sampled_from(["verb", "transaction", "bulk"]))

Change = tuple[type[Player] | type[Squad], Any, dict[str, Any]]


def made(change: Change) -> Any:
    model, key, values = change
    return Player(id=key, **values) if model is Player else Squad(name=key, **values)


def key_of(change: Change) -> Key[Any]:
    model, key, _ = change
    return Player.key(club=CLUB, id=key) if model is Player else Squad.key(club=CLUB, name=key)


def row_of(change: Change) -> str:
    model, key, _ = change
    return player_row(key) if model is Player else squad_row(key)


def set_all(one: Entity, values: dict[str, Any]) -> None:
    for name, value in values.items():
        setattr(one, name, value)


def holds(bag: PropertyBag, values: dict[str, Any]) -> bool:
    """Whether a row has these values."""
    return {name: json.loads(bag["tags"]) if name == "tags" else bag.get(name) for name in values} == values


class Clubs(TwoClients):
    @initialize(people=st.sets(NUMBERS))
    def start(self, people: set[int]) -> None:
        self.connect(Player)
        self.held: list[Any] = [
            Player(id=1),
            Player(id=2),
            Player(id=1),
            Squad(name="a"),
            Squad(name="b"),
            Player(id=3),
        ]
        for name in "ab":
            self.run(self.clients[0].insert(Squad(name=name)))
        for number in sorted(people):
            self.run(self.clients[0].insert(Player(id=number, tags=["a", "a_b"][: number % 3])))

    def table(self) -> Table:
        found: Table = self.run(read_table(self.clients[0], "Club"))
        return found

    # What must succeed, or be rejected for a reason

    @in_any_way
    def insert(self, client: int, change: Change, how: str) -> None:
        table, row_key = self.table(), row_of(change)
        wanted = refusals(table, row_key, change[2])
        if (CLUB, row_key) in table:
            wanted.add("EntityExists")
        self.outcome(self._write(self.clients[client], "insert", change, how), wanted, change)

    @rule(client=CLIENTS, change=CHANGES, how=st.sampled_from(["verb", "transaction"]))
    def modify(self, client: int, change: Change, how: str) -> None:
        table, row_key = self.table(), row_of(change)
        bag = table.get((CLUB, row_key))
        wanted = {"EntityNotFound"} if bag is None else refusals(table, row_key, {**bag, **change[2]})
        self.outcome(self._write(self.clients[client], "modify", change, how), wanted, change)

    @in_any_way
    def upsert(self, client: int, change: Change, how: str) -> None:
        wanted = refusals(self.table(), row_of(change), change[2])
        self.outcome(self._write(self.clients[client], "upsert", change, how), wanted, change)

    @in_any_way
    def delete(self, client: int, change: Change, how: str) -> None:
        table, row_key = self.table(), row_of(change)
        wanted = refusals(table, row_key, None) if (CLUB, row_key) in table else {"EntityNotFound"}
        self.outcome(self._write(self.clients[client], "delete", change, how), wanted, change)

    @rule(client=CLIENTS, change=CHANGES, number=NUMBERS, name=NAMES, how=st.sampled_from(["verb", "transaction"]))
    def move(self, client: int, change: Change, number: int, name: str, how: str) -> None:
        """Another key, with whatever else is changed."""
        model, _, values = change
        to: Change = (model, number if model is Player else name, {})
        table, row_key, new_key = self.table(), row_of(change), row_of(to)
        bag = table.get((CLUB, row_key))
        if bag is None or row_key == new_key:
            return
        left = {key: each for key, each in table.items() if key != (CLUB, row_key)}
        wanted = refusals(table, row_key, None) | refusals(left, new_key, {**bag, **values})
        if (CLUB, new_key) in table:
            wanted.add("EntityExists")
        if "ReferenceNotFound" in wanted:
            wanted.add("Conflict")  # it may refer to what it leaves, which then cannot go
        self.outcome(self._move(self.clients[client], change, to[1], how), wanted, (model, to[1], values))

    async def _move(self, db: Database, change: Change, to: Any, how: str) -> None:
        fields = {"id" if change[0] is Player else "name": to}
        one = await db.get(key_of(change))
        set_all(one, change[2])
        if how == "transaction":
            async with db.transaction() as tx:
                tx.move(one, **fields)
        else:
            await db.move(one, **fields)
        assert one == await db.get(one.key)

    @rule(client=CLIENTS, change=CHANGES)
    def delete_and_insert(self, client: int, change: Change) -> None:
        """What was deleted can be inserted again as it is in the hands of the program."""
        table, row_key = self.table(), row_of(change)
        bag = table.get((CLUB, row_key))
        if bag is None or refusals(table, row_key, None):
            return
        left = {key: each for key, each in table.items() if key != (CLUB, row_key)}
        self.outcome(self._again(self.clients[client], key_of(change)), refusals(left, row_key, bag), (*change[:2], {}))

    async def _again(self, db: Database, key: Key[Any]) -> None:
        one = await db.get(key)
        await db.delete(one)
        await db.insert(one)
        assert one == await db.get(key)

    async def _write(self, db: Database, verb: str, change: Change, how: str) -> None:
        key, new = key_of(change), made(change)

        def changed(one: Entity) -> None:
            set_all(one, change[2])

        if how == "bulk":
            async with db.bulk(errors="report") as bulk:
                if verb == "delete":
                    await bulk.delete(key, if_match="*")
                elif verb == "insert":
                    await bulk.insert(new)
                else:
                    await bulk.upsert(new, mode="replace")
            for failure in bulk.report.failed:
                raise failure.error
        elif how == "transaction":
            async with db.transaction() as tx:
                if verb == "delete":
                    tx.delete(key, if_match="*")
                elif verb == "insert":
                    tx.insert(new)
                elif verb == "modify":
                    await tx.modify(key, changed)
                else:
                    tx.upsert(new, mode="replace")
        elif verb == "modify":
            await db.modify(key, changed)
        elif verb == "delete":
            await db.delete(key, if_match="*")
        else:
            await (db.insert(new) if verb == "insert" else db.upsert(new, mode="replace"))

    def outcome(self, call: Coroutine[Any, Any, None], wanted: set[str], change: Change) -> None:
        """It raises one of these errors, if there are any, and then nothing has changed."""
        before = self.table()
        error: BaseException | None = None
        try:
            self.run(call)
        except TransactionFailed as failed:
            error = failed.__cause__
        except TableOrmError as failed:
            error = failed
        after = self.table()
        if error is not None:
            names = {each.__name__ for each in type(error).__mro__}
            assert names & wanted, (error, wanted)
            assert stable(after) == stable(before)
            return
        assert not wanted, wanted
        bag = after.get((CLUB, row_of(change)))
        assert bag is None or holds(bag, change[2])

    # What is done with entities that were read long ago

    @rule(slot=SLOTS, change=CHANGES)
    def make(self, slot: int, change: Change) -> None:
        self.held[slot] = made(change)

    @rule(slot=SLOTS, client=CLIENTS, how=st.sampled_from(["key", "index", "element", "part"]))
    def read(self, slot: int, client: int, how: str) -> None:
        one = self.run(self._read(self.clients[client], self.held[slot].key, how))
        self.held[slot] = one or self.held[slot]

    async def _read(self, db: Database, key: Key[Any], how: str) -> Entity | None:
        if how == "element" and key.model is Player:
            tagged = db.select(Player.by_tag).where(Player.club == CLUB, Player.id == int(key.row_key[-2:]))
            return await tagged.first()
        if how != "part":
            one = await db.get_or_none(key)
            nick = one.nick if how == "index" and isinstance(one, Player) else None
            return one if nick is None else await db.get(Player.by_nick, club=CLUB, nick=nick)
        if key.model is Player:
            query = db.select(Player).where(Player.club == CLUB, Player.id == int(key.row_key[-2:]))
            return await query.only(Player.nick, Player.squad).one_or_none()
        squads = db.select(Squad).where(Squad.club == CLUB, Squad.name == key.row_key[-1])
        return await squads.only(Squad.captain).one_or_none()

    @rule(slot=SLOTS, client=CLIENTS, change=CHANGES, verb=st.sampled_from(OF_ANY_KEY), fates=FATES)
    def write(self, slot: int, client: int, change: Change, verb: str, fates: list[Fate]) -> None:
        one, values = self.held[slot], change[2] if isinstance(self.held[slot], change[0]) else {}
        self.networks[client].plan(*fates)
        done = self.attempt(verbs[verb](self.clients[client], one, values))
        sent = bool(self.networks[client].sent)
        self.networks[client].plan()
        if not done:
            return
        stored = self.run(self.clients[client].get_or_none(one.key))
        # What changes nothing writes nothing, and need not find the row.
        assert (stored is None) == (verb in DELETES) or not sent
        if stored is not None and sent and not (verb in MERGES and None in values.values()):
            assert {name: getattr(stored, name) for name in values} == values

    @rule(
        client=CLIENTS,
        steps=st.lists(st.tuples(st.sampled_from(["insert", "upsert", "modify", "delete"]), CHANGES), max_size=4),
        fates=FATES,
    )
    def together(self, client: int, steps: list[tuple[str, Change]], fates: list[Fate]) -> None:
        """Several changes in one transaction, each of another entity."""
        steps = list({row_of(change): (verb, change) for verb, change in steps}.values())
        self.networks[client].plan(*fates)
        done = self.attempt(self._together(self.clients[client], steps))
        self.networks[client].plan()
        if done:
            table = self.table()
            for verb, change in steps:
                bag = table.get((CLUB, row_of(change)))
                assert (bag is None) == (verb == "delete")
                assert bag is None or holds(bag, change[2])

    async def _together(self, db: Database, steps: list[tuple[str, Change]]) -> None:
        async with db.transaction() as tx:
            for verb, change in steps:
                await self._add(tx, verb, change)

    async def _add(self, tx: Transaction, verb: str, change: Change) -> None:
        key = key_of(change)
        match verb:
            case "insert":
                tx.insert(made(change))
            case "upsert":
                tx.upsert(made(change), mode="replace")
            case "modify":
                await tx.modify(key, lambda one: set_all(one, change[2]))
            case _:
                tx.delete(await tx.get(key))

    @rule(client=CLIENTS, steps=st.lists(st.tuples(st.booleans(), CHANGES), max_size=9), fates=FATES)
    def many(self, client: int, steps: list[tuple[bool, Change]], fates: list[Fate]) -> None:
        """Several changes in a bulk."""
        self.networks[client].plan(*fates)
        self.attempt(self._many(self.clients[client], steps))
        self.networks[client].plan()

    async def _many(self, db: Database, steps: list[tuple[bool, Change]]) -> None:
        async with db.bulk(errors="report") as bulk:
            for kept, change in steps:
                if kept:
                    await bulk.upsert(made(change))
                else:
                    await bulk.delete(key_of(change), if_match="*")
        for failure in bulk.report.failed:
            assert isinstance(failure.error, ALLOWED), failure.error

    @invariant()
    def everything_is_right(self) -> None:
        if not hasattr(self, "runner"):
            return
        wrong = check(self.table())
        assert not wrong, wrong
        report = self.run(self.clients[0].audit(Player, Squad, parallel=1))
        assert [str(finding) for finding in report.findings] == []
        assert not report.undecided


def stable(table: Table) -> dict[tuple[str, str], dict[str, Any]]:
    """The rows but those of lists, which may have been divided before something is rejected."""
    return {key: {**bag.row} for key, bag in table.items() if "~" not in key[1]}


TestClubs = Clubs.TestCase
