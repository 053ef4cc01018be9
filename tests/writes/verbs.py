"""
Writes by the name of a verb: alone, in a transaction and in a bulk.
"""

from typing import Any

from tableorm import Database


async def write(db: Database, verb: str, subject: Any, **arguments: Any) -> None:
    """
    Write an entity or bag.

    Args:
        db: The database.
        verb: A verb that takes an entity, such as "save"; "upsert over" for an upsert that replaces, and "save in a
            transaction" or "save in a bulk" for a write that is the only one of these.
        subject: The entity, bag or key.
        arguments: Further ones of the verb.
    """
    verb, _, place = verb.partition(" in a ")
    if verb == "upsert over":
        verb, arguments = "upsert", {**arguments, "mode": "replace"}
    if place == "transaction":
        async with db.transaction() as tx:
            getattr(tx, verb)(subject, **arguments)
    elif place == "bulk":
        async with db.bulk() as bulk:
            await getattr(bulk, verb)(subject, **arguments)
    else:
        await getattr(db, verb)(subject, **arguments)
