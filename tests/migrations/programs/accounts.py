"""
Accounts whose old version counts euros and whose new one counts cents, and programs of both versions that write them
while they are rewritten.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Callable

from tableorm import Database, DecodeError, Entity, EntityNotFound, Key, Mapped, PropertyBag, field, upgrade
from tableorm.testing.contract.base import everything

TABLE = "RunAccounts"
BRANCHES = 10

Visits = dict[int, int]
"""What was confirmed of each account: how often it was visited, or `CLOSED`."""

CLOSED = -1


class AnyAccount(Entity, abstract=True, table=TABLE, partition_key="branch_{branch:02d}", row_key="account_{id:06d}"):
    branch: Mapped[int]
    id: Mapped[int]
    visits: Mapped[int] = field(default=0)


class AccountOfOld(AnyAccount, kind="Account"):
    euros: Mapped[int]


class Account(AnyAccount, version=2):
    cents: Mapped[int]
    upgrades: Mapped[int] = field(default=0)


@upgrade(Account, from_version=1)
def count_cents(bag: PropertyBag) -> PropertyBag:
    bag["cents"] = int(str(bag.pop("euros"))) * 100
    bag["upgrades"] = int(str(bag.get("upgrades", 0))) + 1
    return bag


def branch_of(number: int) -> int:
    """Return the branch of an account; branches are far apart, so that each is in a range of its own."""
    return number % BRANCHES * 10 + 5


async def open_accounts(db: Database, count: int) -> None:
    """Make the table, with accounts of the old version."""
    await db.create_tables(AccountOfOld)
    async with db.bulk(errors="report") as bulk:
        for first in range(BRANCHES):
            for number in range(first, count, BRANCHES):
                await bulk.insert(AccountOfOld(branch=branch_of(number), id=number, euros=number))
    assert bulk.report.failures == 0


def _one_more(account: Account | AccountOfOld) -> None:
    account.visits += 1


async def change_of_old(db: Database, numbers: range, chance: random.Random, over: Callable[[], bool]) -> Visits:
    """Visit accounts as an old program does, which cannot read those of the new version."""
    visits = Counter[int]()
    while not over():
        number = chance.choice(numbers)
        try:
            await db.modify(AccountOfOld.key(branch=branch_of(number), id=number), _one_more, attempts=100)
        except (DecodeError, EntityNotFound):
            pass
        else:
            visits[number] += 1
        await asyncio.sleep(0.001)
    return visits


async def visit(db: Database, numbers: range, chance: random.Random, over: Callable[[], bool]) -> Visits:
    """Visit accounts as a new program does, and close some."""
    visits = Counter[int]()
    while not over():
        number = chance.choice(numbers)
        key: Key[Account] = Account.key(branch=branch_of(number), id=number)
        if number % 10 == 0 and chance.random() < 0.1:
            await db.delete(key, if_match="*", missing_ok=True)
            visits[number] = CLOSED
        elif visits[number] != CLOSED:
            await db.modify(key, _one_more, attempts=100)
            visits[number] += 1
        await asyncio.sleep(0.001)
    return visits


async def find_problems(db: Database, count: int, writers: list[Visits]) -> list[str]:
    """
    Return what is wrong with the accounts after the rewrite.

    Args:
        db: The database.
        count: How many accounts there were.
        writers: What each writer has confirmed.
    """
    total = Counter[int]()
    closed: set[int] = set()
    for visits in writers:
        for number, times in visits.items():
            total[number] += max(times, 0)
            closed |= {number} if times == CLOSED else set()
    problems: list[str] = []
    seen = 0
    for row in await everything(db.store, TABLE):
        number = int(row["RowKey"].removeprefix("account_"))
        seen += 1
        wanted = {"EntityType": "Account:2", "cents": number * 100, "visits": total[number], "upgrades": 1}
        found = {name: int(row[name]) if name != "EntityType" else row[name] for name in wanted if name in row}
        if found != wanted or number in closed or "euros" in row:
            problems.append(f"account {number}: {found}, and it should be {'closed' if number in closed else wanted}")
    if seen != count - len(closed):
        problems.append(f"{seen} rows, and {count - len(closed)} should be there")
    return problems
