"""
Families: models that derive from one, share a table, and must be told apart, as must be what is derived from them.
"""

from ..errors import ModelError
from ..keys.overlap import may_meet, may_share, refuse_meeting
from ..keys.template import Template
from .schema import Schema, concrete, descendants

__all__ = ["check_copies", "check_heads"]


def check_heads(schema: Schema, parents: list[Schema]) -> None:
    """
    Where a key tells the kind, no key may be of two kinds of the family.

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
                f"{own.text!r} with head {own.head!r} and of {template.text!r} with head {template.head!r}"
            )


def _family(schema: Schema, parents: list[Schema]) -> list[Schema]:
    """The models that are told apart as this one is."""
    roots = [p for p in parents if p.table == schema.table and p.discriminator == schema.discriminator]
    return list(dict.fromkeys(s for root in roots for s in [*concrete(root), *descendants(root.model)]))


def check_copies(schema: Schema, parents: list[Schema]) -> None:
    """
    No copy may be taken for an entity, where RowKeys tell kinds, nor meet one of another kind of the family.

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
            for name, row in _rows_of(one).items():
                assert two.row is not None
                refuse_meeting(f"{one.name}.{name}", row, f"{two.name}.row_key", two.row)
        _refuse_common_copies(schema, other)


def _rows_of(schema: Schema) -> dict[str, Template]:
    """The templates of the RowKeys of what is derived from entities, by name of what is declared."""
    rows = {name: index.row for name, index in schema.indexes.items() if index.row is not None}
    return rows | {name: index.rows for name, index in schema.lists.items()}


def _refuse_common_copies(schema: Schema, other: Schema) -> None:
    """KindSet of a family share the values of a unique index; all else that is derived from them needs its own keys."""
    assert schema.partition is not None
    assert other.partition is not None
    assert schema.row is not None
    assert other.row is not None
    if schema.table != other.table or not may_share(schema.partition, other.partition):
        return
    # Of kinds whose own keys may meet, two entities never have the key that copies of one index hold.
    apart = not may_share(schema.row, other.row)
    for name, row in _rows_of(schema).items():
        for its_name, its_row in _rows_of(other).items():
            index = schema.indexes.get(name)
            if name == its_name and index is not None and (index.index.unique or not apart):
                continue
            if may_share(row, its_row):
                raise ModelError(
                    f"{schema.name}.{name}: a RowKey can be of {row.text!r} and of {other.name}.{its_name} "
                    f"{its_row.text!r}, so that entities of the two kinds would want one row; put "
                    f"{{kind}} into it, as in '{name}_{{kind}}_...'"
                )


def _same_class(one: Schema, two: Schema) -> bool:
    return (one.model.__module__, one.model.__qualname__) == (two.model.__module__, two.model.__qualname__)
