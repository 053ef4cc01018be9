"""
What the tests of queues and blobs run in other processes; each acknowledgement is one line on standard output.
"""

import asyncio
import random
import sys
import time

from tableorm.stores import Message
from tableorm_local.engine import Engine

QUEUE = "shared"
CONTAINER = "shared"
RECORD = 1000


def say(*words: object) -> None:
    print(*words, flush=True)  # noqa: T201


def version(number: int) -> bytes:
    """The bytes of a version of the blob that is written again and again: of many sizes, each of one value."""
    return bytes([number % 256]) * (1 + (number * 977_777) % 3_000_000)


async def take_turns(path: str, seed: str, count: str) -> None:
    """Take messages until so many were deleted, hold each for a moment, then delete it or give it back."""
    engine = Engine(path)
    await engine.open()
    queues, chance = engine.queues, random.Random(int(seed))
    say("ready")
    sys.stdin.readline()

    async def hold(message: Message, begin: int) -> None:
        await asyncio.sleep(chance.random() * 0.003)
        # What is said is how long the message was certainly ours: the clock is the same for all processes.
        end = time.monotonic_ns()
        if chance.random() < 0.5:
            await queues.delete(QUEUE, message)
            say("deleted", message.id, begin, end)
        else:
            await queues.renew(QUEUE, message, 0)
            say("returned", message.id, begin, end)

    while await queues.length(QUEUE) > int(count):
        messages = await queues.take(QUEUE, 3, visibility_seconds=600)
        begin = time.monotonic_ns()
        await asyncio.gather(*(hold(message, begin) for message in messages))
    await engine.close()


async def blobs_for_ever(path: str, run: str) -> None:
    """Put new blobs, replace one, and append to another, until killed."""
    engine = Engine(path)
    await engine.open()
    blobs = engine.blobs

    async def put() -> None:
        for number in range(1_000_000):
            name = f"{run}-{number}"
            info = await blobs.put(CONTAINER, name, version(number))
            say("put", name, number, info.etag)

    async def replace() -> None:
        for number in range(1_000_000):
            await blobs.put(CONTAINER, f"same-{run}", version(number))
            say("replaced", number)

    async def append() -> None:
        for number in range(49_000):
            await blobs.append(CONTAINER, f"log-{run}", bytes([number % 256]) * RECORD, if_position=number * RECORD)
            say("appended", number)

    await asyncio.gather(put(), replace(), append())


if __name__ == "__main__":
    name, *arguments = sys.argv[1:]
    asyncio.run(globals()[name](*arguments))
