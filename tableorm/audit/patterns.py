"""
What the declarations of a model offer the audit.
"""

from collections.abc import Sequence
from typing import Any, cast

import attrs

from ..derived.aggregate.aggregate import AggregateSchema
from ..derived.aggregate.audit import aggregate_checks
from ..derived.embed.audit import embed_checks
from ..derived.embed.embed import EmbedSchema
from ..derived.index.audit import IndexCheck
from ..derived.index.index import IndexSchema
from ..derived.index_list.audit import ListCheck
from ..derived.index_list.index_list import ListSchema
from ..models.schema import Schema
from .check import AuditContext, AuditedSchema, Check

__all__ = ["audited_schemas"]


@attrs.frozen
class _Audited:
    name: str
    schema: Any

    @property
    def buildable(self) -> bool:
        return not isinstance(self.schema, EmbedSchema)

    def related(self) -> Sequence[Schema]:
        if isinstance(self.schema, AggregateSchema):
            return [self.schema.target[0]]
        return [self.schema.source[0]] if isinstance(self.schema, EmbedSchema) else []

    def checks(self, context: AuditContext) -> Sequence[Check]:
        if isinstance(self.schema, AggregateSchema):
            return aggregate_checks(context, self.schema)
        if isinstance(self.schema, EmbedSchema):
            return embed_checks(context, self.schema)
        if isinstance(self.schema, ListSchema):
            return [ListCheck(context, self.schema)]
        return [IndexCheck(context, cast("IndexSchema", self.schema))]


def audited_schemas(schema: Schema) -> Sequence[AuditedSchema]:
    """Return what is declared on a model, as far as it is audited."""
    return [_Audited(name, each) for name, each in schema.derived()]
