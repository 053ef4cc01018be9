"""
What the test of killed processes runs: processes that move an entity, or work as a worker, and kill themselves.
"""

import asyncio
import os
import random
import signal
import sys

from tableorm import Count, Entity, EntityNotFound, Index, Mapped, ObservedRequest, TableOrmError, connect, field
from tableorm.writes import move_entity

WRITES = frozenset({"insert", "replace", "delete", "transaction", "put-message", "delete-message"})


class Dept(Entity, table="Killed", partition_key="{dep}", row_key="dept"):
    dep: Mapped[str]
    size: Mapped[int] = field(default=0, maintained=True)


class Person(Entity, table="Killed", partition_key="{dep}", row_key="person"):
    dep: Mapped[str]
    text: Mapped[str] = field(default="")

    by_text = Index(row_key="text_{text}", unique=True)
    counted = Count(lambda: Dept.size, dep="{dep}")


async def act(url: str, *, moves: bool, to: str, writes: int) -> None:
    """Move the entity, or work as a worker; die after so many writes."""
    done = 0

    def die(request: ObservedRequest) -> None:
        nonlocal done
        done += request.operation in WRITES
        if done == writes:
            os.kill(os.getpid(), signal.SIGKILL)

    async with connect(url, on_request=die) as db:
        if not moves:
            async with db.worker(Person, visibility=1) as worker:
                await asyncio.wait_for(worker.drain(), 0.2)
            return
        for dep in "abc":
            try:
                person = await db.get(Person, dep=dep)
                if dep != to:
                    await db.move(person, dep=to)
            except EntityNotFound:
                continue


def main(url: str, rounds: int) -> None:
    move_entity._HIDDEN_SECONDS = 0  # pyright: ignore[reportPrivateUsage]
    chance = random.Random(7)
    for _ in range(rounds):
        moves, to, writes = chance.random() < 0.6, chance.choice("abc"), chance.randint(1, 9)
        process = os.fork()
        if not process:
            try:
                asyncio.run(act(url, moves=moves, to=to, writes=writes))
            except (TableOrmError, TimeoutError):
                pass
            finally:
                os._exit(0)
        _, status = os.waitpid(process, 0)
        print("killed" if os.WIFSIGNALED(status) else "ended", flush=True)  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
