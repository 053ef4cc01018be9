"""
Expressions: what a field is on the class, and the conditions made of it.

`Employee.age >= 30` is a condition; conditions combine with `&`, `|` and `~`. An absent value makes a comparison
unknown, neither true nor false, also under `~`.
"""

from collections.abc import Iterator
from typing import Any, Generic, NoReturn, TypeVar

import attrs

from .errors import EncodeError, ModelError
from .protocol.edm import check_text
from .protocol.filters import Op

__all__ = ["AllOf", "AnyOf", "Comparison", "Expression", "Field", "NoneOf", "conjuncts"]

T = TypeVar("T")


class Expression:
    """A condition on fields. Combine with `&`, `|`, `~`; it has no truth value."""

    __slots__ = ()

    def __and__(self, other: "Expression") -> "Expression":
        return AllOf(_chain(AllOf, self, _checked(other)))

    def __or__(self, other: "Expression") -> "Expression":
        return AnyOf(_chain(AnyOf, self, _checked(other)))

    def __invert__(self) -> "Expression":
        return NoneOf(self)

    def __bool__(self) -> NoReturn:
        raise TypeError(
            f"the condition ({self}) has no truth value: combine conditions with & | ~ instead of and, or, not, and "
            "write a < x and x < b as (a < x) & (x < b) or x.between(a, b)"
        )


def _chain(kind: "type[AllOf | AnyOf]", left: Expression, right: Expression) -> tuple[Expression, ...]:
    # Flat, so that a condition made of a thousand others is not a thousand levels deep.
    return (left.terms if isinstance(left, kind) else (left,)) + (right.terms if isinstance(right, kind) else (right,))


def _checked(other: object) -> Expression:
    if not isinstance(other, Expression):
        raise TypeError(f"{other!r} is not a condition; put parentheses around each comparison: (a == 1) & (b == 2)")
    return other


@attrs.frozen(eq=False, str=False, repr=False)
class Comparison(Expression):
    """`field op value`; `op` None is `startswith`."""

    field: "Field[Any]"
    op: Op | None
    value: Any

    def __str__(self) -> str:
        if self.op is None:
            return f"{self.field}.startswith({self.value!r})"
        return f"{self.field} {_SIGNS[self.op]} {self.value!r}"

    __repr__ = __str__


_SIGNS = {Op.EQ: "==", Op.NE: "!=", Op.GT: ">", Op.GE: ">=", Op.LT: "<", Op.LE: "<="}


@attrs.frozen(eq=False, str=False, repr=False)
class AllOf(Expression):
    """All hold."""

    terms: tuple[Expression, ...]

    def __str__(self) -> str:
        return " & ".join(f"({term})" for term in self.terms)

    __repr__ = __str__


@attrs.frozen(eq=False, str=False, repr=False)
class AnyOf(Expression):
    """Any holds."""

    terms: tuple[Expression, ...]

    def __str__(self) -> str:
        return " | ".join(f"({term})" for term in self.terms)

    __repr__ = __str__


@attrs.frozen(eq=False, str=False, repr=False)
class NoneOf(Expression):
    """The term is false; unknown stays unknown."""

    term: Expression

    def __str__(self) -> str:
        return f"~({self.term})"

    __repr__ = __str__


def conjuncts(expression: Expression) -> Iterator[Expression]:
    """The terms of which all must hold."""
    if isinstance(expression, AllOf):
        for term in expression.terms:
            yield from conjuncts(term)
    else:
        yield expression


class Field(Generic[T]):
    """
    A field as it stands on its class: compare it to get a condition.

    Attributes:
        model: The class it was taken from.
        name: Its name in Python.
    """

    __slots__ = ("model", "name")

    def __init__(self, model: type[Any], name: str) -> None:
        self.model, self.name = model, name

    def __str__(self) -> str:
        return f"{self.model.__name__}.{self.name}"

    def __repr__(self) -> str:
        return f"<field {self}>"

    def __hash__(self) -> int:
        return hash((self.model, self.name))

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (self.model, self.name)

    def __eq__(self, other: T) -> Expression:  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
        return self._compare(Op.EQ, other)

    def __ne__(self, other: T) -> Expression:  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
        return self._compare(Op.NE, other)

    def __lt__(self, other: T) -> Expression:
        return self._compare(Op.LT, other)

    def __le__(self, other: T) -> Expression:
        return self._compare(Op.LE, other)

    def __gt__(self, other: T) -> Expression:
        return self._compare(Op.GT, other)

    def __ge__(self, other: T) -> Expression:
        return self._compare(Op.GE, other)

    def between(self, low: T, high: T) -> Expression:
        """At least `low` and at most `high`: both ends are inside."""
        return AllOf((self._compare(Op.GE, low), self._compare(Op.LE, high)))

    def startswith(self, prefix: str) -> Expression:
        """Text that starts with `prefix`, to the letter."""
        if not isinstance(prefix, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ModelError(f"{self}.startswith() needs a str, got {prefix!r}")
        fault = check_text(prefix)
        if fault:
            raise EncodeError(f"{fault}, so no stored text starts with it", self.model.__name__, self.name, prefix)
        return Comparison(self, None, prefix)

    def _compare(self, op: Op, other: object) -> Expression:
        if isinstance(other, Field):
            raise ModelError(
                f"cannot compare {self} with {other}: the service compares a property with a constant only; "
                "filter in Python"
            )
        if other is None:
            raise ModelError(f"cannot compare {self} with None: an absent property satisfies no comparison")
        return Comparison(self, op, other)
