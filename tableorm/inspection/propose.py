"""
`propose`: from the rows of a table to the text of a module of models, which was executed and has read every row.
"""

import contextlib
import itertools
import re
import sys
from collections.abc import Collection, Sequence
from types import ModuleType
from typing import Any

import attrs

from ..errors import ModelError, TableOrmError
from ..models.class_body import pascal_case
from ..models.entity import schema_of
from ..models.kinds import KindSet
from ..models.placement import forget_models
from ..models.reserved import ENTITY_TYPE
from ..protocol.redaction import escape_unprintable
from ..stores import Row, RowAddress, row_keys
from ..writes.patch import Known
from ..writes.plan import Mode
from ..writes.stages.patching import Shown, entity_patch
from .fields import class_name, find_properties, name_fields, read_values
from .groups import Group, group_rows
from .module_text import ModelText, quote, write_module
from .templates import Place, find_period, find_places, template_text

_MOST_EXAMPLES = 3
_NUMBERS = itertools.count()
_BY_FUNCTION = ("value", "names")
_DIGITS = "0123456789"
_HEAD = re.compile(r"[A-Za-z]{2,}[\W_]+")


@attrs.frozen
class ProposedModel:
    """
    A model that is proposed for some rows of a table.

    Args:
        name: Its name.
        rows: How many of the rows are its own.
        exact: How many of these it reads exactly: their keys are rebuilt unchanged, and a save sends nothing.
        examples: Some of the others, by their keys, each with the reason.
    """

    name: str
    rows: int
    exact: int
    examples: tuple[tuple[tuple[str, str], str], ...] = ()

    def __str__(self) -> str:
        lines = [f"{self.name}: {self.exact:,} of {self.rows:,} rows read exactly"]
        lines += [f"  {keys!r}: {reason}" for keys, reason in self.examples]
        return "\n".join(map(escape_unprintable, lines))


@attrs.frozen
class Proposal:
    """
    Models for the rows of a table.

    Args:
        table: Its name.
        text: The text of a Python module that declares the models.
        models: The models.
        rows: How many rows were read, those of tableorm itself left out.
    """

    table: str
    text: str
    models: tuple[ProposedModel, ...]
    rows: int


def propose(table: str, rows: Sequence[Row], *, whole: bool = True, tables: Sequence[str] = ()) -> Proposal:
    """
    Return models for the rows of a table.

    Args:
        table: Its name.
        rows: Some of its rows, or all.
        whole: Whether these are all.
        tables: The names of all tables, which may show that each period has one.

    Raises:
        ModelError: tableorm has no models for such a table.
    """
    # Rows of indexes and the like are none of a model.
    rows = [row for row in rows if "#" not in str(row.get(ENTITY_TYPE, ""))]
    if not rows:
        return Proposal(table, f'"""The table {table} has no rows."""\n', (), 0)
    # Kinds that tableorm cannot tell apart are one model, and tables that are not of periods are plain ones.
    *ways, last = itertools.product((group_rows(rows), [Group(rows)]), (tables, ()))
    for groups, names in ways:
        with contextlib.suppress(TableOrmError):
            return _propose(table, rows, groups, names, whole=whole)
    return _propose(table, rows, *last, whole=whole)


def _propose(
    table: str, rows: Sequence[Row], groups: Sequence[Group], tables: Sequence[str], *, whole: bool
) -> Proposal:
    texts: list[ModelText] = []
    for group in groups:
        texts.append(_draft(table, group, {text.name for text in texts}, tables))
    told = [(text.name, group.label) for text, group in zip(texts, groups, strict=True) if group.told in _BY_FUNCTION]
    labels = dict(told) or None
    which = "all" if whole else "a sample"
    doc = f"Models of the table {table}, as `tableorm inspect` proposes them for {which} of its rows, {len(rows):,}."
    text = write_module(doc, texts, told_by=groups[0].property, labels=labels)
    module = ModuleType(f"tableorm_proposal_{next(_NUMBERS)}")
    try:
        _execute(text, module)
        made = [vars(module)[each.name] for each in texts]
        kinds = KindSet.of(made, table)
        models = [_read(each, group.rows, kinds) for each, group in zip(made, groups, strict=True)]
    finally:
        forget_models(module.__name__)
    noted = [
        attrs.evolve(each, remarks=[*str(model).splitlines(), *each.remarks])
        for each, model in zip(texts, models, strict=True)
    ]
    text = write_module(doc, noted, told_by=groups[0].property, labels=labels)
    return Proposal(table, text, tuple(models), len(rows))


