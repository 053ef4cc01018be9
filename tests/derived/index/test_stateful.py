"""
Two clients, and random programs of every verb on entities that were read in every way, some of them long ago.

After each step the copies are what the primaries say, and a write that succeeded is stored as it was given.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any

import hypothesis.strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tableorm import (
    Conflict,
    Database,
    EncodeError,
    EntityNotFound,
    NotLoaded,
    NotRead,
    NotSupported,
    OutcomeUnknown,
    TransactionFailed,
)
from tableorm.testing import MemoryStore
from tests.derived.index.oracle import audit, read_table
from tests.derived.index.staff import KINDS, Employee, EmployeeV1
from tests.derived.index.test_verbs import DELETES, MERGES, VERBS
from tests.faults import QUICK, Fate, FaultyBackend, FaultyStore

_ALLOWED = (Conflict, EntityNotFound, NotLoaded, NotRead, EncodeError, NotSupported, OutcomeUnknown)
"""What a program may be told that works with what it has read long ago."""

SLOTS = st.integers(0, 3)
CLIENTS = st.integers(0, 1)
IDS = st.integers(1, 3)
READ = st.sampled_from(["key", "by_email", "by_name", "by_age", "some", "some_by_email"])
OF_ANY_KEY = [verb for verb in VERBS if verb not in ("query_delete", "index_query_delete")]
SAVES = ("save", "tx_save", "bulk_save")
VALUES = st.fixed_dictionaries(
    {},
    optional={
        "email": st.sampled_from([None, "a@x", "b@x", "c@x"]),
        "last_name": st.sampled_from(["Li", "Zed"]),
        "age": st.integers(30, 31),
        "note": st.sampled_from([None, "n"]),
        "active": st.booleans(),
    },
)


class TwoClients(RuleBasedStateMachine):
    @initialize()
    def start(self) -> None:
        self.runner = asyncio.Runner()
        self.networks = [FaultyStore(MemoryStore())]
        self.networks.append(FaultyStore(self.networks[0].store))
        self.clients: list[Database] = []
        for network in self.networks:
            backend = FaultyBackend()
            backend.tables = network
            self.clients.append(Database(backend, retry=QUICK))
            self.run(self.clients[-1].open())
        self.run(self.clients[0].create_tables(Employee))
        self.held = [Employee(department="Sales", id=number) for number in (1, 2, 3, 1)]

    def teardown(self) -> None:
        if hasattr(self, "runner"):
            for db in self.clients:
                self.run(db.close())
            self.runner.close()

    def run(self, call: Coroutine[Any, Any, Any]) -> Any:
        return self.runner.run(call)

    @rule(slot=SLOTS, number=IDS, values=VALUES)
    def make(self, slot: int, number: int, values: dict[str, Any]) -> None:
        self.held[slot] = Employee(department="Sales", id=number, **values)

    @rule(number=IDS, values=VALUES)
    def make_old(self, number: int, values: dict[str, Any]) -> None:
        """A program of the version before writes."""
        values = {"years" if name == "age" else name: value for name, value in values.items()}
        old = EmployeeV1(department="Sales", id=number, **values)
        self.attempt(self.clients[0].upsert(old, mode="replace"))

    @rule(slot=SLOTS, client=CLIENTS, how=READ)
    def read(self, slot: int, client: int, how: str) -> None:
        one = self.run(self._read(self.clients[client], self.held[slot], how))
        if one is not None:
            self.held[slot] = one

    async def _read(self, db: Database, like: Employee, how: str) -> Employee | None:
        number = like.id
        one = await db.get_or_none(Employee, department="Sales", id=number)
        if one is None or how == "key":
            return one
        query = db.select(Employee).where(Employee.department == "Sales", Employee.id == number)
        if how == "some":
            return await query.only(Employee.email, Employee.active).one_or_none()
        by_mail = db.select(Employee.by_email).where(
            Employee.department == "Sales", Employee.email == (one.email or "")
        )
        found: Employee | None
        match how:
            case "by_name":
                found = await db.get(Employee.by_name, department="Sales", last_name=one.last_name, id=number)
            case "by_age" if one.active:
                found = await db.get(Employee.by_age, department="Sales", age=one.age, id=number)
            case "by_email" if one.email is not None:
                found = await db.get(Employee.by_email, department="Sales", email=one.email)
            case "some_by_email" if one.email is not None:
                found = await by_mail.only(Employee.age).one()
            case _:
                return one
        loaded = found.__dict__
        assert {name: loaded[name] for name in Employee.__schema__.fields if name in loaded} == {
            name: getattr(one, name) for name in Employee.__schema__.fields if name in loaded
        }
        return found

    @rule(slot=SLOTS, client=CLIENTS)
    def insert(self, slot: int, client: int) -> None:
        self.attempt(self.clients[client].insert(self.held[slot]))

    @rule(
        slot=SLOTS,
        client=CLIENTS,
        verb=st.sampled_from(OF_ANY_KEY),
        values=VALUES,
        fates=st.lists(st.sampled_from([Fate.FINE, Fate.LOST_REPLY, Fate.LOST_REQUEST, Fate.BUSY]), max_size=2),
    )
    def write(self, slot: int, client: int, verb: str, values: dict[str, Any], fates: list[Fate]) -> None:
        one, values = self.held[slot], {} if verb in DELETES else values  # an entity that is gone takes none
        # A save of what is so already, as far as it knows, writes nothing, whatever others have made of it.
        idle = verb in SAVES and all(one.__dict__.get(name) == value for name, value in values.items())
        self.networks[client].plan(*fates)
        done = self.attempt(VERBS[verb](self.clients[client], one, values))
        sent = bool(self.networks[client].sent)
        self.networks[client].plan()
        if not done:
            return
        stored = self.run(self.clients[client].get_or_none(Employee, department="Sales", id=one.id))
        # What changes nothing writes nothing, and need not find the row.
        assert (stored is None) == (verb in DELETES) or not sent
        if stored is not None and not idle:
            skip = MERGES if None in values.values() else ()
            assert verb in skip or {name: getattr(stored, name) for name in values} == values

    @rule(first=SLOTS, second=SLOTS, client=CLIENTS)
    def swap(self, first: int, second: int, client: int) -> None:
        self.attempt(self._swap(self.clients[client], self.held[first], self.held[second]))

    async def _swap(self, db: Database, one: Employee, two: Employee) -> None:
        async with db.transaction() as tx:
            mine, yours = await tx.get(one.key), await tx.get(two.key)
            if one.id != two.id:
                mine.email, yours.email = yours.email, mine.email
                tx.save(mine)
                tx.save(yours)

    def attempt(self, call: Any) -> bool:
        """Whether it succeeded; what the program may be told is no fault."""

        async def wait() -> bool:
            try:
                await call
            except TransactionFailed as error:
                if not isinstance(error.__cause__, _ALLOWED):
                    raise
                return False
            except _ALLOWED:
                return False
            return True

        return self.runner.run(wait())

    @invariant()
    def copies_are_right(self) -> None:
        if hasattr(self, "runner"):
            wrong = audit(self.run(read_table(self.clients[0], "Staff")), KINDS)
            assert not wrong, wrong


TestTwoClients = TwoClients.TestCase
