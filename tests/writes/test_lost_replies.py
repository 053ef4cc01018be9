"""
What a write may claim after its reply was lost: exactly once, or an error that is true.
"""

import asyncio
from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import Any, cast

import attrs
import pytest

from tableorm import (
    Conflict,
    Count,
    Database,
    Entity,
    EntityNotFound,
    Index,
    Mapped,
    OutcomeUnknown,
    PreconditionFailed,
    PropertyBag,
    RetryPolicy,
    Throttled,
    Unavailable,
    field,
)
from tableorm.connection.retry import RetryingStore
from tableorm.protocol.codes import Code, Fault
from tableorm.stores import Capabilities, Operation, RetryBudget, StoreLayer, StoreRequest, Verb, pause_after
from tableorm.testing import MemoryStore
from tests.faults import QUICK, Fate, FaultyBackend, FaultyStore
from tests.writes.lossy import KEY, Known, Plain, add, db, other
from tests.writes.verbs import write

PLAIN = Plain.key(id="a")

__all__ = ["db", "other"]


INSERTING = ("insert", "get_or_insert", "create")


async def act(db: Database, verb: str, row: Plain | Known) -> Plain | Known:
    """Write a row, and return the entity that knows it then."""
    if verb == "modify":
        return await db.modify(row.key, add)
    if verb == "create":
        return await db.modify(row.key, add, create=row)
    await write(db, verb, row)
    return row


async def tail(db: Database, row_key: str) -> list[str]:
    bag = await db.get(PropertyBag.key("Rows", "p", row_key))
    return cast(str, bag["_w"]).split(",")


async def test_write_tokens_are_kept_out_of_sight(db: Database) -> None:
    """The last three, newest first; not among the unknown properties; kept by replace; none on plain rows."""
    known, plain = Known(), Plain()
    await db.insert(known)
    await db.insert(plain)
    tails = [await tail(db, "known_a")]
    for count in range(1, 4):
        known.count = count
        await (db.save(known) if count % 2 else db.replace(known))
        tails.append(await tail(db, "known_a"))
    read = await db.get(KEY)

    assert [len(each) for each in tails] == [1, 2, 3, 3]
    assert all(one[:2] == two[1:3] for one, two in pairwise(tails))
    assert {len(token) for each in tails for token in each} == {12}
    assert dict(read.extra) == {} and read == known
    assert "_w" not in await db.get(PropertyBag.key("Rows", "p", "plain_a"))
    await db.upsert(Known(count=9))
    assert len(await tail(db, "known_a")) == 1


@pytest.mark.parametrize("fate", [Fate.LOST_REPLY, Fate.LOST_REQUEST, Fate.BUSY, Fate.LATE, Fate.TWICE])
@pytest.mark.parametrize(
    "verb",
    [*INSERTING, "save", "merge", "replace", "remove", "modify", "transaction", "guarded"],
)
async def test_a_row_with_tokens_is_written_exactly_once(
    db: Database, network: FaultyStore, other: Database, fate: Fate, verb: str
) -> None:
    """Whatever is lost, the caller is told the truth, and the entity has the ETag of what it wrote."""
    known: Plain | Known = Known(owner="x")
    if verb not in INSERTING:
        await db.insert(known)
        known.count = 1
    network.plan(fate)
    match verb:
        case "remove":
            known.owner = None
            await db.save(known)
        case "transaction":
            async with db.transaction() as tx:
                tx.save(known)
                tx.insert(Plain())
        case "guarded":
            known.count = 0
            async with db.transaction() as tx:
                await tx.get(known.key, guard=True)
                tx.upsert(Plain())
        case _:
            known = await act(db, verb, known)
    await network.deliver()

    stored = await other.get(KEY)
    assert stored == known
    assert verb == "guarded" or stored.etag == known.etag
    known.count += 5
    if verb != "guarded":
        await db.save(known)
        assert (await other.get(KEY)).count == known.count


