"""
Fairness: shares the turns of queries, and slots for work that needs memory, among callers, so that a caller who sends
many requests does not make the requests of others wait for long. `group_commit` shares the turns of writers.

A caller is whoever a program works for. The program names it in `CALLER`, in the task of each request: the server does
so by token, account and address. What runs without a name, as all calls of a program in process, is of one caller.
"""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from contextvars import ContextVar

__all__ = ["CALLER", "REQUEST_BYTES", "FairSlots", "FairTurns"]

CALLER: ContextVar[str] = ContextVar("CALLER", default="")
"""On whose behalf this task works. The text is compared, and never shown."""


# Bytes that all requests of a caller may work on in one turn of the event loop: about a millisecond. Whoever uses these
# up is the last one in that turn.
_TURN_BYTES = 256 * 1024

REQUEST_BYTES = 16 * 1024
"""What a request of a server costs besides the bytes of its bodies: to copy so many takes no longer."""


class FairTurns:
    """
    The turns of callers at the event loop: at each turn of the loop, one of a caller's queries goes on for a slice.

    So the share of a caller does not grow with the number of its queries, which take turns among themselves.
    """

    def __init__(self) -> None:
        # Those that wait, for each caller that has a turn.
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        # What callers have worked on in this turn of the loop.
        self._bytes: dict[str, int] = {}

    async def work(self, caller: str, size: int = 0) -> None:
        """
        Wait for the next turn of the loop, after others of this caller, if it has worked on many bytes in this one.

        Args:
            caller: The caller.
            size: The bytes to work on now. What is known only when it is done is counted by `count`.
        """
        if caller in self._waiting:
            await self.wait(caller)
            self.end(caller)
        if size:
            self.count(caller, size)

    def count(self, caller: str, size: int) -> None:
        """Count bytes that were worked on in this turn of the loop."""
        if not self._bytes:
            asyncio.get_running_loop().call_soon(self._bytes.clear)
        self._bytes[caller] = size = self._bytes.get(caller, 0) + size
        if size >= _TURN_BYTES and self.begin(caller):
            asyncio.get_running_loop().call_soon(self.end, caller)

    def is_over(self, caller: str) -> bool:
        """Return whether a caller has no turn now, as it has worked on many bytes or others of it wait."""
        return caller in self._waiting

    def begin(self, caller: str) -> bool:
        """Take the caller's turn, unless another query of it has that."""
        if caller in self._waiting:
            return False
        self._waiting[caller] = deque()
        return True

    async def wait(self, caller: str) -> None:
        """Wait for the caller's turn, which another query of it has."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[caller].append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():
                self.end(caller)  # the turn came at the same moment
            raise

    def end(self, caller: str) -> None:
        """Give the turn to the query of this caller that has waited for longest."""
        waiting = self._waiting[caller]
        while waiting:
            turn = waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        del self._waiting[caller]


class FairSlots:
    """
    A number of slots, each for one piece of work that holds much memory, shared fairly among callers.

    A caller gets a slot at once if more are free than it holds. So one caller holds half of them at most, the next one
    half of the rest, and somebody new nearly always finds one. A slot that becomes free goes to whoever holds fewest of
    those that wait.

    Attributes:
        free: How many slots nobody holds.
    """

    def __init__(self, count: int) -> None:
        self.free = count
        self._held = Counter[str]()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    def held(self, caller: str) -> int:
        """Return how many slots a caller holds."""
        return self._held[caller]

    @property
    def waiting(self) -> int:
        """How many pieces of work wait for a slot."""
        return sum(map(len, self._waiting.values()))

    @asynccontextmanager
    async def hold(self, caller: str) -> AsyncGenerator[None, None]:
        """Hold a slot for a caller, after waiting for it if need be."""
        if self.free > self._held[caller]:  # it has none waiting then, see `_give_back`
            self._take(caller)
        else:
            await self._wait(caller)
        try:
            yield
        finally:
            self._give_back(caller)

    async def _wait(self, caller: str) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(caller, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._forget(caller, turn)
            else:
                self._give_back(caller)  # the slot came at the same moment
            raise

    def _take(self, caller: str) -> None:
        self.free -= 1
        self._held[caller] += 1

    def _give_back(self, caller: str) -> None:
        self.free += 1
        self._held[caller] -= 1
        if not self._held[caller]:
            del self._held[caller]
        while self._waiting:
            following = min(self._waiting, key=self._held.__getitem__)
            if self.free <= self._held[following]:
                break
            turn = self._waiting[following][0]
            self._forget(following, turn)
            if not turn.done():
                self._take(following)
                turn.set_result(None)

    def _forget(self, caller: str, turn: "asyncio.Future[None]") -> None:
        """Let a piece of work wait no longer. Its caller comes after the others that hold as many slots."""
        turns = self._waiting.pop(caller, None)
        if turns is None:
            return
        if turn in turns:
            turns.remove(turn)
        if turns:
            self._waiting[caller] = turns
