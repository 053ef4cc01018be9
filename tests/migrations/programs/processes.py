"""
Processes that are forked, which is quick, and that die or stand still after one of their requests.
"""

import asyncio
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Coroutine
from typing import Any

from tableorm import ObservedRequest

NEVER = 0


class Deadly:
    """
    Counts the requests of a database, and kills this process after one of them, or lets it stand still there.

    Args:
        fatal: The number of the request that kills it, from 1; `NEVER` for none. Below 0, the process stands still
            after the request of that number without the sign.
        pause: For how many seconds it stands still.
    """

    def __init__(self, fatal: int = NEVER, pause: float = 0.0) -> None:
        self.fatal, self.pause = fatal, pause
        self.count = 0

    def __call__(self, request: ObservedRequest) -> None:
        self.count += 1
        if self.count == self.fatal:
            os.kill(os.getpid(), signal.SIGKILL)
        if self.count == -self.fatal:
            time.sleep(self.pause)


class Forked:
    """
    A process that was forked.

    Args:
        process: Its id.
        reading: What it returns can be read here, as JSON.
    """

    def __init__(self, process: int, reading: int) -> None:
        self._process, self._reading = process, reading

    def result(self) -> Any:
        """Wait for its end, and return what it has returned; None if it was killed."""
        with os.fdopen(self._reading) as pipe:
            said = pipe.read()
        code = os.waitstatus_to_exitcode(os.waitpid(self._process, 0)[1])
        assert code in (0, -signal.SIGKILL), code
        return json.loads(said) if said else None


def fork(work: Callable[[], Coroutine[Any, Any, Any]]) -> Forked:
    """Run something in a process of its own, with an event loop of its own."""
    reading, writing = os.pipe()
    sys.stdout.flush()
    process = os.fork()
    if process == 0:
        os.close(reading)
        try:
            said = json.dumps(asyncio.run(work())).encode()
            with os.fdopen(writing, "wb") as pipe:
                pipe.write(said)
        except BaseException:  # noqa: BLE001 - nothing of the parent's is to go on here
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    os.close(writing)
    return Forked(process, reading)
