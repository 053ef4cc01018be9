"""
The contract of a `QueueStore`: subclass `QueueStoreContract`, override the fixture `store`, and if durable `reopen`.
"""

import asyncio
import datetime as dt
from collections.abc import AsyncIterator, Awaitable, Callable

import attrs
import pytest

from ...protocol.codes import Code
from ...protocol.limits import MAX_MESSAGE_BYTES, MAX_MESSAGES, MAX_VISIBILITY_SECONDS
from ...stores import Message, QueueStore
from .base import need, new_dns_name, refusal

ReopenQueues = Callable[[], Awaitable[QueueStore]]
"""Closes the store and opens the same data again."""

Wait = Callable[[float], Awaitable[None]]
"""Lets so many seconds pass on the clock of the store."""

# The codes with which a store refuses a stale receipt; the service uses either.
_STALE = (Code.POP_RECEIPT_MISMATCH, Code.MESSAGE_NOT_FOUND)
_POLL_SECONDS = 0.02


async def _take_all(store: QueueStore, queue: str) -> list[Message]:
    messages: list[Message] = []
    while taken := await store.take(queue, MAX_MESSAGES, 600):
        messages += taken
    return messages


class _Contract:
    @pytest.fixture
    def store(self) -> QueueStore:
        """An open store. Tests make queues of their own and remove them, so it may be shared and need not be empty."""
        raise NotImplementedError(f"{type(self).__name__} must override the fixture `store`")

    @pytest.fixture
    async def queue(self, store: QueueStore) -> AsyncIterator[str]:
        """The name of a new, empty queue."""
        name = new_dns_name()
        await store.create_queue(name)
        yield name
        await store.delete_queue(name)

    @pytest.fixture
    def wait(self) -> Wait:
        """Waits; a store whose clock a test can put forward may do that instead."""
        return asyncio.sleep


class QueueLifecycleContract(_Contract):
    """Creating, listing, clearing and deleting queues."""

    async def test_queues_are_listed_by_prefix(self, store: QueueStore) -> None:
        """Names that start with the prefix are listed, in order."""
        stem = new_dns_name()
        mine = [f"{stem}-{end}" for end in ("b", "a", "a1", "c")]
        for name in mine:
            await store.create_queue(name)

        assert await store.list_queues(stem) == sorted(mine)
        assert await store.list_queues(f"{stem}-a") == [f"{stem}-a", f"{stem}-a1"]
        assert set(mine) <= set(await store.list_queues())
        for name in mine:
            await store.delete_queue(name)

    async def test_created_again_it_is_the_same(self, store: QueueStore, queue: str) -> None:
        """Creating a queue that exists raises nothing, and keeps its messages."""
        await store.put(queue, b"kept")
        await store.create_queue(queue)

        assert [each.body for each in await store.peek(queue)] == [b"kept"]

    async def test_absent_queue_is_refused(self, store: QueueStore, queue: str) -> None:
        """Every call for a queue that does not exist, or was deleted, raises QueueNotFound."""
        await store.put(queue, b"x")
        (message,) = await store.take(queue)
        gone, never = new_dns_name(), new_dns_name()
        await store.create_queue(gone)
        await store.put(gone, b"x")
        await store.delete_queue(gone)

        assert gone not in await store.list_queues()
        for name in (gone, never):
            for call in (
                store.delete_queue(name),
                store.clear(name),
                store.put(name, b"x"),
                store.take(name),
                store.renew(name, message, 1),
                store.delete(name, message),
                store.peek(name),
                store.length(name),
            ):
                assert (await refusal(call)).code in (Code.QUEUE_NOT_FOUND, Code.QUEUE_BEING_DELETED)

    async def test_cleared_queue_is_empty(self, store: QueueStore, queue: str) -> None:
        """Clearing removes all messages, hidden ones too, and makes their receipts stale; the queue stays."""
        for _ in range(3):
            await store.put(queue, b"old")
        (taken,) = await store.take(queue)
        await store.clear(queue)

        assert await store.peek(queue, 32) == []
        assert (await refusal(store.delete(queue, taken))).code in _STALE
        assert (await refusal(store.renew(queue, taken, 0))).code in _STALE
        await store.put(queue, b"new")
        assert [each.body for each in await store.take(queue, 32)] == [b"new"]


