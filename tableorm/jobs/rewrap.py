"""
Wrapping the content keys of encrypted rows anew: their values stay as they are.
"""

from collections.abc import Sequence
from functools import partial

from ..connection.connection import Connection
from ..connection.period_tables import list_periods
from ..connection.races import ATTEMPTS, Attempts
from ..connection.rows import read_row, write_as_read
from ..connection.tasks import map_together
from ..errors import LostRace, ModelError, NotSupported, TableOrmError
from ..models.entity import Entity, concrete_schemas
from ..models.kinds import KindSet
from ..models.reserved import ENTITY_TYPE, METADATA, PART
from ..models.schema import Schema
from ..shapes.encrypted import ContentKeys
from ..stores import Operation, Row, RowAddress, Verb
from ..writes.bulk.pacing import Pace
from .counts import JobCounts
from .plan import plan_ranges
from .process import RunJob, RunOptions, carry_out
from .ranges import JobRange, purpose_of
from .report import RunReport
from .scan import Steps, family_filter, walk

_SELECT = ("PartitionKey", "RowKey", ENTITY_TYPE, METADATA)


async def rewrap(db: Connection, models: Sequence[type[Entity]], options: RunOptions[RunReport]) -> RunReport:
    """Wrap the content keys of the rows of some models anew; see `Database.rewrap`."""
    encryption: ContentKeys | None = db.encryption
    if encryption is None:
        raise NotSupported("rewrap() needs keys; use connect(url, encryption=Encryption(keys))")
    schemas = concrete_schemas(models)
    for schema in schemas:
        if schema.keyed is None:
            raise ModelError(f"rewrap({schema.name}) is rejected: it has no encrypted field")
    if not schemas:
        raise ModelError("rewrap() needs at least one model: give those with encrypted fields")
    current = await encryption.current()
    tables: dict[str, list[Schema]] = {}
    for schema in schemas:
        names = [schema.table_name()] if schema.periods is None else await list_periods(db, schema.periods)
        for name in names:
            tables.setdefault(name, []).append(schema)

    def work(part: JobRange, pace: Pace | None) -> Steps[JobCounts]:
        counts, kinds = JobCounts(), KindSet.of([each.model for each in tables[part.table]], part.table)

        async def rewrap_row(row: Row) -> None:
            # The metadata of a wide entity is in its first row.
            counts.entities += not str(row.get(ENTITY_TYPE)).endswith(PART)
            try:
                if await _rewrap_row(db, encryption, current, part.table, row):
                    counts.written += 1
            except TableOrmError as error:
                counts.fail(RowAddress.of_row(part.table, row), error)

        deal = partial(map_together, rewrap_row)
        return walk(db, part, family_filter(kinds), deal, counts, "rewrap", pace, _SELECT)

    job = RunJob(
        verb="rewrap",
        what=f"rewrap {', '.join(sorted(schema.name for schema in schemas))}",
        purpose=purpose_of(f"rewrap {current} {','.join(sorted(tables))}", schemas),
        tables=tables,
        plan=partial(plan_ranges, db, "rewrap", [*tables.items()]),
        work=work,
    )
    return await carry_out(db, job, options)


async def _rewrap_row(db: Connection, encryption: ContentKeys, current: str, table: str, row: Row) -> bool:
    """
    Write the metadata of a row anew, under its ETag; return False if the current key has wrapped its content key.

    Raises:
        TableOrmError: It cannot be written, or has no metadata of a sealed row.
    """
    address = RowAddress.of_row(table, row)
    async for _ in Attempts(db):
        metadata = row.get(METADATA)
        text = None if metadata is None else await encryption.rewrap(metadata, address, current)
        if text is None:
            return False
        operation = Operation(Verb.MERGE, {**address.keys, METADATA: text}, row["odata.etag"])
        if await write_as_read(db, table, [operation], name="", what=str(address)):
            return True
        row = await read_row(db, address, _SELECT) or {}
    raise LostRace(f"others wrote it first, {ATTEMPTS} times in a row")
