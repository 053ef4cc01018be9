"""
Doorbells that are shared by several transactions: a bulk rings once for those that begin at about the same time.

While a message is on its way, further transactions gather for the next one; so nobody waits for company. A message is
deleted when all of its transactions are done.
"""

import asyncio
from collections.abc import Iterable

from ..connection.connection import Connection
from ..stores import Message
from .bell import ring, silence
from .doorbell import Begun, Doorbell

__all__ = ["HIDDEN_SECONDS", "SharedBell", "SharedMessage"]

HIDDEN_SECONDS = 20
"""For how long workers do not see a message: longer than a writer needs, unless it has to repeat requests."""

_MOST_CHANGES = 100
_MOST_CHARACTERS = 6000  # of keys: a character is six bytes of JSON at most, and a message has 48 KiB


class SharedMessage:
    """
    A message about changes that were begun.

    Args:
        db: Where the changes are made.

    Attributes:
        message: The message, when it was put.
    """

    def __init__(self, db: Connection) -> None:
        self._db = db
        self._changes: list[Begun] = []
        self._kinds: dict[str, None] = {}
        self._characters = self._done = 0
        self.message: Message | None = None
        self.sending: asyncio.Task[None] | None = None

    def has_room(self, change: Begun) -> bool:
        """Return whether a change fits into the message."""
        return len(self._changes) < _MOST_CHANGES and self._characters + change.characters <= _MOST_CHARACTERS

    def add(self, change: Begun, kinds: Iterable[str]) -> None:
        """Add a change, which is about entities of some kinds."""
        self._changes.append(change)
        self._kinds |= dict.fromkeys(kinds)
        self._characters += change.characters

    async def put(self) -> None:
        """Ring. Raises what `ring` raises."""
        doorbell = Doorbell(changes=tuple(self._changes), kinds=tuple(self._kinds))
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
        self._gathering: SharedMessage | None = None

    async def ring(self, change: Begun, kinds: Iterable[str]) -> SharedMessage:
        """Ring for a change, with others that are begun now. Raises what `ring` raises."""
        shared = self._gathering
        if shared is None or not shared.has_room(change):
            shared = self._gathering = SharedMessage(self._db)
            shared.sending = asyncio.create_task(self._put(shared))
        shared.add(change, kinds)
        assert shared.sending is not None
        await asyncio.shield(shared.sending)
        return shared

    async def _put(self, shared: SharedMessage) -> None:
        async with self._turn:
            if self._gathering is shared:
                self._gathering = None
            await shared.put()