def _execute(text: str, module: ModuleType) -> None:
    """Execute a text in a module, which is nowhere but in memory."""
    sys.modules[module.__name__] = module  # where classes look for the names in their annotations
    try:
        exec(compile(text, f"<{module.__name__}>", "exec"), vars(module))  # noqa: S102
    finally:
        del sys.modules[module.__name__]


def _read(model: type[Any], rows: Sequence[Row], kinds: KindSet) -> ProposedModel:
    """Return how many of its rows a model reads exactly."""
    faults = [(row, fault) for row in rows if (fault := _find_fault(model, row, kinds)) is not None]
    examples = tuple((row_keys(row), fault) for row, fault in faults[:_MOST_EXAMPLES])
    return ProposedModel(model.__name__, len(rows), len(rows) - len(faults), examples)


def _find_fault(model: type[Any], row: Row, kinds: KindSet) -> str | None:
    """Return why a model does not read a row exactly; None if it does."""
    schema, keys = schema_of(model), row_keys(row)
    try:
        entity = kinds.load(row)
        if type(entity) is not model:
            return f"it is read as {type(entity).__name__}"
        values = {name: vars(entity)[name] for name in schema.fields}
        made = schema.make_keys(values)
        if made != keys:
            return f"its keys would be {made!r}"
        address = RowAddress(schema.table_of(*keys), *keys)
        subject = Shown(schema=schema, address=address, values=values, extra=schema.unknown(row), before=Known(row))
        patch = entity_patch(Mode.SAVE, subject)[0]
        if patch.set or patch.remove:
            return f"a save would change {', '.join([*(patch.set or ()), *patch.remove])}"
    except TableOrmError as error:
        return str(error)
    return None


def _draft(table: str, group: Group, taken: Collection[str], tables: Sequence[str]) -> ModelText:
    kind = ENTITY_TYPE if group.told == "kind" else None
    properties = find_properties(group.rows, kind=kind)
    partition, row, verbatim = _find_keys(group, read_values(group.rows, properties))
    fields, names = name_fields(properties, [*partition, *row], group)
    remarks = [
        f"No field has the property {each.name!r}, which {each.problem}." for each in properties if not each.type
    ]
    head = table.rstrip(_DIGITS)
    alike = sum(each.rstrip(_DIGITS) == head and len(each) == len(table) for each in tables)
    period = find_period(table[len(head) :], [*partition, *row])
    if period is not None and alike > 1:
        remarks.append(f"A table for each period: {alike:,} tables have such names. Only rows of {table} were read.")
        field, spec = period
        table = f"{head}{{{names[field]}:{spec}}}"
    keywords = {
        "table": quote(table),
        "partition_key": quote(template_text(partition, names)),
        "row_key": quote(template_text(row, names)),
    }
    # With a kind, even one that only a key tells, a model can have indexes.
    told = group.told or ("row_key" if row and _HEAD.fullmatch(row[0].literal) else None)
    if told is None or told == "kind":
        keywords["kind"] = quote(group.label) if told else "None"
    else:
        keywords["discriminator"] = "tell_model" if told in _BY_FUNCTION else quote(told)
    if verbatim:
        keywords["keys"] = quote("verbatim")
    stored = [each for each in fields if each.property is not None]
    if 2 * sum(pascal_case(each.name) == each.property for each in stored) > len(stored):
        keywords["naming"] = quote("pascal")
    words = [group.label or _singular(head)]
    name = class_name([head, "With", *words] if told == "names" else words, taken)
    return ModelText(name, table, keywords, [each.write(pascal="naming" in keywords) for each in fields], remarks)


def _singular(table: str) -> str:
    """Return the name of a table as the name of one of its rows."""
    return re.sub(r"(?<=[a-z]{2})(?:(?<!s)s|(?<=i)es)\Z", "", table)


def _find_keys(group: Group, values: Any) -> tuple[list[Place], list[Place], bool]:
    """Return the parts of both templates, and whether keys hold texts as they are."""
    for verbatim in (False, True):
        partition, row = (
            find_places(
                [row[member] for row in group.rows],
                values,
                verbatim=verbatim,
                head=group.label if group.told == told else "",
            )
            for told, member in (("partition_key", "PartitionKey"), ("row_key", "RowKey"))
        )
        if partition is not None and row is not None:
            return partition, row, verbatim
    raise ModelError(f"rows of {group.rows[0]['PartitionKey']!r} have keys that the service forbids")