@pytest.mark.parametrize("fate", [Fate.LOST_REPLY, Fate.LATE])
@pytest.mark.parametrize("verb", [*INSERTING, "save", "replace", "modify", "delete", "save in a transaction"])
async def test_a_plain_row_says_that_it_does_not_know(
    db: Database, network: FaultyStore, other: Database, fate: Fate, verb: str
) -> None:
    """The error has the row as it is now; if nothing was applied and nothing can be, the repetition simply succeeds."""
    plain = Plain(owner="x")
    if verb not in INSERTING:
        await db.insert(plain)
    plain.count = 0 if verb == "create" else 1
    network.plan(fate)

    if fate is Fate.LATE:
        await act(db, verb, plain)
        await network.deliver()
        found = await other.get_or_none(PLAIN)
        assert (found is None) == (verb == "delete")
        return
    with pytest.raises(OutcomeUnknown, match=r"Plain \('p', 'plain_a'\): a reply was lost.*write_token=True") as caught:
        await act(db, verb, plain)
    assert not isinstance(caught.value, Conflict)
    named = "modify" if verb == "create" else verb.partition(" ")[0]
    assert caught.value.verb == named and caught.value.token is None
    assert caught.value.found == await other.get_or_none(PLAIN)
    assert caught.value.found is None if verb == "delete" else cast(Plain, caught.value.found).count == 1


def others(store: FaultyStore, operation: Operation) -> Callable[[], Awaitable[object]]:
    """Another client's write."""
    return lambda: store.store.write("Rows", operation)


@pytest.mark.parametrize("foreign", [1, 2, 3])
async def test_the_tail_is_three_long(db: Database, network: FaultyStore, other: Database, foreign: int) -> None:
    """Two writes of others after ours still let us find our own; after three we say that we do not know."""
    known = Known()
    await db.insert(known)

    async def let_others() -> None:
        for _ in range(foreign):
            await other.modify(KEY, add)

    network.plan(Fate.LOST_REPLY)
    network.meanwhile = let_others
    known.count = 10
    if foreign == 3:
        with pytest.raises(OutcomeUnknown):
            await db.save(known)
        return
    await db.save(known)
    assert (await other.get(KEY)).count == 10 + foreign
    with pytest.raises(PreconditionFailed, match=r"another client may have changed its row since; refresh\(\)"):
        await db.save(known)
    await db.refresh(known)
    known.count += 1
    await db.save(known)


class Listed(Entity, table="Rows", partition_key="p", row_key="listed_{id}", write_token=True):
    id: Mapped[str] = field(default="a")
    count: Mapped[int] = field(default=0)
    owner: Mapped[str] = field(default="me")
    by_owner = Index(row_key="owner_{owner}_{id}", include=["owner"])


async def test_an_index_entry_proves_the_write_of_its_entity(db: Database, network: FaultyStore) -> None:
    """It has the token of the write that made it, however many writes of the entity have left it alone since."""
    listed = Listed()

    async def let_others() -> None:
        for _ in range(4):
            await db.modify(Listed.key(id="a"), lambda each: each.evolve(count=each.count + 1))

    network.plan(Fate.LOST_REPLY)
    network.meanwhile = let_others
    await db.insert(listed)

    assert (await db.get(Listed, id="a")).count == 4
    assert listed.etag is None


class Owner(Entity, table="Rows", partition_key="p", row_key="owner_{id}"):
    id: Mapped[str]
    things: Mapped[int] = field(default=0, maintained=True)


class Owned(Entity, table="Rows", partition_key="p", row_key="owned_{id}"):
    id: Mapped[str]
    owner: Mapped[str] = field(default="a")
    counted = Count(lambda: Owner.things, id="{owner}")


async def test_the_row_that_counts_proves_that_nothing_was_written(db: Database, network: FaultyStore) -> None:
    """It has lost the ETag of the lost request, and has the token of the write before: the insert is sent anew."""
    await db.insert(Owner(id="a"))
    await db.insert(Owned(id="1"))
    network.plan(Fate.LOST_REQUEST)
    keys = {"PartitionKey": "p", "RowKey": "owner_a"}
    network.meanwhile = others(network, Operation(Verb.MERGE, {**keys, "foreign": 1}, "*"))
    await db.insert(Owned(id="2"))

    assert (await db.get(Owner, id="a")).things == 2


