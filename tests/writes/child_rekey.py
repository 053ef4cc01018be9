"""
What the test of killed processes of a re-key runs: each is forked, and kills itself after one of its requests.

    python child_rekey.py FOLDER COUNT    prints a line of JSON for each run: what died, and what is there then

What a process has left is met by another one, which finishes everything. With a COUNT so many runs are chosen by
chance; without, which is 0, all are tried.
"""

import asyncio
import json
import os
import random
import signal
import sys
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from tableorm import Database, Entity, Index, Mapped, MovedFrom, connect, field
from tableorm.rekey.phases import RekeyPhase
from tests.rekeys import finalize, kinds_of, move, roll_back, set_phase

NAMES = ("move", "modify", "delete", "insert", "back", "finalize")
MOST = 15
"""More requests than each of them sends."""


class Old(Entity, table="RekeyKilled", partition_key="{a}", row_key="old_{b}"):
    a: Mapped[str]
    b: Mapped[int]
    text: Mapped[str] = field(default="")

    by_text = Index(row_key="text_{text}_{b}")


class New(Entity, table="RekeyKilled", partition_key="new_{b}", row_key="new_{a}", moved_from=MovedFrom(Old)):
    a: Mapped[str]
    b: Mapped[int]
    text: Mapped[str] = field(default="")

    by_text = Index(row_key="text_{text}_{a}")


def change(entity: New) -> None:
    entity.text = "new"


async def act(db: Database, name: str) -> None:
    """Do what may be killed."""
    if name == "move":
        await move(db, New)
    elif name == "modify":
        await db.modify(New, change, a="a", b=1)
    elif name == "delete":
        await db.delete(New, a="a", b=1, if_match="*")
    elif name == "insert":
        await db.insert(New(a="a", b=3, text="new"))
    elif name == "back":
        await roll_back(db, New)
    else:
        await finalize(db, New)


async def prepare(db: Database, name: str) -> None:
    """Entities 1 and 2 have their older keys; for the end and the way back their newer ones."""
    await db.create_tables(Old, New)
    for number in (1, 2):
        await db.insert(Old(a="a", b=number, text="t"))
    if name in ("back", "finalize"):
        set_phase(db, New, RekeyPhase.MOVE)
        await move(db, New)
        await db.modify(New, change, a="a", b=2)


async def run(url: str, name: str, last: int) -> None:
    """Die after so many requests."""
    sent = 0

    def count(_: object) -> None:
        nonlocal sent
        sent += 1
        if sent == last:
            os.kill(os.getpid(), signal.SIGKILL)

    async with connect(url, on_request=count) as db:
        set_phase(db, New, {"back": RekeyPhase.BACK, "finalize": RekeyPhase.SEALED}.get(name, RekeyPhase.MOVE))
        await act(db, name)


async def finish(url: str, name: str) -> dict[str, Any]:
    """Finish what was begun, and return what is there."""
    model: type[Entity] = Old if name == "back" else New
    async with connect(url) as db:
        for _ in range(2):
            if name == "back":
                set_phase(db, New, RekeyPhase.BACK)
                await roll_back(db, New)
            else:
                set_phase(db, New, RekeyPhase.MOVE)
                await move(db, New)
        set_phase(db, New, RekeyPhase.SEALED)
        if name != "back":
            await finalize(db, New)
        found: list[Any] = await db.select(model).allow_scan().all()
        return {
            "texts": {str(each.b): each.text for each in found},
            "kinds": sorted({kind.partition(" ")[2] for kind in await kinds_of(db, New)}),
        }


def main(folder: str, count: int) -> None:
    deaths = [(name, last) for name in NAMES for last in range(1, MOST)]
    for name, last in random.Random(5).sample(deaths, count) if count else deaths:
        url = f"local:{folder}/{name}{last}.tables"
        fork(partial(begin, url, name))
        fork(partial(run, url, name, last))
        print(json.dumps([name, last, asyncio.run(finish(url, name))]), flush=True)  # noqa: T201


async def begin(url: str, name: str) -> None:
    async with connect(url) as db:
        await prepare(db, name)


def fork(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run something in another process, which may kill itself."""
    process = os.fork()
    if process == 0:
        try:
            asyncio.run(work())
        except BaseException:  # noqa: BLE001 - nothing of the parent's is to go on here
            os._exit(1)
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    assert code in (0, -signal.SIGKILL), code


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
