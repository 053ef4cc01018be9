"""
Transactions and bulks of a scope: each operation is checked when it is given, and new entities get the scope's fields.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from ..expressions import Field
from ..models.entity import Entity
from ..models.key import Key
from ..models.property_bag import PropertyBag
from ..writes.bulk.bulk import Bulk
from ..writes.transaction import Transaction

if TYPE_CHECKING:
    from .scope import Scope

__all__ = ["ScopedBulk", "ScopedTransaction"]

Subject = Entity | PropertyBag


class ScopedTransaction(Transaction):
    """A transaction whose operations are of a scope."""

    def __init__(self, scope: "Scope", *, repeat: bool) -> None:
        super().__init__(scope, repeat=repeat)
        self._scope = scope

    def move(self, entity: Subject, /, **fields: Any) -> None:
        """As `Transaction.move`."""
        self._scope.check_move(entity, fields)
        super().move(entity, **fields)

    def insert(self, entity: Subject, *, repeat: bool = True) -> None:
        """As `Transaction.insert`."""
        self._scope.fill(entity)
        self._scope.check(entity)
        super().insert(entity, repeat=repeat)

    def save(self, entity: Subject) -> None:
        """As `Transaction.save`."""
        self._scope.check(entity)
        super().save(entity)

    def merge(
        self, entity: Subject, only: Sequence[Field[Any] | str] | None = None, *, if_match: str | None = None
    ) -> None:
        """As `Transaction.merge`."""
        self._scope.check(entity)
        super().merge(entity, only, if_match=if_match)

    def replace(self, entity: Subject, *, if_match: str | None = None, drop_extra: bool = False) -> None:
        """As `Transaction.replace`."""
        self._scope.check(entity)
        super().replace(entity, if_match=if_match, drop_extra=drop_extra)

    def upsert(self, entity: Subject, mode: Literal["merge", "replace"] = "merge") -> None:
        """As `Transaction.upsert`."""
        self._scope.fill(entity)
        self._scope.check(entity)
        super().upsert(entity, mode)

    def delete(self, target: Subject | Key[Any], *, if_match: str | None = None) -> None:
        """As `Transaction.delete`."""
        self._scope.check(target)
        super().delete(target, if_match=if_match)


class ScopedBulk(Bulk):
    """A bulk whose operations are of a scope."""

    def __init__(self, scope: "Scope", **options: Any) -> None:
        super().__init__(scope, **options)
        self._scope = scope

    async def insert(self, entity: Subject, *, repeat: bool = True) -> None:
        """As `Bulk.insert`."""
        self._scope.fill(entity)
        self._scope.check(entity)
        await super().insert(entity, repeat=repeat)

    async def save(self, entity: Subject) -> None:
        """As `Bulk.save`."""
        self._scope.check(entity)
        await super().save(entity)

    async def merge(
        self, entity: Subject, only: Sequence[Field[Any] | str] | None = None, *, if_match: str | None = None
    ) -> None:
        """As `Bulk.merge`."""
        self._scope.check(entity)
        await super().merge(entity, only, if_match=if_match)

    async def replace(self, entity: Subject, *, if_match: str | None = None, drop_extra: bool = False) -> None:
        """As `Bulk.replace`."""
        self._scope.check(entity)
        await super().replace(entity, if_match=if_match, drop_extra=drop_extra)

    async def upsert(self, entity: Subject, mode: Literal["merge", "replace"] = "merge") -> None:
        """As `Bulk.upsert`."""
        self._scope.fill(entity)
        self._scope.check(entity)
        await super().upsert(entity, mode)

    async def delete(self, target: Subject | Key[Any], *, if_match: str | None = None) -> None:
        """As `Bulk.delete`."""
        self._scope.check(target)
        await super().delete(target, if_match=if_match)
