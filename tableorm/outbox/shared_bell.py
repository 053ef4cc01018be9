"""
Doorbells that are shared by several transactions: a bulk rings once for those that begin at about the same time.

While a message is on its way, further transactions gather for the next one; so nobody waits for company. A message is
deleted when all of its transactions are done. All of them are about the same kinds of entities, so that a worker which
knows these kinds can carry out all of the message.
"""

import asyncio
from collections.abc import Sequence

from ..connection.connection import Connection
from ..connection.tasks import take_error
from ..stores import Message
from .bell import ring, silence
from .doorbell import Begun, Doorbell

HIDDEN_SECONDS = 20
"""For how long workers do not see a message: longer than a writer needs, unless it has to repeat requests."""

_MOST_CHANGES = 100
_MOST_CHARACTERS = 6000  # of keys: a character is six bytes of JSON at most, and a message has 48 KiB


class SharedMessage:
    """
    A message about changes that were begun.

    Args:
        db: Where the changes are made.
        kinds: The kinds of the entities of each change.

    Attributes:
        message: The message, when it was put.
    """

    def __init__(self, db: Connection, kinds: Sequence[str]) -> None:
        self._db, self._kinds = db, tuple(kinds)
        self._changes: list[Begun] = []
        self._characters = self._done = 0
        self.message: Message | None = None
        self.sending: asyncio.Task[None] | None = None

    def has_room(self, change: Begun) -> bool:
        """Return whether a change fits into the message."""
        return len(self._changes) < _MOST_CHANGES and self._characters + change.characters <= _MOST_CHARACTERS

    def add(self, change: Begun) -> None:
        """Add a change."""
        self._changes.append(change)
        self._characters += change.characters

    async def put(self) -> None:
        """Ring. Raises what `ring` raises."""
        doorbell = Doorbell(changes=tuple(self._changes), kinds=self._kinds)
        self.message = await ring(self._db, doorbell, delay_seconds=HIDDEN_SECONDS)

    async def release(self) -> None:
        """Say that one of the changes leaves nothing to do; delete the message when none does."""
        self._done += 1
        if self._done == len(self._changes) and self.message is not None:
            await silence(self._db, self.message)


class SharedBell:
    """
    Rings for the transactions of a bulk.

    Args:
        db: Where the transactions are sent.
    """

    def __init__(self, db: Connection) -> None:
        self._db = db
        self._turn = asyncio.Lock()
        self._gathering: dict[frozenset[str], SharedMessage] = {}

    async def ring(self, change: Begun, kinds: Sequence[str]) -> SharedMessage:
        """Ring for a change, with others of the same kinds that are begun now. Raises what `ring` raises."""
        group = frozenset(kinds)
        shared = self._gathering.get(group)
        if shared is None or not shared.has_room(change):
            shared = self._gathering[group] = SharedMessage(self._db, kinds)
            shared.sending = asyncio.create_task(self._put(shared, group))
            shared.sending.add_done_callback(take_error)
        shared.add(change)
        assert shared.sending is not None
        await asyncio.shield(shared.sending)
        return shared

    async def _put(self, shared: SharedMessage, group: frozenset[str]) -> None:
        async with self._turn:
            if self._gathering.get(group) is shared:
                del self._gathering[group]
            await shared.put()
