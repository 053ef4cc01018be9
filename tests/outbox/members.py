"""
A model with a value that is unique across partitions, and what must be true of its rows.
"""

from typing import Any

import msgspec

from tableorm import Entity, Index, Mapped, field
from tableorm.stores import Operation, Row, TableStore
from tableorm.testing.contract.base import everything
from tests.faults import FaultyStore


class Member(Entity, table="Guild", partition_key="{town}", row_key="member_{id:03d}"):
    town: Mapped[str]
    id: Mapped[int]
    email: Mapped[str | None] = field(default=None)
    note: Mapped[str] = field(default="")

    by_email = Index(
        table="GuildEmails", partition_key="email_{email}", row_key="taken", unique=True, consistency="eventual"
    )


async def members_of(store: TableStore) -> list[Row]:
    """Return the rows of all members."""
    return [row for row in await everything(store, "Guild") if row.get("EntityType") == "Member"]


async def reservations_of(store: TableStore) -> dict[str, Row]:
    """Return the rows that reserve e-mail addresses, by address."""
    rows = await everything(store, "GuildEmails")
    return {row["PartitionKey"].removeprefix("email_"): row for row in rows}


async def wrong_reservations(store: TableStore) -> list[str]:
    """Return which members have an address that is not reserved for them by the claim that they have."""
    stored, problems = await reservations_of(store), list[str]()
    for member in await members_of(store):
        if "email" in member:
            _, _, _, token = msgspec.json.decode(member["_ix"])["by_email"]["un"]
            wanted = {"_of": _json(["Guild", member["PartitionKey"], member["RowKey"]]), "_v": token}
            found = {name: value for name, value in stored.get(member["email"], {}).items() if name in wanted}
            if found != wanted:
                problems.append(f"{member['email']} is reserved by {found} instead of {wanted}")
    return problems


async def extra_reservations(store: TableStore) -> set[str]:
    """Return which addresses are reserved and nobody has them."""
    return set(await reservations_of(store)) - {member.get("email") for member in await members_of(store)}


class Watched(FaultyStore):
    """A store that looks after each write that no two members have one address."""

    async def _arrive(self, table: str, operations: tuple[Operation, ...], *, transaction: bool) -> list[str | None]:
        etags = await super()._arrive(table, operations, transaction=transaction)
        held = [member["email"] for member in await members_of(self.store) if "email" in member]
        assert len(held) == len(set(held)), f"an address is held twice: {held}"
        return etags


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
