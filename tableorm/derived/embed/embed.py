"""
Embedded copies: some fields of another entity, kept as they are there.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from ...audit.check import AuditedMaintainer, Check
from ...audit.context import AuditContext
from ...errors import ModelError
from ...models.derivation import Derivation
from ...models.key import Storable
from ...models.schema import Schema
from .audit import embed_checks
from .eventual import EventualEmbedMaintainer
from .schema import EmbedSchema


class Embedded(Derivation):
    """
    Copies of some fields of another entity of the same partition: the department holds its manager's name and address.

    `manager = Embedded(lambda: Employee, {"manager_name": "name"}, department="{name}", id="{manager_id}")` in the body
    of `Department`. When `manager_id` is set the fields are read from that employee; when the employee changes, so do
    they, each in one entity group transaction. An employee that is somewhere embedded cannot be deleted.

    Args:
        model: The other model, or a function that returns it. Its class says `tracked=True`, unless it has indexes.
        fields: For each field of this model that holds a copy, declared `| None` and `field(maintained=True)`, the
            field of the other model that it is a copy of.
        consistency: "eventual" if the other entity is in another partition or table: then the copies follow some time
            later.
        via: The index of this class by which entities that hold copies of another one are found; None if that is told
            by their own keys. Only with `consistency="eventual"`.
        key: The key fields of the other entity: "{field}" of this model, or text. A field that is None embeds nothing.
    """

    _instead = "; the copies are in fields of their own"

    def __init__(
        self,
        model: Callable[[], type[Storable]] | type[Storable],
        fields: Mapping[str, str],
        /,
        *,
        consistency: Literal["eventual"] | None = None,
        via: Derivation | None = None,
        **key: str,
    ) -> None:
        given: object = fields
        if not isinstance(given, Mapping) or not fields or not key or not all(isinstance(t, str) for t in key.values()):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ModelError(
                'Embedded(...) needs fields and a key, as in Embedded(lambda: Employee, {"manager_name": "name"}, '
                'department="{name}", id="{manager_id}")'
            )
        if consistency not in (None, "eventual"):
            raise ModelError(f"Embedded(consistency={consistency!r}) is unknown; use 'eventual', or leave it out")
        if via is not None and (consistency is None or not isinstance(via, Derivation)):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ModelError(
                f"Embedded(via={via!r}) is rejected: give an Index of this class, by which the holders of an entity "
                "are found, with consistency='eventual'"
            )
        super().__init__()
        self.model, self.fields, self.key = model, dict(fields), dict(key)
        self.consistency, self.via = consistency, via

    def _bind(self, schema: Schema, annotations: Mapping[str, Any]) -> EmbedSchema:
        """Return what entities of a model embed."""
        for other in schema.derived_as(EmbedSchema).values():
            twice = next((field for field in self.fields if field in other.fields), None)
            if twice is not None:
                raise ModelError(
                    f"{schema.name}.{twice} would hold copies by two Embedded(...); give each fields of its own"
                )
        via = None if self.via is None else self.via.name
        make = EmbedMaintainer if self.consistency is None else EventualEmbedMaintainer
        return make(self.name, schema, self.key, model=self.model, fields=self.fields, via=via)


class EmbedMaintainer(EmbedSchema, AuditedMaintainer):
    """What entities of a model embed, which the audit checks."""

    buildable = False

    def checks(self, context: AuditContext) -> Sequence[Check]:
        """Return the checks of the copies, and of what the other entities say of their holders."""
        return embed_checks(context, self)
