"""
A model with eventual indexes in its own table and in another one, and what must be true of its rows in the end.
"""

import json
from collections.abc import Mapping

from tableorm import Database, Entity, Index, Mapped, field
from tableorm.connection.connection import connection_of
from tableorm.models.entity import schema_of
from tableorm.outbox.bell import OUTBOX, outbox_queues
from tableorm.outbox.settle import handle_doorbells
from tableorm.protocol.codes import Fault
from tableorm.stores import Row, TableStore
from tableorm.testing.contract.base import everything
from tableorm.writes.deferred import carry_out

__all__ = ["Person", "committed_decisions", "entries_of", "extra_entries", "people_of", "recover", "wrong_entries"]


class Person(Entity, table="Crew", partition_key="{team}", row_key="person_{id:03d}"):
    team: Mapped[str]
    id: Mapped[int]
    name: Mapped[str] = field(default="")
    city: Mapped[str | None] = field(default=None)

    by_city = Index(partition_key="city_{city}", row_key="at_{team}_{id:03d}", table="Cities", consistency="eventual")
    by_name = Index(
        partition_key="name_{name}",
        row_key="of_{team}_{id:03d}",
        include="keys",
        consistency="eventual",
        where=lambda person: person.name != "",
    )


async def recover(db: Database, model: type[Entity] = Person) -> None:
    """Do what a worker does for all messages of a model that it can see."""
    connection, schema = connection_of(db), schema_of(model)
    queues, schemas = outbox_queues(connection), {str(schema.kind): schema}
    tables = {str(schema.kind): (schema.table_name(),)}
    handler = handle_doorbells(connection, tables, lambda table, each: carry_out(connection, table, schemas, each))
    while True:
        try:
            messages = await queues.take(OUTBOX, 32, 1)
        except Fault:
            return  # nobody has rung
        if not messages:
            return
        for message in messages:
            await handler.work(message.body)
            await queues.delete(OUTBOX, message)


Entries = dict[tuple[str, str, str], Row]


async def entries_of(store: TableStore) -> Entries:
    """Return all entries by table and keys."""
    return {
        (table, row["PartitionKey"], row["RowKey"]): row
        for table in ("Crew", "Cities")
        for row in await everything(store, table)
        if "#by_" in row.get("EntityType", "")
    }


async def people_of(store: TableStore) -> list[Row]:
    return [row for row in await everything(store, "Crew") if row.get("EntityType") == "Person"]


async def committed_decisions(store: TableStore, table: str = "Crew") -> list[str]:
    return [row["RowKey"] for row in await everything(store, table) if row.get("State") == "committed"]


def _wanted(person: Row) -> Mapping[tuple[str, str, str], Row]:
    keys = f"{person['PartitionKey']}_{person['RowKey'].removeprefix('person_')}"
    found: Entries = {}
    if "city" in person:
        content = {"name": person["name"], "city": person["city"]}
        found["Cities", f"city_{person['city']}", f"at_{keys}"] = {"EntityType": "Person#by_city", **content}
    if person["name"]:
        found["Crew", f"name_{person['name']}", f"of_{keys}"] = {"EntityType": "Person#by_name"}
    owner = json.dumps(["Crew", person["PartitionKey"], person["RowKey"]], separators=(",", ":"))
    return {place: {**row, "_of": owner} for place, row in found.items()}


async def wrong_entries(store: TableStore) -> list[str]:
    """Return which entries are missing, or have other contents than their entity says."""
    stored, problems = await entries_of(store), list[str]()
    for person in await people_of(store):
        for place, wanted in _wanted(person).items():
            row = stored.get(place)
            if row is None:
                problems.append(f"no entry at {place}")
            elif {n: v for n, v in row.items() if n in ("EntityType", "name", "city", "_of")} != wanted:
                problems.append(f"at {place} is {row} instead of {wanted}")
    return problems


async def extra_entries(store: TableStore) -> set[tuple[str, str, str]]:
    """Return where entries are that belong to no entity."""
    stored = await entries_of(store)
    return stored.keys() - {place for person in await people_of(store) for place in _wanted(person)}
