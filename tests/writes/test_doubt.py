"""
What proves that a write was applied, or never will be, when others write the same rows and requests arrive late.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from typing import cast

import pytest

from tableorm import (
    Database,
    LimitExceeded,
    OutcomeUnknown,
    PreconditionFailed,
    PropertyBag,
    Transaction,
    TransactionFailed,
)
from tableorm.protocol.codes import Code, Fault
from tableorm.stores import Operation, Row
from tableorm.testing import MemoryStore
from tests.faults import QUICK, Fate, FaultyBackend, FaultyStore
from tests.writes.lossy import KEY, KNOWN, Known, Plain, add, db, other

PLAIN = Plain.key(id="a")


__all__ = ["db", "other"]


class Network(FaultyStore):
    """
    Can also refuse a request, and fail a read.

    Attributes:
        refuses: What becomes of the second request that is sent, before it arrives.
        reading: Called before each read.
    """

    refuses: Fault | None = None
    reading: Callable[[], Awaitable[None]] | None = None

    async def _meet(
        self, fate: Fate, table: str, operations: tuple[Operation, ...], *, transaction: bool
    ) -> list[str | None]:
        if self.refuses is not None and len(self.sent) == 2:
            raise self.refuses
        return await super()._meet(fate, table, operations, transaction=transaction)

    async def get(self, table: str, partition_key: str, row_key: str, select: tuple[str, ...] | None = None) -> Row:
        if self.reading is not None:
            await self.reading()
        return await super().get(table, partition_key, row_key, select)


@pytest.fixture
def network() -> Network:
    return Network(MemoryStore())


@pytest.mark.parametrize("verb", ["merge", "replace"])
@pytest.mark.parametrize("kind", ["entity", "bag"])
async def test_an_etag_from_elsewhere_hides_nobody(
    db: Database, network: Network, other: Database, verb: str, kind: str
) -> None:
    """
    Who writes under an ETag that he was given, with what he read before, does not carry on the tail that he read: the
    token of a writer in doubt would be missing, and the one from before be there. The replace of an entity reads the
    row first, for what it does not know, and carries on what it finds there: then the writer in doubt is told.
    """
    await other.insert(Known(count=4))
    stale: Known | PropertyBag = await other.get(KEY) if kind == "entity" else await other.get(KNOWN)

    async def foreign() -> None:
        etag = (await other.get(KEY)).etag
        await (other.merge(stale, if_match=etag) if verb == "merge" else other.replace(stale, if_match=etag))

    network.plan(Fate.LOST_REPLY)
    network.meanwhile = foreign
    reads = (kind, verb) == ("entity", "replace")
    with nullcontext() if reads else pytest.raises(OutcomeUnknown):
        await db.modify(KEY, add)

    assert (await other.get(KEY)).count == 4
    assert len(cast(str, (await other.get(KNOWN))["_w"]).split(",")) == (3 if reads else 1)


async def test_changes_of_one_row_in_a_transaction_keep_its_tail(db: Database, network: Network) -> None:
    """Together they are one write, which carries on what was read."""
    known = Known()
    await db.insert(known)
    first = (await db.get(KNOWN))["_w"]
    async with db.transaction() as tx:
        known.count = 1
        tx.save(known)
        known.owner = "x"
        tx.save(known)
        tx.replace(known)

    tail = cast(str, (await db.get(KNOWN))["_w"]).split(",")
    assert tail[1:] == [first]


@pytest.mark.parametrize("code", [Code.AUTHORIZATION_FAILURE, Code.INVALID_INPUT])
async def test_not_yet_is_not_never(db: Database, network: Network, other: Database, code: Code) -> None:
    """A repetition that is rejected for another reason than its condition leaves the first request under way."""
    await other.insert(Known(count=4))
    known = await db.get(KEY)
    known.count = 5
    network.plan(Fate.LATE)
    network.refuses = Fault(code, "Refused.")
    with pytest.raises(OutcomeUnknown) as caught:
        await db.save(known)
    assert cast(Known, caught.value.found).count == 4
    await network.deliver()

    assert (await other.get(KEY)).count == 5


async def test_a_transaction_whose_insert_lost_its_race_may_still_land(
    db: Database, network: Network, other: Database
) -> None:
    """The counter beside it has the ETag that was sent, so the late request is applied once the row is gone again."""
    await other.insert(Known(count=4))
    tries = 0

    async def count(tx: Transaction) -> None:
        nonlocal tries
        tries += 1
        await tx.modify(KEY, add)
        tx.insert(Plain(id="new"))

    network.plan(Fate.LATE)
    network.meanwhile = lambda: other.insert(Plain(id="new"))
    with pytest.raises(OutcomeUnknown, match=r"transaction of insert of Plain .*, modify of Known"):
        await db.run_transaction(count)
    await other.delete(Plain, id="new", if_match="*")
    await network.deliver()

    assert tries == 1 and (await other.get(KEY)).count == 5


async def test_one_row_that_moved_ends_the_doubt_about_all(db: Database, network: Network, other: Database) -> None:
    """It needs no tokens itself: nothing can land any more, and the row with tokens says that nothing has."""
    plain, known = Plain(), Known()
    await db.insert(plain)
    await db.insert(known)
    await other.modify(PLAIN, add)
    plain.count = known.count = 7
    network.plan(Fate.LOST_REQUEST)
    with pytest.raises(TransactionFailed) as caught:
        async with db.transaction() as tx:
            tx.save(known)
            tx.save(plain)

    assert isinstance(caught.value.__cause__, PreconditionFailed) and caught.value.index == 1
    assert (await other.get(KEY)).count == 0


async def test_rows_are_not_read_at_one_moment(db: Database, network: Network, other: Database) -> None:
    """Our late request arrives between the reads of two rows: that the second has moved says nothing of the first."""
    plain, known = Plain(), Known()
    await db.insert(plain)
    await db.insert(known)
    plain.count = known.count = 7
    network.plan(Fate.LATE)
    network.refuses = Fault(Code.INVALID_INPUT, "Refused.")
    reads = 0

    async def reading() -> None:
        nonlocal reads
        reads += 1
        if reads == 2:
            await network.deliver()

    network.reading = reading
    async with db.transaction() as tx:
        tx.save(known)
        tx.save(plain)

    assert (await other.get(KEY)).etag == known.etag
    assert (await other.get(PLAIN)).etag == plain.etag


async def consumed(other: Database, model: type[Plain] | type[Known]) -> None:
    """Others take the job, and change what came with it."""
    await other.delete(model, id="job", if_match="*")
    await other.modify(model, add, id="y")


@pytest.mark.parametrize("model", [Plain, Known])
async def test_an_insert_is_no_condition_for_the_writes_beside_it(
    db: Database, network: Network, other: Database, model: type[Plain] | type[Known]
) -> None:
    """
    It can succeed again, once its row is consumed, and would take the unconditional writes with it, over later ones.
    With tokens a row that is left proves that all was done; without, nothing is claimed and nothing is repeated.
    """
    network.plan(Fate.LOST_REPLY)
    network.meanwhile = lambda: consumed(other, model)

    async def act() -> None:
        async with db.transaction() as tx:
            tx.insert(model(id="job"))
            tx.upsert(model(id="y", count=98))

    if model is Known:
        await act()
    else:
        with pytest.raises(OutcomeUnknown):
            await act()

    assert len(network.sent) == 1
    assert (await other.get(model, id="y")).count == 99
    assert await other.get_or_none(model, id="job") is None


@pytest.mark.parametrize("way", ["transaction", "run_transaction"])
async def test_transactions_that_are_not_repeated(db: Database, network: Network, way: str) -> None:
    """With repeat=False a lost request is unknown at once; a lost reply is still proved by a token."""
    plain, known = Plain(), Known()
    await db.insert(plain)
    await db.insert(known)

    async def act(fate: Fate, model: type[Plain] | type[Known]) -> None:
        network.plan(fate)
        if way == "transaction":
            async with db.transaction(repeat=False) as tx:
                await tx.modify(model, add, id="a")
        else:
            await db.run_transaction(lambda tx: tx.modify(model, add, id="a"), repeat=False)

    await act(Fate.LOST_REPLY, Known)
    assert len(network.sent) == 1
    for fate, model in ((Fate.LOST_REQUEST, Known), (Fate.LOST_REQUEST, Plain), (Fate.LOST_REPLY, Plain)):
        with pytest.raises(OutcomeUnknown):
            await act(fate, model)
        assert len(network.sent) == 1
    await act(Fate.BUSY, Plain)

    assert (await db.get(KEY)).count == 1
    assert (await db.get(PLAIN)).count == 2


async def test_what_has_no_condition_is_judged_by_itself_in_bulk(db: Database, network: Network) -> None:
    """Of a chunk in doubt those are done whose rows are as they want them; a delete, and an insert, ask for more."""
    for name in ("gone", "old"):
        await db.insert(Plain(id=name))
    network.plan(Fate.LOST_REPLY)
    things = [Plain(id=name, count=5) for name in ("new", "old")]
    async with db.bulk(errors="report") as bulk:
        await bulk.insert(Plain(id="job"))
        await bulk.upsert(things[0])
        await bulk.delete(Plain.key(id="gone"), if_match="*")
        await bulk.upsert(things[1], mode="replace")

    assert [failure.operation for failure in bulk.report.failed] == ["insert", "delete"]
    assert {type(failure.error) for failure in bulk.report.failed} == {OutcomeUnknown}
    assert (bulk.report.written, len(network.sent)) == (2, 1)
    for thing in things:
        thing.count += 1
        await db.save(thing)


@pytest.mark.parametrize("way", ["alone", "transaction", "bulk"])
async def test_inserts_that_are_not_repeated(db: Database, network: Network, other: Database, way: str) -> None:
    """With repeat=False what somebody has consumed does not come back; otherwise it does."""

    async def act(*, repeat: bool) -> None:
        network.plan(Fate.LOST_REPLY)
        network.meanwhile = lambda: other.delete(Known, id="job", if_match="*")
        if way == "alone":
            await db.insert(Known(id="job"), repeat=repeat)
        elif way == "bulk":
            async with db.bulk(errors="report") as bulk:
                await bulk.insert(Known(id="job"), repeat=repeat)
            if bulk.report.failed:
                raise bulk.report.failed[0].error
        else:
            async with db.transaction() as tx:
                job = Known(id="job")
                tx.insert(job, repeat=repeat)
                job.count = 1
                tx.save(job)

    await act(repeat=True)
    assert await other.get_or_none(Known, id="job") is not None
    await other.delete(Known, id="job", if_match="*")
    with pytest.raises(OutcomeUnknown):
        await act(repeat=False)
    assert await other.get_or_none(Known, id="job") is None


async def test_a_transaction_in_doubt_names_its_operations(db: Database, network: Network) -> None:
    """The first few, and how many more there are."""
    network.plan(Fate.LOST_REPLY)
    with pytest.raises(OutcomeUnknown) as caught:
        async with db.transaction() as tx:
            for number in range(7):
                tx.insert(Plain(id=str(number)))

    message = str(caught.value)
    assert all(f"insert of Plain ('p', 'plain_{number}')" in message for number in range(5))
    assert "plain_5" not in message and ", and 2 more: a reply was lost" in message


async def test_a_forced_replace_in_doubt_is_finished(db: Database, network: Network, other: Database) -> None:
    """Of an entity that was not read: the row is read again, and what it has meanwhile is written over."""
    await other.insert(PropertyBag("Rows", "p", "plain_a", {"EntityType": "Plain", "foo": 1}))
    for fate in (Fate.LOST_REPLY, Fate.LOST_REQUEST):
        network.plan(fate)
        await db.replace(Plain(count=3), if_match="*")

    bag = await other.get(PropertyBag.key("Rows", "p", "plain_a"))
    assert (bag["count"], bag["foo"]) == (3, 1)

    async def delete() -> None:
        await other.delete(PLAIN, if_match="*")

    network.plan(Fate.LOST_REPLY)
    network.meanwhile = delete
    with pytest.raises(OutcomeUnknown, match=r"there is no such row"):
        await db.replace(Plain(count=4), if_match="*")


@pytest.mark.parametrize("reads", range(1, 5))
async def test_a_forced_replace_in_doubt_that_cannot_go_on(
    db: Database, network: Network, other: Database, reads: int
) -> None:
    """Whichever read fails behind the write that is in doubt, nobody says that it has not happened."""
    await other.insert(PropertyBag("Rows", "p", "plain_a", {"EntityType": "Plain", "foo": 1}))

    async def read() -> None:
        nonlocal reads
        reads -= 1
        if reads < 0:
            raise Fault(Code.SERVER_BUSY, "Asked for too much.", retry_after=0.0)

    network.reading = read
    network.plan(Fate.LATE, *[Fate.LOST_REQUEST] * 99)
    with pytest.raises(OutcomeUnknown):
        await db.replace(Plain(count=3), if_match="*")
    network.reading = None
    await network.deliver()

    assert (await other.get(PLAIN)).count == 3


async def test_a_read_that_fails_ends_the_others(db: Database, network: Network) -> None:
    """After the last look at the rows of a transaction nothing goes on behind the caller's back."""
    reading = 0

    async def read() -> None:
        nonlocal reading
        reading += 1
        if reading == 1:
            raise Fault(Code.AUTHORIZATION_FAILURE, "Refused.")
        await asyncio.Event().wait()

    network.reading = read
    network.plan(Fate.LOST_REPLY)
    tasks = asyncio.all_tasks()
    with pytest.raises(OutcomeUnknown, match="could not be read"):
        async with db.transaction() as tx:
            for number in range(50):
                tx.upsert(Plain(id=str(number)))

    assert asyncio.all_tasks() == tasks