class MessageContract(_Contract):
    """Putting, taking, renewing, deleting and peeking."""

    @pytest.mark.parametrize("body", [b"", b"\0", bytes(range(256)), "ä😀".encode(), b"x" * MAX_MESSAGE_BYTES])
    async def test_body_comes_back(self, store: QueueStore, queue: str, body: bytes) -> None:
        """Any bytes come back as they were put, with the id that `put` gave, a count of one, and an aware time."""
        put = await store.put(queue, body)
        (message,) = await store.take(queue)

        assert (message.id, message.body, message.dequeue_count) == (put.id, body, 1)
        assert message.inserted_at.utcoffset() == dt.timedelta(0)

    async def test_whoever_put_a_message_can_take_it_back(self, store: QueueStore, queue: str) -> None:
        """The receipt that `put` gave hides and deletes the message, also a hidden one, until somebody takes it."""
        hidden = await store.put(queue, b"hidden", delay_seconds=600)
        renewed = await store.renew(queue, await store.put(queue, b"renewed"), 600)
        lost = await store.put(queue, b"lost")
        assert (lost.body, lost.dequeue_count, lost.inserted_at.utcoffset()) == (b"lost", 0, dt.timedelta(0))
        (taken,) = await store.take(queue, 32)

        assert taken.id == lost.id
        for message in (hidden, renewed, taken):
            await store.delete(queue, message)
        assert (await refusal(store.delete(queue, lost))).code in _STALE
        assert await store.length(queue) == 0

    async def test_taken_is_hidden(self, store: QueueStore, queue: str) -> None:
        """Others neither take nor peek at a message that is taken, and can take the others."""
        await store.put(queue, b"one")
        await store.put(queue, b"two")
        (first,) = await store.take(queue)

        assert {each.body for each in await store.peek(queue, 32)} == {b"one", b"two"} - {first.body}
        (second,) = await store.take(queue, 32)
        assert {first.body, second.body} == {b"one", b"two"}
        assert await store.take(queue) == []
        assert await store.peek(queue) == []

    async def test_take_gives_no_more_than_asked(self, store: QueueStore, queue: str) -> None:
        """A take returns at most the number asked for; several takes return all messages, each with its own id."""
        ids = [(await store.put(queue, b"x")).id for _ in range(5)]
        first = await store.take(queue, 2)

        assert 1 <= len(first) <= 2
        assert sorted(each.id for each in [*first, *await _take_all(store, queue)]) == sorted(ids)
        assert len(set(ids)) == 5

    async def test_deleted_is_gone(self, store: QueueStore, queue: str) -> None:
        """A deleted message does not come back, and cannot be deleted or renewed again."""
        await store.put(queue, b"x")
        (message,) = await store.take(queue)
        await store.delete(queue, message)

        assert (await refusal(store.delete(queue, message))).code == Code.MESSAGE_NOT_FOUND
        assert (await refusal(store.renew(queue, message, 0))).code == Code.MESSAGE_NOT_FOUND
        assert await store.take(queue) == []

    async def test_given_back_is_taken_by_the_next(self, store: QueueStore, queue: str) -> None:
        """A message renewed for 0 seconds is visible at once; the next taker gets the only valid receipt."""
        await store.put(queue, b"x")
        (mine,) = await store.take(queue, visibility_seconds=600)
        mine = await store.renew(queue, mine, 0)
        (theirs,) = await store.take(queue, visibility_seconds=600)

        assert (theirs.id, theirs.body, theirs.dequeue_count) == (mine.id, b"x", 2)
        assert theirs.inserted_at == mine.inserted_at
        assert (await refusal(store.delete(queue, mine))).code in _STALE
        assert (await refusal(store.renew(queue, mine, 0))).code in _STALE
        await store.delete(queue, theirs)
        assert await store.take(queue) == []

    async def test_given_back_but_not_taken_is_still_mine(self, store: QueueStore, queue: str) -> None:
        """A receipt is valid until someone else takes the message, also when its time is over."""
        await store.put(queue, b"x")
        (message,) = await store.take(queue)
        message = await store.renew(queue, message, 0)
        await store.delete(queue, message)

        assert await store.take(queue) == []

    async def test_renewed_has_a_new_receipt(self, store: QueueStore, queue: str) -> None:
        """Renewing makes the old receipt stale, hides the message, and does not count as taking."""
        await store.put(queue, b"x")
        (first,) = await store.take(queue)
        second = await store.renew(queue, first, 600)

        assert attrs.evolve(second, receipt=first.receipt) == first
        assert (await refusal(store.delete(queue, first))).code in _STALE
        assert await store.take(queue) == []
        await store.delete(queue, second)

    async def test_peek_changes_nothing(self, store: QueueStore, queue: str) -> None:
        """Peeking neither hides nor counts, and gives no right to delete."""
        put = await store.put(queue, b"x")
        await store.peek(queue)
        (peeked,) = await store.peek(queue)

        assert (peeked.id, peeked.body, peeked.receipt, peeked.dequeue_count) == (put.id, b"x", None, 0)
        for call in (store.delete(queue, peeked), store.renew(queue, peeked, 0)):
            assert (await refusal(call)).code in _STALE
        (taken,) = await store.take(queue)
        assert taken.dequeue_count == 1

    async def test_queues_are_separate(self, store: QueueStore, queue: str) -> None:
        """A message is only in its own queue."""
        other = new_dns_name()
        await store.create_queue(other)
        await store.put(queue, b"x")

        assert await store.take(other) == []
        (message,) = await store.take(queue)
        assert (await refusal(store.delete(other, message))).code in _STALE
        await store.delete(queue, message)
        await store.delete_queue(other)

    async def test_length_counts_the_hidden(self, store: QueueStore, queue: str) -> None:
        """The length is never less than the number of messages, taken and delayed ones included."""
        for delay in (0, 0, 600):
            await store.put(queue, b"x", delay_seconds=delay)
        await store.take(queue)

        assert await store.length(queue) >= 3

    async def test_hidden_comes_back_when_its_time_is_over(self, store: QueueStore, queue: str, wait: Wait) -> None:
        """A message that was taken for a second, or put with a delay of one, is hidden and then visible."""
        await store.put(queue, b"taken")
        await store.put(queue, b"delayed", delay_seconds=1)
        (mine,) = await store.take(queue, 32, visibility_seconds=1)
        seen: dict[bytes, int] = {}
        while len(seen) < 2:
            for message in await store.take(queue, 32, visibility_seconds=600):
                seen[message.body] = message.dequeue_count
            await wait(_POLL_SECONDS)

        assert mine.body == b"taken"
        assert seen == {b"taken": 2, b"delayed": 1}
        assert (await refusal(store.delete(queue, mine))).code in _STALE

    async def test_expired_vanishes(self, store: QueueStore, queue: str, wait: Wait) -> None:
        """A message expires after its time to live; others stay."""
        await store.put(queue, b"short", ttl_seconds=1)
        await store.put(queue, b"long", ttl_seconds=600)
        await store.put(queue, b"for ever")
        left = await store.peek(queue, 32)
        while len(left) > 2:
            await wait(_POLL_SECONDS)
            left = await store.peek(queue, 32)

        assert {each.body for each in left} == {b"long", b"for ever"}
        assert {each.body for each in await store.take(queue, 32)} == {b"long", b"for ever"}

    async def test_many_takers_share_all(self, store: QueueStore, queue: str) -> None:
        """Each message is taken exactly once while many tasks put and many tasks take."""
        put = await asyncio.gather(*(store.put(queue, f"{number}".encode()) for number in range(30)))

        async def work() -> list[str]:
            done: list[str] = []
            while messages := await store.take(queue, 4, 600):
                for message in messages:
                    await store.delete(queue, message)
                    done.append(message.id)
            return done

        taken = await asyncio.gather(*(work() for _ in range(4)))
        assert sorted(each for done in taken for each in done) == sorted(each.id for each in put)


