"""
Two clients, a network that fails, and random programs of every verb, against an oracle that knows what really happened.

After each step the table is as the oracle says; who was told that a write succeeded, or that it failed, was told the
truth; and an entity that claims to have the row's ETag knows the row.
"""

from collections.abc import Callable, Coroutine
from typing import Any

import attrs
import hypothesis.strategies as st
from hypothesis.stateful import initialize, precondition, rule

from tableorm import (
    EncodeError,
    Entity,
    EntityExists,
    EntityNotFound,
    Mapped,
    NotRead,
    OutcomeUnknown,
    PreconditionFailed,
    TableOrmError,
    Transaction,
    TransactionFailed,
    field,
)
from tableorm.models.state import state_of
from tests.derived.two_clients import TwoClients
from tests.faults import Fate


class Row(Entity, abstract=True, table="Rows", partition_key="p"):
    id: Mapped[str]
    count: Mapped[int] = field(default=0)
    note: Mapped[str | None] = field(default=None)


class Plain(Row, row_key="plain_{id}"): ...


class Known(Row, row_key="known_{id}", write_token=True): ...


CONDITIONAL = ["save", "merge", "merge_count", "replace", "delete", "transaction", "modify", "modify_key", "run"]
BLIND = ["insert", "upsert_merge", "upsert_replace", "force_replace", "force_delete"]
LOST = (Fate.LOST_REQUEST, Fate.LOST_REPLY, Fate.LATE)
ARRIVE = (Fate.FINE, Fate.LOST_REPLY, Fate.TWICE)


@attrs.define
class Truth:
    """What a row really is; each write makes another version."""

    content: tuple[int, str | None] | None = None
    version: int = 0

    def write(self, content: tuple[int, str | None] | None) -> None:
        self.content, self.version = content, self.version + 1


@attrs.define
class Held:
    """An entity in a client's hands: the version whose ETag it has, and the values that it compares with."""

    entity: Any
    version: int | None = None
    known: dict[str, Any] = attrs.Factory(dict[str, Any])

    def changed(self) -> dict[str, Any]:
        now = {"count": self.entity.count, "note": self.entity.note}
        return {name: value for name, value in now.items() if value != self.known.get(name)}


