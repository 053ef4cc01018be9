"""
`lint`: looks for declarations that become slow, hot or too large as rows accumulate. Nothing is sent.
"""

import datetime as dt
import enum
from collections.abc import Callable, Iterable, Iterator, Sequence
from uuid import UUID

import attrs

from ..audit.check import AuditedMaintainer
from ..errors import ModelError, near
from ..keys.bounds import Part
from ..keys.format import Order
from ..keys.overlap import may_share
from ..keys.template import Template
from ..models.entity import Entity, concrete_schemas
from ..models.schema import DerivedSchema, Schema
from ..protocol.edm import Edm
from ..protocol.limits import MAX_CUSTOM_PROPERTIES, MAX_TRANSACTION_OPERATIONS
from ..types import Int32
from .rules import RULES, LintRule

_MANY_WRITES = MAX_TRANSACTION_OPERATIONS - 20
_MANY_PROPERTIES = MAX_CUSTOM_PROPERTIES - 12
# Fields of these types in a RowKey let rows come without end. Names and codes are often those of a few rows.
_ENDLESS = (int, Int32, dt.datetime, dt.date, UUID)
_LONG_FIELDS = 16  # of 64 KiB each: the 1 MiB of a row


@attrs.frozen
class LintFinding:
    """
    A declaration that breaks a rule.

    Args:
        rule: The rule.
        subject: The declaration: "Employee.row_key", "Employee.by_name".
        detail: What was found in it.
    """

    rule: LintRule
    subject: str
    detail: str

    def __str__(self) -> str:
        rule = self.rule
        return f"{self.subject}: {self.detail} ({rule.code}): {rule.reason}; {rule.remedy} [{rule.section}]"


def lint(*models: type[Entity], ignore: Iterable[str] = ()) -> list[LintFinding]:
    """
    Find declarations that become slow, hot or too large as rows accumulate. Nothing is sent.

        for finding in lint(Employee, ignore=["one-partition"]):
            print(finding)

    Args:
        models: The models; an abstract base stands for all of its subclasses. Pass the models of a table together.
        ignore: Rules to skip, by code: everywhere, "one-partition", or for one declaration,
            "one-partition:Settings.partition_key".

    Returns:
        The findings, by model.

    Raises:
        ModelError: No model was passed, or `ignore` names an unknown rule.
    """
    schemas = concrete_schemas(models)
    if not schemas:
        raise ModelError("lint() needs at least one model: give classes with entities")
    ignored = frozenset(ignore)
    for text in ignored:
        if text.partition(":")[0] not in RULES:
            raise ModelError(f"lint(ignore={text!r}) is rejected; {near(text.partition(':')[0], [*RULES], 'rule')}")
    found = [finding for schema in schemas for check in _CHECKS for finding in check(schema)]
    found += _find_mixed_ranges(schemas)
    return [each for each in found if not ignored & {each.rule.code, f"{each.rule.code}:{each.subject}"}]


def _finding(code: str, subject: str, detail: str) -> LintFinding:
    return LintFinding(RULES[code], subject, detail)


def _first_field(template: Template) -> Part | None:
    return next((part for part in template.parts if part.field is not None), None)


def _check_partition(schema: Schema) -> Iterator[LintFinding]:
    (partition, row), subject = schema.templates(), f"{schema.name}.partition_key"
    first = _first_field(partition)
    if first is None:
        counted = [name for name in row.fields if schema.fields[name].type.annotation in _ENDLESS]
        if counted:
            yield _finding("one-partition", subject, f"it is {partition.text!r} for every {counted[0]}")
        return
    name, form = first.field or "", first.format
    if schema.fields[name].type.annotation in (dt.datetime, dt.date) and not form.buckets:
        yield _finding("growing-partition-key", subject, f"{partition.text!r} begins with {name}")


def _check_numbers(schema: Schema) -> Iterator[LintFinding]:
    templates = [*zip(("partition_key", "row_key"), schema.templates(), strict=True)]
    templates += [(each.name, template) for each in schema.derived.values() for template in each.row_templates()]
    for name, template in templates:
        for part in template.parts:
            if part.field is None or part.format.order is not Order.NONE:
                continue
            if part.format.decimal and not part.format.each:
                yield _finding("unpadded-number", f"{schema.name}.{name}", f"{part.field} has no width")


