"""
Queues in a table beyond the contract: how many requests they take, several programs, crashes in the middle.
"""

import asyncio
import datetime as dt
import random
from collections.abc import Awaitable, Sequence

import pytest

from tableorm import Database
from tableorm.outbox.table_queue import QUEUES_TABLE, TableQueueStore
from tableorm.protocol.codes import Code, Fault
from tableorm.stores import CLOCK, Message, TableStore
from tableorm.testing import MemoryStore
from tableorm.testing.contract.base import everything, refusal
from tests.database.between import Meanwhile
from tests.faults import Fate, FaultyStore
from tests.outbox.network import Jittery
from tests.rows import delete_row, insert_row, merge_row
from tests.torture import seeds

MINUTE = dt.timedelta(minutes=1)


class CountingStore(MemoryStore):
    """Counts the requests for rows, by their kind."""

    def __init__(self) -> None:
        super().__init__()
        self.requests: list[str] = []

    def __getattribute__(self, name: str) -> object:
        if name in ("get", "query", "write", "transact"):
            self.requests.append(name)
        return super().__getattribute__(name)


@pytest.fixture
def tables() -> CountingStore:
    return CountingStore()


@pytest.fixture
async def mine(tables: CountingStore) -> TableQueueStore:
    store = TableQueueStore(tables)
    await store.create_queue("mail")
    return store


@pytest.fixture
def theirs(tables: CountingStore) -> TableQueueStore:
    return TableQueueStore(tables)


async def rows_of(tables: TableStore) -> list[str]:
    return [row["RowKey"] for row in await everything(tables, QUEUES_TABLE) if row["RowKey"] != "!"]


async def bodies(messages: Awaitable[Sequence[Message]]) -> list[bytes]:
    return [each.body for each in await messages]


async def test_requests(tables: CountingStore, mine: TableQueueStore) -> None:
    """A put and a delete are one request, a take is two, and one where nothing is visible."""
    tables.requests.clear()
    await mine.put("mail", b"a")
    (message,) = await mine.take("mail")
    await mine.take("mail")
    await mine.delete("mail", message)

    assert tables.requests == ["transact", "query", "transact", "query", "write"]


async def test_deletes_at_the_same_time(tables: CountingStore, mine: TableQueueStore) -> None:
    """They are one request; if a receipt is stale, each message by itself, and the others are deleted."""
    for _ in range(6):
        await mine.put("mail", b"a")
    first, *others = await mine.take("mail", 6)
    await mine.renew("mail", first, 60)
    tables.requests.clear()
    await asyncio.gather(*(mine.delete("mail", each) for each in others[:3]))
    assert tables.requests == ["transact"]
    outcomes = await asyncio.gather(
        *(mine.delete("mail", each) for each in (first, *others[3:])), return_exceptions=True
    )
    assert [each.code for each in outcomes if isinstance(each, Fault)] == [Code.MESSAGE_NOT_FOUND]
    assert await mine.length("mail") == 1


async def test_the_oldest_visible_comes_first(mine: TableQueueStore, stopped_clock: None) -> None:
    """Messages are taken in the order in which they became visible, whatever the order in which they were put."""
    await mine.put("mail", b"last", delay_seconds=30)
    for body in (b"first", b"second"):
        await mine.put("mail", body)
        CLOCK.advance(dt.timedelta(seconds=1))
    CLOCK.advance(MINUTE)

    taken = [(await mine.take("mail"))[0].body for _ in range(3)]
    assert taken == [b"first", b"second", b"last"]


async def test_another_program_clears_the_queue(mine: TableQueueStore, theirs: TableQueueStore) -> None:
    """A program that knows the queue from before notices, at its next call, that it was cleared."""
    await mine.put("mail", b"old")
    await theirs.clear("mail")

    assert await mine.peek("mail") == []
    await mine.put("mail", b"new")
    assert await bodies(theirs.take("mail", 32)) == [b"new"]
    await theirs.clear("mail")
    await mine.put("mail", b"newer")  # the first call since then
    assert await bodies(theirs.take("mail", 32)) == [b"newer"]


async def test_another_program_deletes_the_queue(
    tables: CountingStore, mine: TableQueueStore, theirs: TableQueueStore
) -> None:
    """So it notices that the queue is gone, and that there is another one of the name."""
    await mine.put("mail", b"old")
    (message,) = await mine.take("mail")
    await theirs.delete_queue("mail")

    assert await rows_of(tables) == []
    for call in (mine.put("mail", b"x"), mine.take("mail"), mine.delete("mail", message), mine.length("mail")):
        assert (await refusal(call)).code == Code.QUEUE_NOT_FOUND
    await theirs.create_queue("mail")
    assert (await refusal(mine.renew("mail", message, 1))).code == Code.MESSAGE_NOT_FOUND
    await mine.put("mail", b"new")
    assert await bodies(theirs.peek("mail", 32)) == [b"new"]


