"""
Makes workers: what is done for each type of message, by the models that a worker is for.
"""

import logging
from collections.abc import Iterable, Sequence
from typing import Any, cast

from ..connection.connection import Connection
from ..errors import ModelError, shown
from ..models.entity import Entity, concrete_schemas, schema_of
from ..models.periods import require_plain_tables
from ..models.schema import Schema
from ..outbox.decision import Decision
from ..outbox.doorbell import MOVE_COMMAND, MOVE_WORK
from ..outbox.settle import DOORBELL, handle_doorbells
from ..outbox.uploads import UPLOAD, handle_uploads
from ..outbox.worker import Patience, Worker
from ..outbox.workflow import Workflow, run_workflows, schema_of_workflow
from ..protocol.limits import MAX_VISIBILITY_SECONDS
from ..relations.cascade import carry_out_cascades, cascade_kind
from ..relations.declarations import cascades_elsewhere
from ..writes.archive import carry_out_archives
from ..writes.archive_copy import Archive, BlobArchive, DatabaseArchive, kind_of
from ..writes.deferred import carry_out, schemas_by_kind
from ..writes.move_entity import carry_out_moves, handle_moves

_LOG = logging.getLogger("tableorm.worker")


def make_worker(
    db: Connection,
    targets: Sequence[type[Entity | Workflow[Any]] | Archive[Any]],
    *,
    concurrency: int,
    visibility: int,
    tries: int,
) -> Worker:
    """Return a worker of some models, workflows and archives. It takes and raises what `Database.worker` does."""
    db.boundary.check_whole_table("worker(...)")
    for name, given, most in (
        ("concurrency", concurrency, 1000),
        ("visibility", visibility, MAX_VISIBILITY_SECONDS),
        ("tries", tries, 1000),
    ):
        if type(given) is not int or not 1 <= given <= most:
            raise ModelError(f"worker({name}={shown(given)}) is rejected: give a whole number from 1 to {most}")
    if not targets:
        raise ModelError("worker() is rejected: name the models whose changes it works on, as in worker(Employee)")
    classes: dict[str, type[Workflow[Any]]] = {}
    archives: dict[str, Archive[Any]] = {}
    models: list[type[Entity]] = []
    for each in targets:
        if isinstance(each, (BlobArchive, DatabaseArchive)):
            if archives.setdefault(kind_of(each), each) is not each:
                raise ModelError(f"worker(...) is rejected: two archives have one name, {each.name!r}; rename one")
            if isinstance(each, BlobArchive):
                _ = db.blobs  # which it needs
        elif Workflow in getattr(each, "__mro__", ()):
            each = cast("type[Workflow[Any]]", each)
            classes[schema_of_workflow(each).kind] = each
        else:
            models.append(cast("type[Entity]", each))
    schemas = _kinds_of(models)
    require_plain_tables("worker", [*schemas.values(), *(schema_of(each.model) for each in archives.values())])
    cascades = {cascade_kind(schema): schema for schema in schemas.values() if cascades_elsewhere(schema)}
    _log_work(schemas.values(), [*classes, *archives, *cascades])

    async def carry_out_all(table: str, decision: Decision) -> Decision | None:
        found = await carry_out(db, table, schemas, decision, workflows=True)
        if found is None:
            return None
        await carry_out_moves(db, schemas, found)
        left = await run_workflows(db, table, classes, found)
        left = None if left is None else await carry_out_archives(db, table, archives, left)
        return None if left is None else await carry_out_cascades(db, table, cascades, left)

    tables = {kind: frozenset({schema.table_name()}) for kind, schema in schemas.items()}
    tables |= {kind: cls.__workflow__.tables for kind, cls in classes.items()}
    tables |= {kind: frozenset({schema_of(each.model).table_name()}) for kind, each in archives.items()}
    tables |= {kind: frozenset({schema.table_name()}) for kind, schema in cascades.items()}
    tables[MOVE_WORK] = frozenset(schema.table_name() for schema in schemas.values())
    usual = Patience(tries)
    patience = {kind: cls.__workflow__.patience_of(usual) for kind, cls in classes.items()}
    doorbells = handle_doorbells(db, tables, carry_out_all, patience)
    return Worker(
        db,
        {DOORBELL: doorbells, MOVE_COMMAND: handle_moves(db, schemas), UPLOAD: handle_uploads(db, tables)},
        concurrency=concurrency,
        visibility_seconds=visibility,
        patience=usual,
    )


def _log_work(schemas: Iterable[Schema], others: Sequence[str]) -> None:
    """Say what a worker is for, since one that has nothing to do looks like one that waits."""
    models = list(schemas)
    work = [each.label for schema in models for each in schema.derived.values() if each.deferred]
    work += [*others, *(f"moves of {schema.name}" for schema in models if schema.tracked)]
    if work:
        _LOG.info("the worker carries out: %s", ", ".join(work))
    else:
        _LOG.warning(
            "the worker has nothing to do for %s: no declaration with consistency='eventual', no moves to other "
            "partitions, and no workflow or archive was named",
            ", ".join(schema.name for schema in models),
        )


def _kinds_of(models: Sequence[type[Entity]]) -> dict[str, Schema]:
    """Return the schemas by kind, as it is stored by the versions up to the declared one."""
    found: dict[str, Schema] = {}
    for schema in concrete_schemas(models):
        if schema.kind is None:
            raise ModelError(
                f"worker({schema.name}) is rejected: the model has kind=None, so that no message can name it; give it "
                "a kind, or leave it out"
            )
        other = found.get(schema.kind)
        if other is not None:
            raise ModelError(
                f"worker(...) is rejected: {other.name} and {schema.name} have one kind, {schema.kind!r}; give each a "
                "worker of its own"
            )
        found[schema.kind] = schema
    return schemas_by_kind(found.values())
