"""
What `explain_write` says of a model that takes over the entities of an older one, in each phase of the re-key.
"""

from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tableorm import Database, Entity, Index, Mapped, MovedFrom, NotSupported, connect, field
from tableorm.connection.connection import connection_of
from tableorm.connection.requests import row_path
from tableorm.rekey.phases import RekeyPhase
from tableorm.stores import RowAddress, StoreRequest, Verb
from tableorm.testing import MemoryStore
from tests.faults import FaultyStore
from tests.rekeys import move, set_phase


class Ticket(Entity, abstract=True):
    day: Mapped[str]
    id: Mapped[int]
    text: Mapped[str] = field(default="")


class Fare(Ticket, table="ExplainedFares", tracked=True, partition_key="{day}", row_key="fare_{id}"): ...


class NewFare(
    Ticket,
    table="ExplainedNewFares",
    tracked=True,
    partition_key="{id}",
    row_key="day_{day}",
    moved_from=MovedFrom(Fare),
): ...


class Pass(Ticket, table="ExplainedPasses", partition_key="{day}", row_key="pass_{id}"):
    by_text = Index(row_key="text_{text}_{id}")


class NewPass(
    Ticket, table="ExplainedNewPasses", partition_key="{id}", row_key="day_{day}", moved_from=MovedFrom(Pass)
):
    by_text = Index(row_key="newtext_{text}_{day}")


class Recorder(FaultyStore):
    """A store that notes which rows are read, and which rows or transactions are written."""

    def __init__(self) -> None:
        super().__init__(MemoryStore())
        self.noted: list[str] = []

    async def send(self, request: StoreRequest) -> Any:
        table, operations = request.table, request.operations
        if request.method == "get":
            self.noted.append(f"GET /{row_path(RowAddress(table, *request.arguments[:2]))}")
        elif operations:
            first = operations[0]
            path = table if first.verb is Verb.INSERT else row_path(RowAddress.of_row(table, first.row))
            self.noted.append("write /$batch" if len(operations) > 1 else f"write /{path}")
        return await super().send(request)


@pytest.fixture
def store() -> Recorder:
    return Recorder()


@pytest.fixture
async def db(store: Recorder) -> AsyncIterator[Database]:
    async with connect("local::memory:") as db:
        connection_of(db).wrap_store(lambda _: store)
        await db.create_tables(Fare, NewFare, Pass, NewPass)
        yield db


def explained(db: Database, verb: Any, target: Any, **arguments: Any) -> list[str]:
    """Return what is explained as `Recorder` notes it."""
    found = db.explain_write(verb, target, **arguments)
    writes = [f"write {each.path}" for each in found.steps if each.method != "GET"]
    # What is known only after a read is explained without the entries of the index, which are in its transaction.
    batched = found.transaction and (len(writes) > 1 or "Passes" in writes[0])
    beside = [*found.before, *found.after]
    return [
        *(f"{'GET' if each.method == 'GET' else 'write'} {each.path}" for each in beside),
        *(f"GET {each.path}" for each in found.steps if each.method == "GET"),
        *(["write /$batch"] if batched else writes),
    ]


@pytest.mark.parametrize("models", [(Fare, NewFare), (Pass, NewPass)])
@pytest.mark.parametrize(
    ("phase", "where"),
    [
        *(
            (phase, where)
            for phase in (RekeyPhase.EXPAND, RekeyPhase.MOVE, RekeyPhase.BACK)
            for where in ("older", "moved", "newer")
        ),
        (RekeyPhase.SEALED, "moved"),
        (RekeyPhase.SEALED, "newer"),
    ],
)
@pytest.mark.parametrize("verb", ["save", "delete"])
async def test_what_is_sent_for_an_entity(
    db: Database, store: Recorder, models: tuple[Any, Any], phase: RekeyPhase, where: str, verb: str
) -> None:
    """What is explained is sent, wherever the entity was read: at its older key, or at its newer one."""
    old, new = models
    set_phase(db, new, RekeyPhase.MOVE)
    await db.insert(new(day="mon", id=1, text="t") if where == "newer" else old(day="mon", id=1, text="t"))
    if where == "moved":
        await move(db, new)
    set_phase(db, new, phase)
    entity = await db.get(new, day="mon", id=1)
    entity.text = "x"
    expected = explained(db, verb, entity)
    store.noted.clear()

    await getattr(db, verb)(entity)

    assert Counter(store.noted) == Counter(expected)


@pytest.mark.parametrize("models", [(Fare, NewFare), (Pass, NewPass)])
@pytest.mark.parametrize("phase", [None, RekeyPhase.EXPAND, RekeyPhase.MOVE, RekeyPhase.BACK, RekeyPhase.SEALED])
async def test_what_is_sent_for_an_insert(
    db: Database, store: Recorder, models: tuple[Any, Any], phase: RekeyPhase | None
) -> None:
    """An insert goes to the older key, or takes that first; until the store was asked, it is as in *expand*."""
    _, new = models
    if phase is not None:
        set_phase(db, new, phase)
    entity = new(day="mon", id=1, text="x")
    expected = explained(db, "insert", entity)
    set_phase(db, new, phase or RekeyPhase.EXPAND)
    store.noted.clear()

    await db.insert(entity)

    assert Counter(store.noted) == Counter(expected)


@pytest.mark.parametrize("phase", [RekeyPhase.EXPAND, RekeyPhase.BACK])
async def test_what_is_refused_is_not_explained(db: Database, phase: RekeyPhase) -> None:
    """A write that looks at nothing is rejected in these phases, and so is its explanation."""
    set_phase(db, NewFare, phase)
    with pytest.raises(
        NotSupported, match=f"is in phase '{phase.value}', in which entities are written at their older"
    ):
        db.explain_write("upsert", NewFare(day="mon", id=1))


PLACES = {
    "/ExplainedFares(PartitionKey='mon',RowKey='fare_1')": "older",
    "/ExplainedNewFares(PartitionKey='1',RowKey='day_mon')": "newer",
    "/ExplainedNewFares": "newers",
}


MOVED = (
    "GET newer, GET older, POST newers, PUT older as read, GET newer, GET older, PUT newer as read, "
    "GET older, PUT older as read"
)


@pytest.mark.parametrize(
    ("phase", "where", "expected"),
    [
        (RekeyPhase.MOVE, "older", f"{MOVED}, GET newer, PUT newer as read"),
        (RekeyPhase.MOVE, "moved", "GET older, PUT older as read, PUT newer its ETag"),
        (RekeyPhase.BACK, "newer", "GET newer, PATCH newer its ETag"),
    ],
)
async def test_each_request_that_is_explained(db: Database, phase: RekeyPhase, where: str, expected: str) -> None:
    """With its method, and the ETag under which it writes."""
    set_phase(db, NewFare, RekeyPhase.MOVE)
    await db.insert((NewFare if where == "newer" else Fare)(day="mon", id=1))
    if where == "moved":
        await move(db, NewFare)
    set_phase(db, NewFare, phase)
    fare = await db.get(NewFare, day="mon", id=1)
    fare.text = "x"
    found = db.explain_write("save", fare)

    etags = {fare.etag: " its ETag", "the ETag that was read": " as read", None: ""}
    steps = (*found.before, *found.steps, *found.after)
    assert ", ".join(f"{each.method} {PLACES[each.path]}{etags[each.if_match]}" for each in steps) == expected