async def test_a_deletion_that_crashed(tables: CountingStore, mine: TableQueueStore) -> None:
    """A queue whose head is gone and whose name is left is no queue; it can be deleted, and created again."""
    await mine.put("mail", b"old")
    (head,) = [row for row in await everything(tables, QUEUES_TABLE) if row["RowKey"] == "!"]
    await delete_row(tables, QUEUES_TABLE, head)

    assert (await refusal(mine.put("mail", b"x"))).code == Code.QUEUE_NOT_FOUND
    assert (await refusal(mine.clear("mail"))).code == Code.QUEUE_NOT_FOUND
    await mine.create_queue("mail")
    assert await mine.peek("mail", 32) == []
    await mine.put("mail", b"new")
    assert await bodies(mine.take("mail", 32)) == [b"new"]


async def test_all_create_one_queue(tables: CountingStore) -> None:
    """Programs that create a queue at the same time get the same one."""
    stores = [TableQueueStore(tables) for _ in range(5)]
    await asyncio.gather(*(store.create_queue("mail") for store in stores))
    for number, store in enumerate(stores):
        await store.put("mail", b"%d" % number)

    assert sorted(each.body for each in await stores[0].take("mail", 32)) == [b"0", b"1", b"2", b"3", b"4"]


async def test_expired_messages_are_removed(tables: CountingStore, mine: TableQueueStore, stopped_clock: None) -> None:
    """A take removes the expired messages that it meets, and a renewal of one finds nothing."""
    await mine.put("mail", b"short", ttl_seconds=30)
    (message,) = await mine.take("mail", visibility_seconds=10)
    CLOCK.advance(MINUTE)

    assert (await refusal(mine.renew("mail", message, 5))).code == Code.MESSAGE_NOT_FOUND
    assert await mine.take("mail") == []
    assert await rows_of(tables) == ["mail"]


async def test_a_receipt_of_another_message(mine: TableQueueStore) -> None:
    """A receipt is good for its own message alone."""
    for _ in range(2):
        await mine.put("mail", b"x")
    one, two = await mine.take("mail", 2)
    mixed = type(one)(id=one.id, body=b"x", receipt=two.receipt, dequeue_count=1, inserted_at=one.inserted_at)

    assert (await refusal(mine.delete("mail", mixed))).code == Code.POP_RECEIPT_MISMATCH


async def test_a_row_that_has_its_key_again(stopped_clock: None) -> None:
    """A receipt is stale if its message was renewed meanwhile, even if the row is back under the key that was read."""
    async with Database(tables := Meanwhile()):
        queues = TableQueueStore(tables)
        await queues.create_queue("mail")
        await queues.put("mail", b"x")
        (message,) = await queues.take("mail", visibility_seconds=10)

        async def renew_twice() -> Message:
            return await queues.renew("mail", await queues.renew("mail", message, 5), 10)

        tables.others = renew_twice

        assert (await refusal(queues.renew("mail", message, 20))).code == Code.MESSAGE_NOT_FOUND


async def test_takers_that_race_lose_no_message(tables: CountingStore, mine: TableQueueStore) -> None:
    """Of takers that see the same messages one gets them, and the others look again."""
    stores = [TableQueueStore(Jittery(tables, random.Random(number))) for number in range(4)]
    for _ in range(12):
        await mine.put("mail", b"x")

    taken = await asyncio.gather(*(store.take("mail", 3) for store in stores))
    ids = [message.id for messages in taken for message in messages]
    assert len(ids) == len(set(ids)) and len(ids) >= 3
    rest = await mine.take("mail", 32)
    assert len(ids) + len(rest) == 12


async def test_queues_of_two_tables(tables: CountingStore, mine: TableQueueStore) -> None:
    """Queues in another table are others."""
    other = TableQueueStore(tables, "otherqueues")
    assert await other.list_queues() == []
    await other.create_queue("mail")
    await other.put("mail", b"x")

    assert await mine.peek("mail") == []
    assert (await mine.list_queues(), await other.list_queues("m")) == (["mail"], ["mail"])


