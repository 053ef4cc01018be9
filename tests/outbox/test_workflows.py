"""
Workflows: when they run, what their steps are given, and what faults leave of them.
"""

import asyncio
import datetime as dt
from collections import Counter
from typing import Any, cast

import pytest

from tableorm import (
    AccessDenied,
    Damage,
    Database,
    Entity,
    Index,
    LimitExceeded,
    Mapped,
    ModelError,
    NotSupported,
    TransactionFailed,
    Workflow,
    field,
    workflow,
)
from tableorm.connection.connection import connection_of
from tableorm.outbox.bell import OUTBOX, outbox_queues
from tableorm.outbox.overview import Pending, find_pending, ring_again
from tableorm.outbox.worker import Outcome, Patience
from tableorm.stores import CLOCK
from tests.databases import database_fixture
from tests.outbox.network import drain
from tests.rows import merge_row

HOUR = dt.timedelta(hours=1)


class Order(Entity, table="FlowShop", partition_key="{customer}", row_key="order_{id:03d}"):
    customer: Mapped[str] = field(default="ann")
    id: Mapped[int] = field(default=7)
    state: Mapped[str] = field(default="new")


class Parcel(Entity, table="FlowShop", partition_key="{customer}", row_key="parcel_{token}"):
    customer: Mapped[str]
    token: Mapped[str]


class Gift(Entity, table="Gifts", partition_key="{customer}", row_key="gift_{id:03d}"):
    customer: Mapped[str]
    id: Mapped[int]
    city: Mapped[str] = field(default="Rome")

    by_city = Index(partition_key="city_{city}", row_key="in_{customer}_{id:03d}", consistency="eventual")


RUNS: list[tuple[str, Any]] = []


@workflow("ship", version=2)
class Ship(Workflow[Order]):
    async def pack(self, db: Database) -> dict[str, Any]:
        RUNS.append(("pack", self.arguments))
        await db.upsert(Parcel(customer=self.key.partition_key, token=self.token))
        return {**self.arguments, "parcel": self.token}

    async def send(self, db: Database) -> None:
        RUNS.append(("send", self.arguments))
        order = await db.get(self.key)
        if order.state != "sent":
            order.state = "sent"
            await db.save(order)


@workflow("wrap")
class Wrap(Workflow[Gift]):
    async def wrap(self, db: Database) -> None:
        RUNS.append(("wrap", (self.key.row_key, self.arguments)))


@workflow("fail")
class Fail(Workflow[Order]):
    async def work(self, db: Database) -> None:
        raise NotSupported("not on this machine")


@pytest.fixture(autouse=True)
def no_runs(quick_workers: None) -> None:
    RUNS.clear()


db = database_fixture(Order, Gift)


async def begin(db: Database, flow: type[Workflow[Order]], arguments: Any = None, order: Order | None = None) -> None:
    """Insert an order, and start a workflow about it."""
    order = order or Order()
    async with db.transaction() as tx:
        tx.insert(order)
        tx.start(flow, order, arguments)


async def pending(db: Database, table: str = "FlowShop") -> list[Pending]:
    return [each async for each in find_pending(connection_of(db), table)]


@pytest.mark.usefixtures("stopped_clock")
async def test_an_audit_finds_a_workflow_that_nobody_has_run(db: Database) -> None:
    """Also where nothing that is declared leaves decision rows. It cannot run it, and says so."""
    await begin(db, Ship, {})
    await outbox_queues(connection_of(db)).delete_queue(OUTBOX)
    assert (await db.audit(Order, repair=True)).clean
    CLOCK.advance(2 * HOUR)
    report = await db.audit(Order, repair=True)
    (finding,) = report.findings
    assert (finding.damage, report.clean) == (Damage.UNFINISHED, False)
    assert "leave it to a program that does" in str(finding.refused)
    assert finding.remedy.endswith("run a worker that knows what it names, or remove the cause, then audit again")

    for each in await pending(db):
        await ring_again(connection_of(db), each)
    await drain(db, Ship)
    assert [name for name, _ in RUNS] == ["pack", "send"]
    assert (await db.audit(Order, repair=True)).clean


async def test_a_workflow_runs_after_the_commit(db: Database) -> None:
    """Its steps run in order, with the arguments and what earlier steps returned; then nothing is left."""
    await begin(db, Ship, {"express": True})
    worker = await drain(db, Ship)

    (parcel,) = await db.select(Parcel).where(Parcel.customer == "ann").all()
    assert [("pack", {"express": True}), ("send", {"express": True, "parcel": parcel.token})] == RUNS
    assert (await db.get(Order, customer="ann", id=7)).state == "sent"
    assert await pending(db) == []
    assert worker.counts == {Outcome.DONE: 1}