class Verbs(TwoClients):
    @initialize(model=st.sampled_from([Plain, Known]))
    def start(self, model: type[Plain] | type[Known]) -> None:
        self.model = model
        self.connect(model)
        self.network, (self.db, self.other) = self.networks[0], self.clients
        self.truth = {key: Truth() for key in "ab"}
        self.held = [Held(model(id="a")), Held(model(id="a")), Held(model(id="b"))]
        self.run(self.other.insert(model(id="a", count=9, note="x")))
        self.truth["a"].write((9, "x"))
        for slot in range(3):
            self.load(slot)

    slots = st.integers(0, 2)

    @rule(slot=slots)
    def load(self, slot: int) -> None:
        key = self.held[slot].entity.id
        truth = self.truth[key]
        entity = self.run(self.db.get_or_none(self.model, id=key))
        assert (entity is None) == (truth.content is None)
        if truth.content is not None:
            assert (entity.count, entity.note) == truth.content
            self.held[slot] = Held(entity, truth.version, {"count": entity.count, "note": entity.note})

    @rule(slot=slots, count=st.integers(0, 5))
    def make(self, slot: int, count: int) -> None:
        self.held[slot] = Held(self.model(id=self.held[slot].entity.id, count=count))

    @rule(slot=slots, count=st.integers(0, 5), note=st.sampled_from([None, "x", "y"]))
    def edit(self, slot: int, count: int, note: str | None) -> None:
        self.held[slot].entity.count, self.held[slot].entity.note = count, note

    @rule(slot=slots)
    def refresh(self, slot: int) -> None:
        held = self.held[slot]
        truth = self.truth[held.entity.id]
        if truth.content is None:
            assert isinstance(self.error_of(lambda: self.db.refresh(held.entity)), EntityNotFound)
            return
        self.run(self.db.refresh(held.entity))
        held.version, held.known = truth.version, {"count": truth.content[0], "note": truth.content[1]}
        assert (held.entity.count, held.entity.note) == truth.content

    @rule(
        slot=slots, verb=st.sampled_from(CONDITIONAL + BLIND), fate=st.sampled_from(list(Fate)), meanwhile=st.booleans()
    )
    def write(self, slot: int, verb: str, fate: Fate, meanwhile: bool) -> None:
        held = self.held[slot]
        truth = self.truth[held.entity.id]
        if verb in BLIND and fate in (Fate.LATE, Fate.TWICE):
            fate = Fate.LOST_REQUEST  # what is blind and late may undo what came later: stated, and tested elsewhere
        refused = self.refused(held, verb, truth)
        if refused is not None:
            assert isinstance(self.error_of(lambda: self.call(held, verb)), refused)
            return
        if verb in ("save", "transaction") and not held.changed():
            self.run(self.call(held, verb))
            return
        self.network.plan(fate)
        self.network.meanwhile = (lambda: self.interfere(truth, held.entity.id)) if meanwhile else None
        self.interfered = False
        # What the request does when it arrives, once; the interlude comes after the first attempt.
        before = attrs.evolve(truth)
        error = self.error_of(lambda: self.call(held, verb))
        after_ours = self.expected(held, verb, before)
        arrived = fate in ARRIVE
        self.settle(held, verb, fate, truth, after_ours, arrived=arrived, error=error)
        self.check(held)

    def refused(self, held: Held, verb: str, truth: Truth) -> type[Exception] | None:
        """What is rejected before anything is sent."""
        removes = held.entity.note is None and held.known.get("note") is not None
        superseded = state_of(held.entity).superseded
        if verb in ("save", "merge", "merge_count", "replace", "delete", "transaction") and held.version is None:
            return PreconditionFailed if superseded else NotRead
        if verb == "modify" and held.version is None and not superseded:
            return NotRead
        if verb == "modify" and held.changed():
            return EncodeError  # whatever the row is: reading it would lose what was changed
        if verb in ("merge", "upsert_merge") and removes:
            return EncodeError
        if verb in ("modify", "modify_key", "run") and truth.content is None:
            return EntityNotFound
        return None

    def call(self, held: Held, verb: str) -> Coroutine[Any, Any, object]:
        db, entity = self.db, held.entity

        def one_more(row: Any) -> None:
            row.count += 1

        async def transaction() -> None:
            async with db.transaction() as tx:
                tx.save(entity)

        async def run(tx: Transaction) -> None:
            await tx.modify(self.model, one_more, id=entity.id)

        match verb:
            case "merge_count":
                return db.merge(entity, only=["count"])
            case "transaction":
                return transaction()
            case "modify":
                return db.modify(entity, one_more)
            case "modify_key":
                return db.modify(self.model, one_more, id=entity.id)
            case "run":
                return db.run_transaction(run)
            case "upsert_merge":
                return db.upsert(entity)
            case "upsert_replace":
                return db.upsert(entity, mode="replace")
            case "force_replace":
                return db.replace(entity, if_match="*")
            case "force_delete":
                return db.delete(entity.key, if_match="*")
            case _:
                method: Callable[[Any], Coroutine[Any, Any, object]] = getattr(db, verb)
                return method(entity)

    def error_of(self, call: Callable[[], Coroutine[Any, Any, object]]) -> BaseException | None:
        try:
            self.run(call())
        except TransactionFailed as error:
            return error.__cause__
        except (TableOrmError, ValueError) as error:
            return error
        return None

    async def interfere(self, truth: Truth, key: str) -> None:
        """The other client adds a hundred, if there is a row."""

        def hundred(row: Any) -> None:
            row.count += 100

        try:
            await self.other.modify(self.model, hundred, id=key)
        except EntityNotFound:
            return
        self.interfered = True

    def expected(self, held: Held, verb: str, truth: Truth) -> "tuple[int, str | None] | type[Exception] | None":
        """What a row in this state becomes if the request arrives, or why it is rejected then."""
        count, note = held.entity.count, held.entity.note
        content = truth.content
        stale = held.version != truth.version
        match verb:
            case "insert":
                return EntityExists if content is not None else (count, note)
            case "upsert_merge":
                return (count, note if note is not None or content is None else content[1])
            case "upsert_replace":
                return (count, note)
            case "modify" | "modify_key" | "run":
                assert content is not None
                return (content[0] + 1, content[1])
            case _:
                if content is None:
                    return EntityNotFound
        if verb.startswith("force"):
            return None if verb == "force_delete" else (count, note)
        if stale:
            return PreconditionFailed
        match verb:
            case "delete":
                return None
            case "merge" | "merge_count":
                return (count, note if note is not None and verb == "merge" else content[1])
            case "replace":
                return (count, note)
            case _:
                changed = held.changed()
                return (count if "count" in changed else content[0], note if "note" in changed else content[1])

    def settle(
        self,
        held: Held,
        verb: str,
        fate: Fate,
        truth: Truth,
        result: Any,
        *,
        arrived: bool,
        error: BaseException | None,
    ) -> None:
        """Bring the oracle to where the table must be, and compare what the caller was told."""
        known, reads = self.model is Known, verb in ("modify", "modify_key", "run")
        doubt = fate in LOST
        refused = isinstance(result, type)
        applied = False
        if arrived and not refused:
            truth.write(result)
            applied = True
        if self.interfered:
            assert truth.content is not None
            truth.write((truth.content[0] + 100, truth.content[1]))
        allowed: tuple[type[BaseException], ...] = ()
        if arrived and refused:
            allowed = (result,)
        elif arrived:
            if fate is Fate.LOST_REPLY and (not known or verb in ("delete", "force_delete")):
                if verb in ("upsert_merge", "upsert_replace", "force_replace"):
                    if self.interfered:  # not as wanted any more: the rest is done under the ETag that was read
                        rest: Any = self.expected(held, verb, truth)
                        truth.write(rest)
                else:
                    allowed = (OutcomeUnknown,)
        else:
            second: Any = self.expected(held, verb, truth)
            if reads and self.interfered and doubt and not known:
                allowed = (OutcomeUnknown,)
            elif isinstance(second, type):
                allowed = (second, OutcomeUnknown) if doubt else (second,)
            else:
                applied = True
                # What is blind and finds what it wanted writes nothing; a forced replace has read, and is not blind.
                blind = verb in BLIND and verb not in ("insert", "force_replace")
                if not (doubt and blind and second == truth.content):
                    truth.write(second)
        if allowed:
            assert isinstance(error, allowed), f"{verb} {fate}: {error!r} instead of {allowed}"
        else:
            assert error is None, f"{verb} {fate}: {error!r}"
            assert applied or reads
        if error is not None:
            return
        self.learn(held, verb, truth)

    def learn(self, held: Held, verb: str, truth: Truth) -> None:
        """What the entity knows after a success."""
        entity = held.entity
        if verb in ("modify_key", "run", "force_delete"):
            return
        if verb == "delete":
            held.version, held.known = None, {}
            return
        row = state_of(entity).row or {}
        held.known = {"count": int(row["count"]), "note": row.get("note")}
        # An ETag is one that the table has, or had: the write of another may have come after ours.
        held.version = None if entity.etag is None else self.version_of(entity, truth)

    def version_of(self, entity: Any, truth: Truth) -> int:
        stored = self.run(self.other.get_or_none(self.model, id=entity.id))
        return truth.version if stored is not None and stored.etag == entity.etag else -1

    def check_row(self, key: str) -> Any:
        """Return the row of a key, which has to have what the writes have told."""
        stored = self.run(self.other.get_or_none(self.model, id=key))
        assert (None if stored is None else (stored.count, stored.note)) == self.truth[key].content
        return stored

    def check(self, held: Held) -> None:
        truth = self.truth[held.entity.id]
        stored = self.check_row(held.entity.id)
        if stored is not None and held.entity.etag == stored.etag and held.version == truth.version:
            # Whoever has the ETag knows the row: what it compares with is what is there.
            for name in ("count", "note"):
                if held.known.get(name) is not None:
                    assert held.known[name] == getattr(stored, name)

    @rule(slot=slots, verb=st.sampled_from(CONDITIONAL), fate=st.sampled_from(list(Fate)), count=st.integers(0, 5))
    def change(self, slot: int, verb: str, fate: Fate, count: int) -> None:
        """The common case: read, change, write."""
        self.load(slot)
        if not verb.startswith("modify"):
            self.held[slot].entity.count = count
        self.write(slot, verb, fate, meanwhile=bool(count % 2))

    @precondition(lambda self: self.network.late)
    @rule()
    def deliver(self) -> None:
        self.run(self.network.deliver())
        for key in self.truth:
            self.check_row(key)


TestVerbs = Verbs.TestCase


def test_modify_of_a_superseded_entity_does_not_read_over_its_changes() -> None:
    """It is rejected before anything is read, also when the row is gone."""
    clients = Verbs()
    clients.start(Known)
    try:
        clients.edit(0, 3, "x")
        clients.write(0, "save", Fate.LOST_REPLY, meanwhile=True)
        clients.load(1)
        clients.write(1, "force_delete", Fate.FINE, meanwhile=False)
        clients.edit(0, 4, "y")
        clients.write(0, "save", Fate.FINE, meanwhile=False)
        clients.write(0, "modify", Fate.FINE, meanwhile=False)
        error = clients.error_of(lambda: clients.call(clients.held[0], "modify"))
    finally:
        clients.teardown()

    assert isinstance(error, EncodeError) and "refresh() it" in str(error)