@pytest.mark.parametrize(
    "damage",
    [
        {"RowKey": "mail"},
        {"RowKey": "m1_x"},
        {"Body": None},
        {"Body": "not base64", "Body@odata.type": None},
        {"Body": 7, "Body@odata.type": None},
        {"Count": "many"},
        {"Inserted": "yesterday", "Inserted@odata.type": None},
        {"Inserted": "0001-01-01T00:00:00+14:00", "Inserted@odata.type": None},
        {"Inserted": 7, "Inserted@odata.type": None},
        {"Expires": "never", "Expires@odata.type": None},
        {"Expires": " " * 9 + "9" * 30, "Expires@odata.type": None},
        {"Expires": True, "Expires@odata.type": None},
        {"RowKey": "m0000000000000000001_a b"},
    ],
)
async def test_rows_that_are_no_messages(
    tables: CountingStore, mine: TableQueueStore, damage: dict[str, object]
) -> None:
    """A row of another program in the partition is no message, and keeps none back."""
    await mine.put("mail", b"first", ttl_seconds=600)
    (row,) = [row for row in await everything(tables, QUEUES_TABLE) if "Body" in row]
    await delete_row(tables, QUEUES_TABLE, row)
    await insert_row(tables, QUEUES_TABLE, {**row, **damage})
    await mine.put("mail", b"second")

    assert await bodies(mine.peek("mail")) == [b"second"]
    (message,) = await mine.take("mail")
    await mine.delete("mail", message)
    assert await mine.take("mail", 32) == []


async def test_a_message_that_was_taken_as_often_as_can_be_counted(
    tables: CountingStore, mine: TableQueueStore
) -> None:
    """Its count stays the largest number that a row holds, and it keeps no other message back."""
    for body in (b"first", b"second"):
        await mine.put("mail", body)
    largest = (1 << 31) - 1
    row = next(row for row in await everything(tables, QUEUES_TABLE) if "Body" in row)
    keys = {name: row[name] for name in ("PartitionKey", "RowKey")}
    await merge_row(tables, QUEUES_TABLE, {**keys, "Count": largest})

    assert sorted(each.dequeue_count for each in await mine.take("mail", 2)) == [1, largest]


@pytest.mark.parametrize("partition", [{}, {"Partition": 7}, {"Partition": ""}])
async def test_a_queue_whose_name_names_no_partition(tables: CountingStore, partition: dict[str, object]) -> None:
    """It is like a queue that is missing, and `create_queue` makes it."""
    queues = TableQueueStore(tables)
    await tables.create_table(QUEUES_TABLE)
    await insert_row(tables, QUEUES_TABLE, {"PartitionKey": "queues", "RowKey": "mail", **partition})
    with pytest.raises(Fault) as caught:
        await queues.take("mail")
    assert caught.value.code == Code.QUEUE_NOT_FOUND

    await queues.create_queue("mail")
    await queues.put("mail", b"first")
    assert await bodies(queues.take("mail")) == [b"first"]


@seeds(2, 500)
async def test_a_network_that_fails(seed: int, stopped_clock: None) -> None:
    """Each message whose put was answered is there until a delete of it was sent, whatever is lost, late or doubled."""
    chance = random.Random(seed)
    network = FaultyStore(MemoryStore())
    stores = [TableQueueStore(network) for _ in range(3)]
    await stores[0].create_queue("mail")
    likely = [Fate.FINE] * 6
    network.fates = iter(lambda: chance.choice([*likely, *Fate]), None)
    there, maybe, deleted = set[bytes](), set[bytes](), set[bytes]()
    held: list[Message] = []
    for number in range(60):
        store, body = chance.choice(stores), b"%d" % number
        verb = chance.choice(["put", "put", "take", "renew", "delete", "deliver", "wait"])
        try:
            if verb == "put":
                maybe.add(body)
                await store.put("mail", body, delay_seconds=chance.choice([0, 0, 5]))
                there.add(body)
            elif verb == "take":
                held += await store.take("mail", chance.randint(1, 4), 10)
            elif verb == "deliver":
                await network.deliver()
            elif verb == "wait":
                CLOCK.advance(dt.timedelta(seconds=chance.choice([1, 20])))
            elif held:
                message = held.pop(chance.randrange(len(held)))
                if verb == "renew":
                    held.append(await store.renew("mail", message, chance.choice([0, 30])))
                else:
                    deleted.add(message.body)
                    await store.delete("mail", message)
        except Fault as fault:
            if not fault.transient and fault.code not in (Code.MESSAGE_NOT_FOUND, Code.POP_RECEIPT_MISMATCH):
                raise
    network.plan()
    CLOCK.advance(MINUTE)

    found = {each.body for each in await take_all(stores[1])}
    assert there - deleted <= found <= maybe


async def take_all(store: TableQueueStore) -> list[Message]:
    found: list[Message] = []
    while messages := await store.take("mail", 32, 600):
        found += messages
    return found