async def test_a_workflow_without_a_commit(db: Database) -> None:
    """If the block fails, or the transaction is rejected, nothing runs."""
    await db.insert(Order())
    other = Order(customer="bob")
    with pytest.raises(TransactionFailed):
        await begin(db, Ship)
    with pytest.raises(RuntimeError):
        async with db.transaction() as tx:
            tx.insert(other)
            tx.start(Ship, other)
            raise RuntimeError
    worker = await drain(db, Ship)

    assert RUNS == [] and worker.counts == {}


async def test_several_workflows_and_an_index(db: Database) -> None:
    """They share one decision row with what a deferred declaration leaves to do; each has its own progress."""
    gifts = [Gift(customer="ann", id=number) for number in range(2)]
    async with db.transaction() as tx:
        for gift in gifts:
            tx.insert(gift)
            tx.start(Wrap, gift, gift.id)
        gifts[0].city = "Oslo"
        tx.save(gifts[0])
        tx.start(Wrap, gifts[0], "again")
    (left,) = await pending(db, "Gifts")
    await drain(db, Wrap, Gift)

    assert [work.kind for work in left.decision.works].count("workflow wrap:1") == 3
    assert sorted(RUNS, key=str) == [
        ("wrap", ("gift_000", "again")),
        ("wrap", ("gift_000", 0)),
        ("wrap", ("gift_001", 1)),
    ]
    assert len(await db.select(Gift.by_city).where(Gift.city == "Oslo").all()) == 1


async def test_unknown_workflows_are_left_to_others(db: Database) -> None:
    """A worker without the workflow, or with another version of it, leaves it to others."""

    @workflow("ship", version=3)
    class Newer(Workflow[Order]):
        async def pack(self, db: Database) -> None: ...

    await begin(db, Ship, {})
    worker = await drain(db, Newer, Order)

    assert worker.counts == {Outcome.LEFT: 1}
    assert len(await pending(db)) == 1


async def test_a_step_that_is_unknown(db: Database) -> None:
    """A workflow that has reached a step which the class does not have is left to others."""
    await begin(db, Ship, {})
    (left,) = await pending(db)
    row = {**left.decision.progress_row(), "Progress": '[{"work":0,"step":"weigh","arguments":1}]'}
    await merge_row(db, "FlowShop", row)
    worker = await drain(db, Ship)

    assert worker.counts == {Outcome.LEFT: 1} and RUNS == []


async def test_a_step_that_fails(db: Database) -> None:
    """After the last try the decision row says which step of which workflow failed; also if it raises NotSupported."""
    await begin(db, Fail)
    worker = await drain(db, Fail, tries=2)

    (left,) = await pending(db)
    assert left.decision.error == (
        "StepFailed: the step 'work' of the workflow 'fail', version 1, for Order ('ann', 'order_007') in table "
        "FlowShop: NotSupported: not on this machine"
    )
    assert worker.counts == {Outcome.FAILED: 1, Outcome.DROPPED: 1}


PAUSE_AFTER = Patience.pause_after


@workflow("patient", tries=3, first_pause=HOUR, longest_pause=1.5 * HOUR)
class Patient(Workflow[Order]):
    async def work(self, db: Database) -> None:
        RUNS.append(("work", None))
        raise ValueError("not yet")


