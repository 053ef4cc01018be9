"""
Projections: which properties a query asks for, and the partly loaded entities that are made of them.
"""

from collections.abc import Sequence
from typing import Any

import attrs

from ..errors import ModelError
from ..expressions import Field
from ..models.kinds import KindSet
from ..models.reserved import (
    COPY_OF,
    ENTITY_TYPE,
    ENTITY_VERSION,
    MANIFEST,
    METADATA,
    MOVE,
    OPENED,
    WRITE_TOKENS,
)
from ..models.schema import Schema
from ..models.visibility import live_only
from ..protocol.edm import ANNOTATION
from ..stores import Row

_STORED_NAMES = (ENTITY_TYPE, ENTITY_VERSION, WRITE_TOKENS, MANIFEST, MOVE, COPY_OF)


@attrs.frozen(eq=False)
class Projection:
    """
    The fields that are wanted of each kind, besides those that keys give for free.

    Args:
        kinds: The kinds.
        names: The stored fields that are wanted of each kind, and the parts of fields.
        select: Names of the properties to ask for; None for all, where only the whole row tells its kind.
    """

    kinds: KindSet
    names: dict[Schema, frozenset[str]]
    select: tuple[str, ...] | None
    _members: dict[Schema, tuple[str, ...]] = attrs.field(init=False, factory=lambda: {})  # noqa: PIE807

    @classmethod
    def of(cls, kinds: KindSet, fields: Sequence[Field[Any]]) -> "Projection":
        """
        Return the projection on these fields; on none it tells only which rows there are.

        Raises:
            ModelError: A field is of none of the kinds, or bags are asked for.
        """
        names = {schema: _stored_names(schema, fields) for schema in kinds.schemas}
        for field in fields:
            if not any(issubclass(schema.model, field.model) for schema in kinds.schemas):
                raise ModelError(f"only({field}) is rejected: the query does not select {field.model.__name__}")
        return cls(kinds, names, _select_properties(kinds, names))

    def load_all(self, rows: Sequence[Row]) -> list[Any]:
        """Return what `load` makes of each row, without entities that do not count."""
        found = [self.load(row) for row in rows]
        return live_only(found) if self.kinds.hides else found

    def load(self, row: Row) -> Any:
        """
        Return the partly loaded entity of a row.

        Returns:
            The entity; None if the row is of another kind, the row itself if it has to be read in full.

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
            members = self._members[schema] = _members_of(schema, self.names[schema])
        part = {name: value for name in members if (value := row.get(name)) is not None}
        return schema.decode_part(schema.unseal(part) if schema.stages else part, self.names[schema])


def _stored_names(schema: Schema, fields: Sequence[Field[Any]]) -> frozenset[str]:
    """
    Return the names of the stored fields of one kind that are wanted; with those that tell whether an entity counts.

    Raises:
        ModelError: The entries of an index do not hold a field, and their primaries are not fetched.
    """
    if schema.follows:
        return frozenset()  # they are read from the primary
    needs = () if schema.expiry is None else (schema.expiry.name,)
    if not fields:
        return frozenset(needs)
    names = [*needs, *[_wanted(field) for field in fields if issubclass(schema.model, field.model)]]
    names += schema.key_holders  # what a key holds is there anyway
    if schema.primary is not None:
        names += [name for name in schema.primary.key_holders if name in schema.fields]
    missing = next((name for name in names if schema.field_of(name) not in schema.fields), None)
    if missing is not None:
        raise ModelError(
            f"only(...) is rejected: the entries of {schema.name} do not hold {missing!r}; add it to include="
        )
    infos = {name: schema.fields.get(schema.field_of(name)) for name in names}
    return frozenset(name for name, info in infos.items() if info is not None and info.stored)


def _wanted(field: Field[Any]) -> str:
    """
    Return the path of a part that stands by itself, otherwise the name of the field: then an entity has the whole of a
    value, or nothing of it.
    """
    schema: Schema = field.model.__schema__
    info = schema.fields[schema.field_of(field.name)]
    return field.name if info.shape is not None and info.shape.apart else info.name


def _select_properties(kinds: KindSet, names: dict[Schema, frozenset[str]]) -> tuple[str, ...] | None:
    """Return the names of the properties to ask for; None for all."""
    schemas = kinds.schemas
    if any(callable(schema.discriminator) for schema in schemas):
        return None
    found = ["PartitionKey", "RowKey", ENTITY_TYPE]  # where the kind is told otherwise, it still tells marker rows
    if kinds.bags or any(s.kind is not None and s.discriminator != "property" and s.version > 1 for s in schemas):
        found.append(ENTITY_VERSION)
    if any(schema.write_token for schema in schemas):
        found.append(WRITE_TOKENS)  # the next write goes on from it
    if any(schema.primary is not None for schema in schemas):
        found.append(COPY_OF)
    if any(schema.keyed is not None for schema in schemas):
        found.append(METADATA)
    if any(schema.tracked for schema in schemas):
        found += [MANIFEST, MOVE]  # by which a delete finds derived rows, and what a move has left
        for schema in schemas:  # and needs the maintained fields
            found += [info.member.property for info in schema.maintained]
    for schema in schemas:
        found += [member.property for member in schema.members_of(names[schema])]
    return tuple(dict.fromkeys(found))


def _members_of(schema: Schema, names: frozenset[str]) -> tuple[str, ...]:
    """Return the members of rows that are decoded: keys, ETag, and properties with their annotations."""
    found = ["PartitionKey", "RowKey", "odata.etag"]
    own = [member.property for member in schema.members_of(names)]
    for name in (*_STORED_NAMES, *own):
        found += [name, name + ANNOTATION]
    if schema.keyed is not None:
        found += [METADATA, OPENED]
    return tuple(found)
