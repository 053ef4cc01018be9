"""
What the test of several processes runs in each: adds one to a shared counter many times, by `modify`.
"""

import asyncio
import sys

from tableorm import Entity, Mapped, connect, field


class Counter(Entity, table="Counters", partition_key="c", row_key="{name}", write_token=True):
    name: Mapped[str]
    count: Mapped[int] = field(default=0)


def one_more(counter: Counter) -> None:
    counter.count += 1


async def main(path: str, tasks: int, times: int) -> None:
    async with connect(f"local:{path}") as db:
        print("ready", flush=True)  # noqa: T201
        sys.stdin.readline()

        async def work() -> None:
            for _ in range(times):
                await db.modify(Counter, one_more, name="shared", attempts=1_000)
                print("added", flush=True)  # noqa: T201

        await asyncio.gather(*(work() for _ in range(tasks)))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
