"""
Counts and sums over entities, kept in a field of another entity.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeVar, overload

from ...audit.check import AuditedMaintainer, Check
from ...audit.context import AuditContext
from ...errors import ModelError
from ...expressions import Field
from ...models.derivation import Derivation, DerivationOf
from ...models.key import Storable
from ...models.schema import Schema
from .audit import aggregate_checks
from .eventual import EventualAggregateMaintainer
from .schema import AggregateSchema

E = TypeVar("E", bound=Storable)


class AggregateOf(DerivationOf[E]):
    """A count or sum of a model, as `Employee.employees` gives it: for `db.build_index`."""


class Aggregate(Derivation):
    """The base of `Count` and `Sum`."""

    _on_class = AggregateOf
    _instead = "; the entity in which it counts has the number"
    of: str | None = None

    def __init__(
        self,
        field: Callable[[], Field[int]] | Field[int],
        *,
        where: Callable[[Any], bool] | None,
        create: bool,
        consistency: str | None,
        key: Mapping[str, str],
    ) -> None:
        super().__init__(where)
        what = type(self).__name__
        if consistency not in (None, "eventual"):
            raise ModelError(f"{what}(consistency={consistency!r}) is unknown; use 'eventual', or leave it out")
        if isinstance(field, type) or not (isinstance(field, Field) or callable(field)):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ModelError(f"{what}({field!r}) is rejected: give a field, as in `lambda: Department.employee_count`")
        if not key:
            raise ModelError(
                f"{what}(...) needs the key fields of the model that has the field, as templates of the fields of this "
                'model: name="{department}"'
            )
        for name, text in key.items():
            if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise ModelError(
                    f"{what}(..., {name}={text!r}) is rejected: a key field is given as a text, which is a template of "
                    f'the fields of this model: {name}="{{department}}", or "{text}" if it is always the same'
                )
        self.field: Callable[[], Field[int]] | Field[int] = field
        self.create, self.consistency, self.key = create, consistency, dict(key)

    def _bind(self, schema: Schema, annotations: Mapping[str, Any]) -> AggregateSchema:
        """Return the count or sum of a model."""
        make = AggregateMaintainer if self.consistency is None else EventualAggregateMaintainer
        return make(self.name, schema, self.key, field=self.field, of=self.of, where=self.where, create=self.create)

    if TYPE_CHECKING:

        @overload
        def __get__(self, instance: None, owner: type[E]) -> AggregateOf[E]: ...
        @overload
        def __get__(self, instance: object, owner: type[Any]) -> NoReturn: ...
        def __get__(self, instance: object | None, owner: type[Any]) -> Any: ...


class Count(Aggregate):
    """
    A count of the entities of a model, in a field of another entity of the same partition.

    `employees = Count(lambda: Department.employee_count, name="{department}")` in the body of `Employee`: each write of
    an employee that changes it writes the department too, in the same entity group transaction. The field is declared
    `field(default=0, maintained=True)`, and nothing else writes it.

    Args:
        field: The field of the other model that holds the count, or a function that returns it.
        where: Takes the entity; only those for which it is true are counted.
        create: Whether a missing entity that holds the count is inserted, with defaults; otherwise it must be there.
        consistency: "eventual" if that entity is in another partition or table: then the count follows some time later.
        key: The key fields of that entity: "{field}" of this model, or text.
    """

    def __init__(
        self,
        field: Callable[[], Field[int]] | Field[int],
        *,
        where: Callable[[Any], bool] | None = None,
        create: bool = False,
        consistency: Literal["eventual"] | None = None,
        **key: str,
    ) -> None:
        super().__init__(field, where=where, create=create, consistency=consistency, key=key)


class Sum(Aggregate):
    """
    A sum over a field of the entities of a model, in a field of another entity of the same partition.

    It is kept as a `Count` is.

    Args:
        of: Name of the field that is summed: whole numbers; None counts as 0.
        field: The field of the other model that holds the sum, or a function that returns it.
        where: Takes the entity; only those for which it is true are summed.
        create: Whether a missing entity that holds the sum is inserted, with defaults.
        consistency: "eventual" if that entity is in another partition or table: then the sum follows some time later.
        key: The key fields of that entity: "{field}" of this model, or text.
    """

    def __init__(
        self,
        of: str,
        field: Callable[[], Field[int]] | Field[int],
        *,
        where: Callable[[Any], bool] | None = None,
        create: bool = False,
        consistency: Literal["eventual"] | None = None,
        **key: str,
    ) -> None:
        super().__init__(field, where=where, create=create, consistency=consistency, key=key)
        self.of = of


class AggregateMaintainer(AggregateSchema, AuditedMaintainer):
    """A count or sum of a model, which the audit checks."""

    def checks(self, context: AuditContext) -> Sequence[Check]:
        """Return the checks of the entities that add to it, and of those that hold it."""
        return aggregate_checks(context, self)
