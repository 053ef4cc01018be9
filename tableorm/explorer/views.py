"""
Views: which rows are shown together, how their query is planned before it runs, and how a row and its keys are read.
"""

from collections.abc import Callable, Sequence
from typing import Any

import attrs

from ..database.database import Database
from ..errors import ENCRYPTED, DecodeError, NotLoaded, ScanRefused
from ..expressions import Expression
from ..keys.template import Template
from ..models.entity import Entity, schema_of
from ..models.marker_rows import DECISION_HEAD, DECISION_KIND
from ..models.property_bag import PropertyBag, shown_properties
from ..models.reserved import ENTITY_TYPE, UPKEEP_TABLE
from ..models.state import state_of
from ..queries.explain import Explanation
from ..queries.query import Query

ParseCondition = Callable[[str, type[Entity]], Expression]
"""Makes a condition on the fields of a model of a text."""

PAGE = 100
"""How many rows a page has at most."""

_SCAN = f"a page ends after {PAGE} rows or ten requests, even if few rows were found"
_OUTBOX = f"RowKey ge '{DECISION_HEAD}' and RowKey lt '{DECISION_HEAD[:-1]}`' and {ENTITY_TYPE} eq '{DECISION_KIND}'"


@attrs.frozen
class Plan:
    """
    A query that was planned and not run.

    Args:
        query: The query.
        code: Its first page as Python.
        text: What will be sent, and its cost.
        scan: Whether it visits every partition, or a range of them.
    """

    query: Query[Any]
    code: str
    text: str
    scan: bool


@attrs.frozen
class View:
    """
    The rows of a table that are shown together.

    Args:
        label: What it is called.
        table: Name of the table, or template of the names of the model's tables.
        model: The model whose entities are shown; None for rows as they are stored.
        where: A filter that the rows satisfy besides; for rows as they are stored alone.
    """

    label: str
    table: str
    model: type[Entity] | None = None
    where: str = ""

    @classmethod
    def of_table(cls, table: str, models: Sequence[type[Entity]]) -> "list[View]":
        """Return the views of a table: all rows, those of its models, and what is left to do for other partitions."""
        entities = [cls(each.__name__, table, each) for each in models if schema_of(each).table == table]
        return [cls("rows", table), *entities, cls("outbox", table, where=_OUTBOX)]

    @classmethod
    def of_kind(cls, table: str, kind: str) -> "View":
        """Return the view of the rows of a kind, as they are stored."""
        literal = kind.replace("'", "''")
        return cls(kind, table, where=f"{ENTITY_TYPE} eq '{literal}'")

    def plan(self, db: Database, text: str, parse: ParseCondition) -> Plan:
        """
        Plan the query of a filter. Nothing is sent.

        Args:
            db: The open database.
            text: The filter: a condition on fields, or OData without a model. Empty text stands for all.
            parse: Reads the condition.

        Raises:
            TableOrmError: The filter is rejected.
        """
        conditions: list[Any] = [*filter(str.strip, (self.where, text))]
        query: Query[Any]
        if self.model is None:
            query, code = db.select_raw(self.table), f"db.select_raw({self.table!r})"
        else:
            query, code = db.select(self.model), f"db.select({self.model.__name__})"
            conditions = [parse(each, self.model) for each in conditions]
        for condition in conditions:
            query, code = query.where(condition), f"{code}.where({condition!r})"
        explanation, scan = explain(query)
        if scan:
            query, code = query.allow_scan(), f"{code}.allow_scan()"
        lines = [line.strip() for line in str(explanation).splitlines()[1:]]
        return Plan(query, f"await {code}.page({PAGE})", "\n".join([*lines, *[_SCAN] * scan]), scan)


def explain(query: Query[Any]) -> tuple[Explanation, bool]:
    """Return what a query would send, and whether it has to be allowed to scan for that."""
    try:
        return query.explain(), False
    except ScanRefused:
        return query.allow_scan().explain(), True


UPKEEP = (
    View("indexes", UPKEEP_TABLE, where="PartitionKey eq 'index states'"),
    View("re-keys", UPKEEP_TABLE, where="PartitionKey eq 're-keys'"),
)
"""The views of what tableorm notes of a database: which indexes are read, and how far re-keys are."""


@attrs.frozen
class SplitKey:
    """
    A key and its parts.

    Args:
        key: The key.
        parts: The texts of the parts, each with the field that it holds; None for literal text of the template.
    """

    key: str
    parts: list[tuple[str, str | None]]

    def __str__(self) -> str:
        return self.key


def split_key(key: str, template: Template | None = None) -> SplitKey:
    """Split a key along a template; one that does not match the template, or has none, is one part."""
    found = template.match(key) if template else None
    if template is None or found is None:
        return SplitKey(key, [(key, None)])
    texts = iter(found.groups())
    return SplitKey(key, [(next(texts) if part.field else part.literal, part.field) for part in template.parts])


def describe(item: Entity | PropertyBag) -> dict[str, tuple[str, Any]]:
    """Return all that is known of a row, by name: what its type is called, and the value; the two keys are first."""
    templates: tuple[Template | None, Template | None] = (None, None)
    if isinstance(item, PropertyBag):
        position = (item.partition_key, item.row_key)
        own = {name: (_type_of(item, name), value) for name, value in shown_properties(item).items()}
    else:
        schema, state = schema_of(type(item)), state_of(item)
        position, templates = state.position, (schema.partition, schema.row)
        own = {name: (info.type.name, _value_of(item, name)) for name, info in schema.fields.items()}
        own |= {name: ("no field", value) for name, value in state.unknown(schema.known).items()}
    partition_key, row_key = map(split_key, position, templates)
    keys = {"PartitionKey": ("key", partition_key), "RowKey": ("key", row_key)}
    return {**keys, "Timestamp": ("", item.timestamp), **own}


def _value_of(item: Entity, name: str) -> Any:
    """Return the value of a field; encrypted ones are shown nowhere."""
    if schema_of(type(item)).fields[name].encrypted:
        return ENCRYPTED
    try:
        return getattr(item, name)
    except NotLoaded:
        return None


def _type_of(bag: PropertyBag, name: str) -> str:
    """Return the type of a property for display, or "damaged" if its stored value is none of that type."""
    try:
        return bag.type_of(name).removeprefix("Edm.")
    except DecodeError:
        return "damaged"