async def test_a_write_beside_ours_makes_an_entity_superseded_that_was_read_in_part(
    db: Database, network: FaultyStore, other: Database
) -> None:
    """What we wrote is there still, and what the other one wrote we have not seen: its ETag is not ours."""
    await db.insert(Known())
    known = await db.select(Known).where(Known.id == "a").only(Known.count).one()

    async def give_owner() -> None:
        def change(entity: Known) -> None:
            entity.owner = "other"

        await other.modify(KEY, change)

    network.meanwhile = give_owner
    network.plan(Fate.LOST_REPLY)
    known.count = 1
    await db.save(known)

    assert known.etag is None
    assert (await other.get(KEY)).count == 1


async def test_a_delete_without_evidence(db: Database, network: FaultyStore, other: Database) -> None:
    """Gone is gone if that is all that was asked; whose delete it was nobody knows. A row that lives is not deleted."""
    plain = Plain()
    await db.insert(plain)
    network.plan(Fate.LOST_REPLY)
    await db.delete(plain, missing_ok=True)
    network.plan()
    await db.insert(plain)
    network.plan(Fate.LOST_REPLY)
    with pytest.raises(OutcomeUnknown) as caught:
        await db.delete(plain)
    assert caught.value.found is None
    network.plan()
    await db.upsert(Plain())
    network.plan(Fate.LOST_REQUEST)
    await db.delete(PLAIN, if_match="*")
    assert await other.get_or_none(PLAIN) is None
    await db.upsert(Plain())
    network.plan(Fate.LOST_REQUEST)
    await db.delete(PLAIN, if_match="*", missing_ok=True)
    assert await other.get_or_none(PLAIN) is None
    with pytest.raises(EntityNotFound):
        await db.delete(PLAIN, if_match="*")


@pytest.mark.parametrize("model", [Plain, Known])
@pytest.mark.parametrize("fate", [Fate.LOST_REPLY, Fate.LOST_REQUEST, Fate.BUSY])
async def test_an_upsert_is_not_repeated_blindly(
    db: Database, network: FaultyStore, other: Database, model: type[Plain] | type[Known], fate: Fate
) -> None:
    """What is left to do is done under a condition: every request but the first has one."""
    for row in (None, model(count=3, owner="kept")):
        if row is not None:
            await other.upsert(row)
        network.plan(fate, Fate.LOST_REPLY)
        mine = model(count=7)
        await db.upsert(mine)
        stored = await other.get(model, id="a")
        assert (stored.count, stored.owner) == (7, row and "kept")
        assert stored.etag == mine.etag or mine.etag is None
        blind = [sent[0] for sent in network.sent if sent[0].verb is Verb.INSERT_OR_MERGE]
        assert len(blind) == (2 if fate is Fate.BUSY else 1)
        await other.delete(stored)


async def test_what_a_late_upsert_can_do(db: Database, network: FaultyStore, other: Database) -> None:
    """It has no condition, so it may arrive after later writes, and undo them. That is not promised otherwise."""
    network.plan(Fate.LATE)
    await db.upsert(Plain(count=1))
    await other.modify(PLAIN, add)
    await network.deliver()

    assert (await other.get(PLAIN)).count == 1


async def test_a_transaction_of_upserts_in_doubt(db: Database, network: FaultyStore, other: Database) -> None:
    """What is as wanted is done; otherwise it goes on under the ETags that were read, in one piece."""
    for fate in (Fate.LOST_REPLY, Fate.LOST_REQUEST):
        network.plan(fate, Fate.LOST_REPLY)
        rows = [Plain(id=name, count=len(fate.name)) for name in "abc"]
        async with db.transaction() as tx:
            for row in rows:
                tx.upsert(row)
        assert [(await other.get(row.key)).etag for row in rows] == [row.etag for row in rows]
    network.plan(Fate.LOST_REQUEST)
    async with db.transaction() as tx:
        tx.merge(Plain(id="a", count=7), if_match="*")
        tx.delete(Plain.key(id="b"), if_match="*")
    assert (await other.get(PLAIN)).count == 7
    network.plan(Fate.LOST_REPLY)
    with pytest.raises(OutcomeUnknown):
        async with db.transaction() as tx:
            tx.delete(PLAIN, if_match="*")
            tx.delete(Plain.key(id="c"), if_match="*")


