"""
Projections: which properties a query asks for, and the partly loaded entities that come of them.
"""

from collections.abc import Sequence
from typing import Any

import attrs

from ..derived.index.schema import IndexSchema
from ..errors import ModelError
from ..expressions import Field
from ..models.kinds import KindSet
from ..models.reserved import COPY_OF, ENTITY_TYPE, ENTITY_VERSION, MANIFEST, WRITE_TOKENS
from ..models.schema import Schema
from ..protocol.edm import ANNOTATION
from ..stores import Row

__all__ = ["Projection"]


@attrs.frozen(eq=False)
class Projection:
    """
    The fields that are wanted of each kind, besides those that keys give for free.

    Args:
        kinds: The kinds.
        names: Of each kind, the stored fields that are wanted.
        select: Names of the properties to ask for; None for all, where only the whole row tells its kind.
    """

    kinds: KindSet
    names: dict[Schema, frozenset[str]]
    select: tuple[str, ...] | None
    _members: dict[Schema, tuple[str, ...]] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "_members", {})

    @classmethod
    def of(cls, kinds: KindSet, fields: Sequence[Field[Any]]) -> "Projection":
        """
        The projection on these fields; on none it tells only which rows there are.

        Raises:
            ModelError: A field is of none of the kinds, or bags are asked for.
        """
        names: dict[Schema, frozenset[str]] = {}
        for schema in kinds.schemas:
            own = [f.name for f in fields if issubclass(schema.model, f.model)]
            # What a key holds as well is there anyway.
            own += schema.key_holders if fields else ()
            if fields and isinstance(schema, IndexSchema):
                own += [name for name in schema.primary.key_holders if name in schema.fields]
            missing = [name for name in own if name not in schema.fields]
            if missing and not schema.follows:
                raise ModelError(
                    f"only(...) is refused: the copies of {schema.name} do not hold {missing[0]!r}; add it to include="
                )
            names[schema] = frozenset(name for name in own if name not in missing and schema.fields[name].stored)
        for field in fields:
            if not any(issubclass(schema.model, field.model) for schema in kinds.schemas):
                raise ModelError(f"only({field}) is refused: the query asks for no {field.model.__name__}")
        return cls(kinds, names, _select(kinds, names))

    def load_all(self, rows: Sequence[Row]) -> list[Any]:
        """What `load` makes of each row."""
        return [self.load(row) for row in rows]

    def load(self, row: Row) -> Any:
        """
        The partly loaded entity of a row; None if it is of another kind, the row itself if it has to be read in full.

        Raises:
            DecodeError: The row is of one of the kinds and does not fit its model.
        """
        found = self.kinds.resolve(row)
        if found is None:
            return None
        schema, version = found
        if version < schema.version or schema.follows:
            return row  # an upgrade may need any property
        members = self._members.get(schema)
        if members is None:
            members = self._members[schema] = _members(schema, self.names[schema])
        part = {name: value for name in members if (value := row.get(name)) is not None}
        return schema.decode_part(part, self.names[schema])


def _select(kinds: KindSet, names: dict[Schema, frozenset[str]]) -> tuple[str, ...] | None:
    if any(callable(schema.discriminator) for schema in kinds.schemas):
        return None
    found = ["PartitionKey", "RowKey"]
    if kinds.bags or any(s.kind is not None and s.discriminator == "property" for s in kinds.schemas):
        found.append(ENTITY_TYPE)
    if kinds.bags or any(s.kind is not None and s.discriminator != "property" and s.version > 1 for s in kinds.schemas):
        found.append(ENTITY_VERSION)
    if any(schema.write_token for schema in kinds.schemas):
        found.append(WRITE_TOKENS)  # the next write goes on from it
    if any(isinstance(schema, IndexSchema) for schema in kinds.schemas):
        found.append(COPY_OF)
    if any(schema.tracked for schema in kinds.schemas):
        found.append(MANIFEST)  # and deletes the copies
        found += (
            info.property for schema in kinds.schemas for info in schema.maintained
        )  # and what they are needed for
    found += [schema.fields[name].property for schema, own in names.items() for name in schema.fields if name in own]
    return tuple(dict.fromkeys(found))


def _members(schema: Schema, names: frozenset[str]) -> tuple[str, ...]:
    properties = [
        ENTITY_TYPE,
        ENTITY_VERSION,
        WRITE_TOKENS,
        MANIFEST,
        COPY_OF,
        *(schema.fields[name].property for name in names),
    ]
    return (
        "PartitionKey",
        "RowKey",
        "odata.etag",
        *(member for name in properties for member in (name, name + ANNOTATION)),
    )