def _check_derived(schema: Schema) -> Iterator[LintFinding]:
    writes = 1
    for each in schema.derived.values():
        if not isinstance(each, AuditedMaintainer):
            continue
        declared = each.describe()
        match declared["pattern"]:
            case "Index":
                # The row at the old key, and that at the new one.
                writes += 1 if each.deferred else 2
                if schema.maintained and declared["include"] != "keys" and not each.deferred:
                    names = ", ".join(info.name for info in schema.maintained)
                    yield _finding("index-without-maintained", each.label, f"its entries do not hold {names}")
                # Where maintained fields are wanted, or an entity is several rows, keys alone are what gives these.
                plain = not schema.maintained and schema.split is None and ":each}" not in declared["row_key"]
                if declared["include"] == "keys" and not declared["unique"] and plain:
                    yield _finding("keys-only-index", each.label, "it has keys alone")
            case "IndexList":
                writes += 1 if each.deferred else 2
                yield from _check_list(each)
            case "Count" | "Sum":
                writes += 1
                fixed = not any("{" in text for text in declared["key"].values())
                if fixed or not schema.templates()[0].fields:
                    yield _finding("hot-aggregate", each.label, "all entities are counted in one row")
            case "Feed":
                writes += 2
            case _:
                writes += 1
    if writes >= _MANY_WRITES:
        yield _finding("many-writes", schema.name, f"a change of an entity writes up to {writes} rows")


def _check_list(declared: AuditedMaintainer) -> Iterator[LintFinding]:
    fields = {name for template in declared.row_templates() for name in template.fields} & declared.schema.fields.keys()
    kinds = [declared.schema.fields[name].type.annotation for name in sorted(fields)]
    if kinds and all(isinstance(kind, type) and issubclass(kind, bool | enum.Enum) for kind in kinds):
        yield _finding("list-of-few-values", declared.label, f"it lists by {', '.join(sorted(fields))}")


def _check_size(schema: Schema) -> Iterator[LintFinding]:
    if schema.split is not None:
        return
    count = len(schema.by_property) + len(schema.kind_properties) + schema.write_token
    if count >= _MANY_PROPERTIES:
        yield _finding("many-properties", schema.name, f"a row has up to {count} properties")
    long = [
        kind
        for kind in (member.type for name, member in schema.by_property.items() if name not in schema.cleared)
        if kind.edm in (Edm.STRING, Edm.BINARY) and not _is_short(kind.annotation)
    ]
    if len(long) >= _LONG_FIELDS:
        yield _finding("large-entity", schema.name, f"{len(long)} fields may be long")


def _check_expiry(schema: Schema) -> Iterator[LintFinding]:
    """Find logs that a table for each period could hold: no write prolongs a life, and nothing reaches over periods."""
    expiry = schema.expiry
    if expiry is None or expiry.on_write is not None or schema.periods is not None or schema.maintained:
        return
    # An index by the time of expiry serves sweeps alone, which nobody needs then.
    kept = [each for each in schema.derived.values() if not _holds(each, expiry.name)]
    if not all(each.in_periods for each in kept) or (schema.tracked and not schema.derived):
        return
    partition, row = schema.templates()
    for name in (*partition.fields, *row.fields[:1]):
        if name in schema.key_holders and schema.fields[name].type.annotation in (dt.datetime, dt.date):
            yield _finding("expiry-without-periods", f"{schema.name}.{expiry.name}", f"keys are in the order of {name}")
            return


def _holds(declared: DerivedSchema, field: str) -> bool:
    return any(field in template.fields for template in (*declared.row_templates(), declared.partition) if template)


def _is_short(annotation: object) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, enum.Enum)


def _find_mixed_ranges(schemas: Sequence[Schema]) -> Iterator[LintFinding]:
    """Find models whose rows may lie between those of another model, in a partition of both."""
    for schema in schemas:
        partition, row = schema.templates()
        if row.head or schema.discriminator == "partition_key":
            continue
        for other in schemas:
            if other is schema or other.table_text().lower() != schema.table_text().lower():
                continue
            if may_share(partition, other.templates()[0]) and not _are_siblings(schema, other):
                what = f"{row.text!r} begins with a field, and {other.name} is in the same partitions"
                yield _finding("mixed-ranges", f"{schema.name}.row_key", what)
                break


def _are_siblings(schema: Schema, other: Schema) -> bool:
    """Return whether two classes have a base in common: a query of it reads them together."""
    return any(
        base is not Entity and issubclass(base, Entity)
        for base in schema.model.__mro__
        if issubclass(other.model, base)
    )


_CHECKS: Sequence[Callable[[Schema], Iterator[LintFinding]]] = (
    _check_partition,
    _check_numbers,
    _check_size,
    _check_derived,
    _check_expiry,
)
