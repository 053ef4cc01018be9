"""
The row stages of models where rows are read: pages are prepared, and the rows of an entity joined.

`Connection.sending` puts this layer around the tables when it reads for models with such stages. What has come through
it is one row for each entity, whatever asked for it.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from ..models.kinds import kind_of
from ..models.marker_rows import TENTATIVE
from ..models.reserved import ENTITY_TYPE, PART
from ..models.row_stage import SplitStage, as_first, as_one
from ..models.schema import DerivedSchema, Schema
from ..protocol.codes import Code, Fault
from ..protocol.edm import Edm
from ..protocol.filters import And, Compare, Constant, Filter, Op, Or, matcher
from ..protocol.limits import MAX_PAGE
from ..stores import Bounds, Row, RowAddress, RowPage, RowQuery, StoreLayer, TableStore, pause_after, row_keys
from .stats import Counts
from .tasks import map_together

_LOOKS = 30
"""How often rows of an entity are read that are not of one moment. A program writes between two reads now and then."""


class StagedStore(StoreLayer):
    """
    Tables as some models read them.

    Args:
        below: The tables.
        schemas: The models that are read.
        counts: Counts the requests that are sent beside the one that was asked for.
        db: The `Connection`, which this module is below.
    """

    def __init__(self, below: TableStore, schemas: Sequence[Schema], counts: Counts, db: Any) -> None:
        super().__init__(below)
        self._schemas, self._counts, self._db = schemas, counts, db

    async def get(self, table: str, partition_key: str, row_key: str, select: tuple[str, ...] | None = None) -> Row:
        """See `TableStore`."""
        schemas = self._of(table)
        split = [each.split for each in schemas if each.split is not None and not each.split.is_in_first(select)]
        if not split:
            row = await self.below.get(table, partition_key, row_key, select)
            if any(each.split is not None and each.split.kind == kind_of(row) for each in schemas):
                row = as_one(row)
        else:
            self._counts.requests -= 1  # of which there may be several, or this one
            row = await self._read(table, partition_key, row_key, select, split)
        row.update({"PartitionKey": partition_key, "RowKey": row_key})  # which the stages need, asked for or not
        await self._prepare(schemas, table, [row], select)
        return row

    async def query(
        self, table: str, query: RowQuery, limit: int = MAX_PAGE, continuation: str | None = None
    ) -> RowPage:
        """See `TableStore`. A page may have more rows than are asked for, if entities have fewer than they may."""
        schemas = self._of(table)
        split = {each.split.kind: each.split for each in schemas if each.split is not None}
        asked = query
        joined = [each for each in split.values() if not each.is_in_first(query.select)]
        if joined:
            kinds = {each.kind for each in joined}
            where = None if query.where is None else _with_parts(query.where, kinds)
            select = query.select
            for each in joined:
                select = each.asks_for(select)
            asked = RowQuery(query.partition, query.row, where, select)
            if where is None or where != query.where:  # otherwise these are no rows of theirs
                limit = min(limit * max(each.most_rows for each in joined), MAX_PAGE)
        page = await self.below.query(table, asked, limit, continuation)
        rows = await self._join(table, page.rows, query, split) if split else page.rows
        await self._prepare(schemas, table, rows, query.select)
        return RowPage(rows, page.continuation)

    def _of(self, table: str) -> list[Schema]:
        return [each for each in self._schemas if each.may_be_in(table)]

    async def _join(
        self, table: str, rows: Sequence[Row], query: RowQuery, split: Mapping[str, SplitStage]
    ) -> list[Row]:
        """
        Return the rows of entities of a page, joined. Where rows of one are on another page, or not of one moment, they
        are read again; so further rows whose first one is not here belong to an entity of another page. What asks for
        further rows itself, as an audit does, gets them beside.
        """
        others: dict[tuple[str, str], list[Row]] = {}
        found: list[Row] = []
        select = query.select
        asked_for = None if query.where is None else matcher(query.where)
        for row in rows:
            stage = split.get(_kind_of_owner(row))
            if stage is None:
                found.append(as_one(row) if kind_of(row) in split else row)
            else:
                if asked_for is not None and asked_for(row):
                    found.append(row)
                others.setdefault((row["PartitionKey"], stage.owner_of(row["RowKey"])), []).append(row)
        again: list[int] = []
        for at, row in enumerate(found):
            stage = split.get(kind_of(row))
            if stage is not None and not stage.is_in_first(select):
                joined = stage.join(row, others.get(row_keys(row), ()))
                if joined is None:
                    again.append(at)
                else:
                    found[at] = joined
        if not again:
            return found

        async def read(at: int) -> Row | None:
            row = found[at]
            try:
                return await self._read(table, row["PartitionKey"], row["RowKey"], select, [split[kind_of(row)]])
            except Fault as fault:
                if fault.code != Code.RESOURCE_NOT_FOUND:
                    raise
                return None  # it was deleted meanwhile

        anew = dict(zip(again, await map_together(read, again), strict=True))
        current = [anew.get(at, row) for at, row in enumerate(found)]
        return [row for row in current if row is not None]

    async def _read(
        self,
        table: str,
        partition_key: str,
        row_key: str,
        select: tuple[str, ...] | None,
        split: Sequence[SplitStage],
    ) -> Row:
        """
        Read the rows of an entity, and return them as one; a row of another kind as it is. If they were not of one
        moment, each time that they were read, return the first one, whose kind says that it is only that.

        Raises:
            Fault: There is none.
        """
        query = query_of_entity(RowAddress(table, partition_key, row_key), split, select)
        own: Row = {}
        for look in range(_LOOKS):
            if look:
                await asyncio.sleep(min(1.0, pause_after(look, self._db.retry) / 5))
            rows: list[Row] = []
            continuation: str | None = None
            while True:
                self._counts.requests += 1
                page = await self.below.query(table, query, MAX_PAGE, continuation)
                rows += page.rows
                continuation = page.continuation
                if continuation is None:
                    break
            there = next((row for row in rows if row["RowKey"] == row_key), None)
            if there is None:
                self._counts.requests += 1
                # It says why, since a range leaves out what a token does not open.
                own = await self.below.get(table, partition_key, row_key, select)
                continue
            own = there
            stage = next((each for each in split if each.kind == kind_of(own)), None)
            if stage is None:
                return own
            others = [r for r in rows if _kind_of_owner(r) == stage.kind and stage.owner_of(r["RowKey"]) == row_key]
            joined = stage.join(as_one(own), others)
            if joined is not None:
                return joined
        return as_first(as_one(own))

    async def _prepare(
        self, schemas: Sequence[Schema], table: str, rows: Sequence[Row], select: tuple[str, ...] | None
    ) -> None:
        for schema in schemas:
            if any(stage.prepares for stage in schema.stages):
                kinds = {schema.kind}.union(*(_sealed_kinds(each) for each in schema.derived.values()))
                own = [row for row in rows if schema.kind is None or kind_of(row).removesuffix(TENTATIVE) in kinds]
                await prepare_rows(self._db, schema, table, own, select)


async def prepare_rows(
    db: Any, schema: Schema, table: str, rows: Sequence[Row], select: tuple[str, ...] | None = None
) -> None:
    """
    Let the row stages of a model prepare rows that were read as they are stored.

    Args:
        db: The `Connection` that has read them, which this module is below.
        schema: The model.
        table: Name of the table.
        rows: The rows.
        select: The properties that were read; None for all.
    """
    for stage in reversed(schema.stages if rows else ()):
        if stage.prepares:
            await stage.prepare(db, table, rows, select)


def query_of_entity(address: RowAddress, split: Sequence[SplitStage], select: tuple[str, ...] | None) -> RowQuery:
    """
    Return the query of all rows of an entity.

    Args:
        address: The first row.
        split: The stages of the models that it may be of.
        select: The properties to read; None for all.
    """
    last = max(each.last_key(address.row_key) for each in split)
    for each in split:
        select = each.asks_for(select)
    first = Compare("RowKey", Op.EQ, Constant(Edm.STRING, address.row_key))
    where = Or((first, *(_is_part(each.kind) for each in split)))
    return RowQuery(Bounds.only(address.partition_key), Bounds(address.row_key, last), where, select)


def _sealed_kinds(derived: DerivedSchema) -> set[str | None]:
    rows = derived.row_schema
    return set() if rows is None or rows.keyed is None else {rows.kind}


def _kind_of_owner(row: Row) -> str:
    """Return the kind of the entity that a further row belongs to; "" of any other row."""
    kind = str(row.get(ENTITY_TYPE))
    return kind.removesuffix(PART) if kind.endswith(PART) else ""


def _is_part(kind: str) -> Filter:
    return Compare(ENTITY_TYPE, Op.EQ, Constant(Edm.STRING, kind + PART))


def _with_parts(where: Filter, kinds: set[str]) -> Filter:
    """Return a condition that holds for the further rows of some kinds where it holds for their first ones."""
    if isinstance(where, (And, Or)):
        return type(where)(tuple(_with_parts(term, kinds) for term in where.terms))
    if isinstance(where, Compare) and where.property == ENTITY_TYPE and where.op is Op.EQ:
        kind = str(where.constant.value)
        return Or((where, _is_part(kind))) if kind in kinds else where
    return where
