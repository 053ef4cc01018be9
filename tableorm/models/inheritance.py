"""
Models that inherit from one another and share a table: they, and the rows derived from them, must be told apart.
"""

from collections.abc import Iterable, Sequence
from itertools import product
from typing import Any

from ..errors import ModelError
from ..keys.overlap import may_meet, may_share, refuse_meeting
from ..keys.template import Template
from .placement import may_share_partition
from .schema import Schema, concrete, descendants


def check_heads(schema: Schema, parents: list[Schema]) -> None:
    """
    Refuse a model of which the kind is told by a key, if a key could be of two models.

    Args:
        schema: The new model.
        parents: The schemas of its bases.

    Raises:
        ModelError: One could be.
    """
    if schema.discriminator not in ("row_key", "partition_key") or schema.kind is None:
        return
    which = "row" if schema.discriminator == "row_key" else "partition"
    own: Template = getattr(schema, which)
    if not own.head:
        raise ModelError(
            f"{schema.name}: discriminator={schema.discriminator!r} needs a template that starts with literal text, "
            f"got {own.text!r}; begin it with {{kind}}_"
        )
    for other in _family(schema, parents):
        template: Template | None = getattr(other, which)
        if not _same_class(other, schema) and template is not None and may_meet(own, template):
            raise ModelError(
                f"{schema.name} and {other.name} cannot be told apart by {schema.discriminator}: a key can be of "
                f"{own.text!r} with literal {own.head!r} and of {template.text!r} with literal {template.head!r}"
            )


def _family(schema: Schema, parents: list[Schema]) -> list[Schema]:
    """Return the models that are told apart as this one is."""
    roots = [p for p in parents if p.table == schema.table and p.discriminator == schema.discriminator]
    return list(dict.fromkeys(s for root in roots for s in [*concrete(root), *descendants(root.model)]))


def check_derived_rows(schema: Schema, parents: list[Schema]) -> None:
    """
    Refuse a model if one of its derived rows could be taken for an entity, or could have the key of another one's.

    Args:
        schema: The new model.
        parents: The schemas of its bases.

    Raises:
        ModelError: One could.
    """
    for other in _family(schema, parents):
        if _same_class(other, schema):
            continue
        for one, two in ((schema, other), (other, schema)) if schema.discriminator == "row_key" else ():
            for derived in one.derived.values():
                for row in derived.row_templates() if derived.table == two.table else ():
                    refuse_meeting(derived.label, row, f"{two.name}.row_key", two.templates()[1])
        _refuse_common_rows(schema, other)


def _refuse_common_rows(schema: Schema, other: Schema) -> None:
    """Refuse derived rows of two models that could have one key, unless both models share them on purpose."""
    apart = not may_share(schema.templates()[1], other.templates()[1])
    for name, derived in schema.derived.items():
        for its_name, its in other.derived.items():
            if derived.deferred or its.deferred or not may_share_partition(derived, its):
                continue  # those are compared with the rows of all models
            if name == its_name and derived.shares_rows(keys_apart=apart):
                continue
            for one, two in product(derived.row_templates(), its.row_templates()):
                if may_share(one, two):
                    raise ModelError(
                        f"{derived.label}: a RowKey can be of {one.text!r} and of {its.label} {two.text!r}, so "
                        "entities of both kinds could have the same row; put {kind} into it, as in "
                        f"'{name}_{{kind}}_...'"
                    )


def _same_class(one: Schema, two: Schema) -> bool:
    return (one.model.__module__, one.model.__qualname__) == (two.model.__module__, two.model.__qualname__)


def common_base(models: Sequence[type[Any]], fields: Iterable[str]) -> type[Any] | None:
    """Return the class whose fields stand for those of all the models; None if there is none."""
    for base in models[0].__mro__ if models else ():
        schema = base.__dict__.get("__schema__")
        if isinstance(schema, Schema) and all(issubclass(model, base) for model in models):
            return base if all(name in schema.fields for name in fields) else None
    return None