async def test_patience_ends(network: FaultyStore) -> None:
    """Without effect: the error of the last attempt. In doubt: OutcomeUnknown, after a last look."""
    async with Database(FaultyBackend(network), retry=RetryPolicy(attempts=3, base=0.0)) as db:
        await db.create_tables(Plain)
        network.plan(*[Fate.BUSY] * 9)
        with pytest.raises(Throttled, match="Asked for too much"):
            await db.insert(Plain())
        assert len(network.sent) == 3
        network.plan(*[Fate.LOST_REQUEST] * 9)
        with pytest.raises(OutcomeUnknown) as caught:
            await db.insert(Plain())
        assert len(network.sent) == 3 and caught.value.found is None
        network.plan(Fate.LOST_REQUEST, Fate.LOST_REQUEST, Fate.LOST_REPLY)
        known = Known()
        await db.insert(known)
        assert known.etag == (await db.get(KEY)).etag
        network.plan(*[Fate.LOST_REQUEST] * 9)
        with pytest.raises(OutcomeUnknown):
            await db.upsert(Plain())


async def test_pauses() -> None:
    """They grow, have a bound, and are never shorter than the service asked for; a call has a deadline."""
    policy = RetryPolicy(base=1.0, cap=8.0)
    longest = [max(pause_after(failures, policy) for _ in range(2000)) for failures in (1, 2, 3, 10)]
    assert [round(each) for each in longest] == [2, 4, 8, 8]

    patience = RetryBudget(RetryPolicy(deadline=5.0, base=0.0))
    assert await patience.another(Fault(Code.SERVER_BUSY, ""))
    assert not await patience.another(Fault(Code.SERVER_BUSY, "", retry_after=6.0))
    begun = asyncio.get_running_loop().time()
    assert await patience.another(Fault(Code.SERVER_BUSY, "", retry_after=0.05))
    assert asyncio.get_running_loop().time() - begun >= 0.05


class Flaky(StoreLayer):
    """Fails the first time it is asked for a table or a row, having done it or not."""

    def __init__(self, *, done: bool) -> None:
        super().__init__(MemoryStore())
        self.done, self.fails = done, {"create_table", "delete_table", "list_tables", "get"}

    async def send(self, request: StoreRequest) -> Any:
        if request.method not in self.fails:
            return await super().send(request)
        self.fails.remove(request.method)
        if self.done and request.method != "get":
            await super().send(request)
        raise Fault(Code.NO_ANSWER, "Nobody answered.", doubt=True)


@pytest.mark.parametrize("done", [True, False])
async def test_reads_and_tables_are_repeated(done: bool) -> None:
    """A table that our lost request made, or removed, counts as ours; the repetitions are counted."""
    backend = FaultyBackend(Flaky(done=done))
    async with Database(backend, retry=QUICK) as db:
        await db.create_tables(Plain)
        assert await db.tables() == ["Rows"]
        assert await db.get_or_none(PLAIN) is None
        await db.drop_table("Rows")

        assert db.stats.requests == 9  # with that for the states of indexes
        with pytest.raises(Exception, match="no table"):
            await db.drop_table("Rows")


async def test_a_store_that_repeats_itself_is_not_repeated() -> None:
    """Only doubt is left to find out."""

    class Own(FaultyStore):
        @property
        def capabilities(self) -> Capabilities:
            return attrs.evolve(super().capabilities, retries=True)

    backend = FaultyBackend()
    backend.tables = Own(MemoryStore())
    async with Database(backend, retry=QUICK) as db:
        assert not isinstance(db.store, RetryingStore)
        await db.create_tables(Plain)
        backend.tables.plan(Fate.BUSY)
        with pytest.raises(Unavailable):
            await db.insert(Plain())
        backend.tables.plan(Fate.LOST_REPLY)
        await db.insert(Known())


async def test_the_look_after_a_lost_reply_is_told(db: Database, network: FaultyStore) -> None:
    """Observers and statistics have it as a `get` of each row that the lost request was to write."""
    await db.create_tables(Plain)
    network.plan(Fate.LOST_REPLY)
    with db.observe() as block, pytest.raises(OutcomeUnknown):
        async with db.transaction() as tx:
            tx.insert(Plain())
            tx.insert(Plain(id="b"))

    assert [each.operation for each in block.requests] == ["transaction", "transaction", "get", "get"]
    assert db.stats.counts["get", "Plain"].requests == 2