class QueueLimitsContract(_Contract):
    """Each limit of the service, at it and one beyond."""

    @pytest.mark.parametrize("name", ["", "Upper", "a_b-c", "-abc", "abc-", "a--b", "ab c", "äbc", "abc\n", "$abc"])
    async def test_bad_name_is_refused(self, store: QueueStore, name: str) -> None:
        """A name is lower case letters, digits and single hyphens between them."""
        need(store, "exact_limits")
        for call in (store.create_queue(name), store.put(name, b"x"), store.peek(name)):
            assert (await refusal(call)).code == Code.INVALID_RESOURCE_NAME

    async def test_lengths_of_names(self, store: QueueStore) -> None:
        """A name has 3 to 63 characters."""
        need(store, "exact_limits")
        longest = new_dns_name().ljust(63, "x")
        await store.create_queue(longest)

        assert await store.list_queues(longest) == [longest]
        for name in ("ab", "a" * 64):
            assert (await refusal(store.create_queue(name))).code == Code.KEY_OUT_OF_RANGE
        await store.delete_queue(longest)

    async def test_times_and_counts_in_bounds(self, store: QueueStore, queue: str) -> None:
        """The largest times and counts are accepted."""
        await store.put(queue, b"hidden", delay_seconds=MAX_VISIBILITY_SECONDS)
        await store.put(queue, b"x", ttl_seconds=1_000_000_000)
        (message,) = await store.take(queue, MAX_MESSAGES, MAX_VISIBILITY_SECONDS)

        message = await store.renew(queue, message, MAX_VISIBILITY_SECONDS)
        await store.delete(queue, message)

    async def test_beyond_the_limits(self, store: QueueStore, queue: str) -> None:
        """A time or count beyond its bounds is rejected, and so is one byte more than 48 KiB; nothing changes."""
        need(store, "exact_limits")
        await store.put(queue, b"x")
        (message,) = await store.take(queue)
        beyond = MAX_VISIBILITY_SECONDS + 1

        for call in (
            store.take(queue, 0),
            store.take(queue, MAX_MESSAGES + 1),
            store.take(queue, visibility_seconds=0),
            store.take(queue, visibility_seconds=beyond),
            store.peek(queue, 0),
            store.peek(queue, MAX_MESSAGES + 1),
            store.put(queue, b"y", delay_seconds=-1),
            store.put(queue, b"y", delay_seconds=beyond),
            store.put(queue, b"y", ttl_seconds=0),
            store.put(queue, b"y", ttl_seconds=5, delay_seconds=5),
            store.renew(queue, message, -1),
            store.renew(queue, message, beyond),
        ):
            assert (await refusal(call)).code == Code.PARAMETER_OUT_OF_RANGE
        large = store.put(queue, b"x" * (MAX_MESSAGE_BYTES + 1))
        assert (await refusal(large)).code == Code.MESSAGE_TOO_LARGE
        await store.delete(queue, message)
        assert await store.peek(queue, 32) == []