@pytest.mark.usefixtures("stopped_clock")
async def test_tries_and_pauses_of_a_workflow(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its declaration says how often it is tried, and with which pauses, whatever the worker does with other work."""
    monkeypatch.setattr(Patience, "pause_after", PAUSE_AFTER)
    await begin(db, Patient)
    await begin(db, Fail, order=Order(id=8))
    counts = Counter[Outcome]()
    runs = list[int]()
    for wait in (0.0, 0.49, 0.51, 0.74, 0.76, 9.0):  # so many hours
        CLOCK.advance(wait * HOUR)
        async with db.worker(Patient, Fail, tries=1) as worker:
            while await outbox_queues(connection_of(db)).peek(OUTBOX):  # noqa: ASYNC110 - what a worker takes
                await asyncio.sleep(0)
        runs.append(len(RUNS))
        counts += worker.counts

    assert runs == [1, 1, 2, 2, 3, 3]
    assert counts == {Outcome.DROPPED: 2, Outcome.FAILED: 2}
    tries = {each.decision.works[0].kind: each.decision.tries for each in await pending(db)}
    assert tries == {"workflow patient:1": 3, "workflow fail:1": 1}


async def test_a_try_that_fails_is_a_line_of_the_log(db: Database, caplog: pytest.LogCaptureFixture) -> None:
    """The line says which try of how many it was, and what went wrong; its traceback is for those who look closely."""
    await begin(db, Fail)
    with caplog.at_level("DEBUG", "tableorm.worker"):
        await drain(db, Fail, tries=2)

    lines = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert [line.partition(", ")[2].partition(": ")[0] for line in lines] == ["try 1 of 2", "try 2 of 2"]
    assert all(line.endswith("NotSupported: not on this machine") and "\n" not in line for line in lines)
    details = [each for each in caplog.records if each.exc_text]
    assert [each.levelname for each in details] == ["DEBUG"] * 2
    assert "in work" in str(details[0].exc_text)


async def test_workflows_that_cannot_start(db: Database) -> None:
    """Entities that the transaction does not write, other models, and arguments that are not JSON are rejected."""
    order, other = Order(), Order(id=8)
    wrong: list[tuple[type[Exception], str, tuple[Any, ...]]] = [
        (NotSupported, "which this transaction does not write", (Ship, other)),
        (ModelError, "about Gift", (Wrap, order)),
        (ModelError, "not a value of JSON", (Ship, order, {"x": object()})),
        (ModelError, "is not a workflow", (Workflow, order)),
    ]
    for error, message, given in wrong:
        with pytest.raises(error, match=message):
            async with db.transaction() as tx:
                tx.insert(order)
                tx.start(*given)
    with pytest.raises(TransactionFailed, match=r"operation 1: .*bytes") as refused:
        async with db.transaction() as tx:
            tx.insert(other)
            tx.insert(order)
            tx.start(Ship, order, "x" * 40_000)
    assert (refused.value.index, type(refused.value.__cause__)) == (1, LimitExceeded)
    assert await db.select(Order).where(Order.customer == "ann").all() == []


def test_classes_that_are_no_workflows() -> None:
    """A workflow has a name, a version, a model, and asynchronous steps that take a database."""
    with pytest.raises(ModelError, match="a letter first"):
        workflow("1")
    with pytest.raises(ModelError, match="version=0"):
        workflow("x", version=0)
    for tries in (0, 1001, True):
        with pytest.raises(ModelError, match=f"tries={tries}.*give a whole number from 1 to 1000"):
            workflow("x", tries=tries)
    for pause in (HOUR / 10_000, 200 * HOUR, cast("Any", 60)):
        with pytest.raises(ModelError, match=r"workflow\('x', first_pause=.*give a timedelta from 0:00:01 to 7 days"):
            workflow("x", first_pause=pause)
    with pytest.raises(ModelError, match=r"longest_pause=.*give a timedelta from 1:00:00 to 7 days"):
        workflow("x", first_pause=HOUR, longest_pause=HOUR / 2)
    with pytest.raises(ModelError, match=r"derive Bare from Workflow\[Model\]"):

        @workflow("x")
        class Bare(Workflow):  # type: ignore[type-arg]  # pyright: ignore[reportMissingTypeArgument]
            async def work(self, db: Database) -> None: ...

    with pytest.raises(ModelError, match="has no step"):

        @workflow("x")
        class Empty(Workflow[Order]):
            async def _work(self, db: Database) -> None: ...

    with pytest.raises(ModelError, match=r"Plain\.work is rejected as a step.*async def work\(self, db\)"):

        @workflow("x")
        class Plain(Workflow[Order]):
            def work(self, db: Database) -> None: ...

    with pytest.raises(ModelError, match=r"More\.work is rejected as a step"):

        @workflow("x")
        class More(Workflow[Order]):
            async def work(self, db: Database, more: int) -> None: ...


async def test_a_worker_that_may_not_run_a_step(db: Database) -> None:
    """AccessDenied of a step is its failure, and does not leave the message to others."""

    @workflow("denied")
    class Denied(Workflow[Order]):
        async def work(self, db: Database) -> None:
            raise AccessDenied("no", None)

    await begin(db, Denied)
    worker = await drain(db, Denied, tries=1)

    assert worker.counts == {Outcome.DROPPED: 1}


async def test_what_a_workflow_costs(db: Database) -> None:
    """Beside the requests of its two steps it takes eight, with the commit."""
    await begin(db, Ship, {}, Order(id=6))  # makes the queue
    await drain(db, Ship)
    with db.observe() as seen:
        await begin(db, Ship, {})
        await drain(db, Ship)

    sent = [each.operation for each in seen.requests if each.table in ("FlowShop", OUTBOX)]
    decisions = [each for each in seen.requests if (each.row_key or "").startswith("~o_")]
    assert [each.operation for each in decisions] == ["get", "merge", "delete"]
    assert [each for each in sent if each.endswith("-message")] == ["put-message", "renew-message", "delete-message"]
    assert sent.count("transaction") == 1


async def test_a_workflow_of_a_scope(db: Database) -> None:
    """A scope starts workflows about its own entities; its workers are those of the whole database."""
    await begin(db.scope(Order, customer="ann"), Ship, {})
    worker = await drain(db, Ship)

    assert worker.counts == {Outcome.DONE: 1}