async def test_a_transaction_is_measured_as_it_is_sent(db: Database, network: Network) -> None:
    """With the headers and the URL of each operation, which of a hundred are much."""
    network.plan()

    async def send(length: int) -> None:
        async with db.transaction() as tx:
            for number in range(100):
                text = "x" * (length // 2)
                tx.insert(PropertyBag("Rows", "p" * 100, f"{length}_{number:03}", {"u": text, "v": text}))

    with pytest.raises(TransactionFailed, match="with the headers") as caught:
        await send(41_700)
    assert isinstance(caught.value.__cause__, LimitExceeded) and not network.sent
    await send(40_000)

    assert len(network.sent) == 1


async def test_a_blind_write_that_always_loses_ends(db: Database, network: Network, other: Database) -> None:
    """An upsert whose repetitions meet another change each time is given up, and its outcome is unknown."""
    await other.insert(Plain(count=0))
    changes = 0

    async def change() -> None:
        nonlocal changes
        changes += 1
        assert changes < 30, "the upsert goes on for ever"
        await other.modify(PLAIN, add)

    class Busy(Network):
        async def _arrive(
            self, table: str, operations: tuple[Operation, ...], *, transaction: bool
        ) -> list[str | None]:
            await change()
            return await super()._arrive(table, operations, transaction=transaction)

    busy = Busy(network.store)
    backend = FaultyBackend()
    backend.tables = busy
    busy.plan(Fate.LOST_REQUEST)
    async with Database(backend, retry=QUICK) as losing:
        with pytest.raises(OutcomeUnknown):
            await losing.upsert(Plain(count=100))

    assert len(busy.sent) == QUICK.attempts and (await other.get(PLAIN)).count == changes