class QueueDurabilityContract(_Contract):
    """What was acknowledged is there after a restart. A durable backend overrides `reopen` as well."""

    @pytest.fixture
    def reopen(self, store: QueueStore) -> ReopenQueues:
        """Closes the store and opens the same data again."""
        need(store, "durable")
        raise NotImplementedError(f"{type(self).__name__} must override the fixture `reopen`")

    async def test_messages_and_receipts_stay(self, store: QueueStore, reopen: ReopenQueues) -> None:
        """After a restart messages are there, receipts are valid, deleted messages stay deleted, ids are not reused."""
        queue = new_dns_name()
        await store.create_queue(queue)
        ids = [(await store.put(queue, body)).id for body in (b"deleted", b"held", b"there")]
        taken = await store.take(queue, 2, 600)
        await store.delete(queue, taken[0])

        again = await reopen()
        assert await again.length(queue) >= 2
        (left,) = await again.take(queue, 32, 600)
        assert {left.body, taken[0].body, taken[1].body} == {b"deleted", b"held", b"there"}
        await again.delete(queue, taken[1])
        assert (await refusal(again.delete(queue, taken[0]))).code == Code.MESSAGE_NOT_FOUND
        assert (await again.put(queue, b"new")).id not in ids
        await again.delete_queue(queue)


class QueueStoreContract(QueueLifecycleContract, MessageContract, QueueLimitsContract, QueueDurabilityContract):
    """
    All parts of the contract. Override the fixture `store`, and for a durable backend `reopen`.
    """
