"""
Makes workers: what is done for each type of message, by the models that a worker is for.
"""

from collections.abc import Sequence

from ..connection.connection import Connection
from ..errors import ModelError, shown
from ..models.entity import Entity, schema_of
from ..models.schema import Schema, concrete
from ..outbox.settle import DOORBELL, handle_doorbells
from ..outbox.worker import Worker
from ..protocol.limits import MAX_VISIBILITY_SECONDS
from ..writes.deferred import carry_out

__all__ = ["make_worker"]


def make_worker(
    db: Connection, models: Sequence[type[Entity]], *, concurrency: int, visibility: int, tries: int
) -> Worker:
    """Return a worker of some models. It takes and raises what `Database.worker` does."""
    db.boundary.check_whole_table("worker(...)")
    for name, given, most in (
        ("concurrency", concurrency, 1000),
        ("visibility", visibility, MAX_VISIBILITY_SECONDS),
        ("tries", tries, 1000),
    ):
        if type(given) is not int or not 1 <= given <= most:
            raise ModelError(f"worker({name}={shown(given)}) is refused: give a whole number from 1 to {most}")
    schemas = _kinds_of(models)
    return Worker(
        db,
        {DOORBELL: handle_doorbells(db, schemas, lambda table, decision: carry_out(db, table, schemas, decision))},
        concurrency=concurrency,
        visibility_seconds=visibility,
        most_tries=tries,
    )


def _kinds_of(models: Sequence[type[Entity]]) -> dict[str, Schema]:
    """Return the schemas by kind, as it is stored by the versions up to the declared one."""
    if not models:
        raise ModelError("worker() is refused: name the models whose changes it works on, as in worker(Employee)")
    found: dict[str, Schema] = {}
    for schema in dict.fromkeys(each for model in models for each in concrete(schema_of(model))):
        if schema.kind is None:
            raise ModelError(
                f"worker({schema.name}) is refused: the model has kind=None, so that no message can name it; give it a "
                "kind, or leave it out"
            )
        other = found.get(schema.kind)
        if other is not None:
            raise ModelError(
                f"worker(...) is refused: {other.name} and {schema.name} have one kind, {schema.kind!r}; give each a "
                "worker of its own"
            )
        found[schema.kind] = schema
        found |= {f"{schema.kind}:{version}": schema for version in range(2, schema.version + 1)}
    return found
