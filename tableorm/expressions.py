"""
Expressions: what stands for a field on its class, and the conditions that are made with it.

`Employee.age >= 30` is a condition; conditions combine with `&`, `|` and `~`. An absent value makes a comparison
unknown, neither true nor false, also under `~`.
"""

import datetime as dt
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

import attrs

from .errors import ENCRYPTED, EncodeError, EncryptionError, ModelError, TableOrmError
from .protocol.edm import check_text
from .protocol.filters import And, Compare, Constant, Filter, Not, Op, compare_value, constant, to_odata
from .stores.intervals import successor

T = TypeVar("T")
V = TypeVar("V")

MAX_DEPTH = 50
"""
How deep a condition of a query may nest: deeper than any that a person writes. The filter that it becomes can be a few
levels deeper, and may have 64 levels.
"""


class Expression:
    """
    A condition on fields, such as `Employee.age > 30`. Combine conditions with `&`, `|` and `~`, not with `and`, `or`
    and `not`.

    To compare a field with many values, use `field.in_(values)`: a long chain of `|` takes much longer to build.
    """

    __slots__ = ()

    def __and__(self, other: "Expression") -> "Expression":
        return AllOf((*_terms_of(AllOf, self), *_terms_of(AllOf, other)))

    def __or__(self, other: "Expression") -> "Expression":
        return AnyOf((*_terms_of(AnyOf, self), *_terms_of(AnyOf, other)))

    if not TYPE_CHECKING:

        def __rand__(self, other: object) -> NoReturn:
            _refuse_term(other)

        __ror__ = __rand__

    def __invert__(self) -> "Expression":
        return NoneOf(self)

    def __repr__(self) -> str:
        return str(self)

    def __bool__(self) -> NoReturn:
        raise TypeError(
            f"the condition ({self}) has no truth value: combine conditions with & | ~ instead of and, or, not, and "
            "write a < x and x < b as (a < x) & (x < b) or x.between(a, b)"
        )


def _terms_of(kind: "type[AllOf | AnyOf]", term: object) -> tuple[Expression, ...]:
    """Return the terms of a condition that is of this kind, so that chains stay flat; otherwise the condition."""
    if not isinstance(term, Expression):
        _refuse_term(term)
    return term.terms if isinstance(term, kind) else (term,)


def _refuse_term(term: object) -> NoReturn:
    raise ModelError(f"{term!r} is not a condition; put parentheses around each comparison: (a == 1) & (b == 2)")


@attrs.frozen(eq=False, str=False, repr=False)
class Comparison(Expression):
    """
    The comparison `field op value`; the operator None is `startswith`. A list is equal to each of its elements: that
    is `contains`, and its lists are compared in no other way.
    """

    field: "Field[Any]"
    op: Op | None
    value: Any

    def __str__(self) -> str:
        if self.op is None:
            return f"{self.field}.startswith({_shown(self.field, self.value)})"
        if is_list(self.field):
            return f"{'~' if self.op is Op.NE else ''}{self.field}.contains({_shown(self.field, self.value)})"
        return f"{self.field} {_SIGNS[self.op]} {_shown(self.field, self.value)}"


_SIGNS = {Op.EQ: "==", Op.NE: "!=", Op.GT: ">", Op.GE: ">=", Op.LT: "<", Op.LE: "<="}


@attrs.frozen(eq=False, str=False, repr=False)
class Membership(Expression):
    """The field is one of `values`, or with `negated` none of them; unknown where it is absent."""

    field: "Field[Any]"
    values: tuple[Any, ...]
    negated: bool = False

    def __str__(self) -> str:
        shown = ", ".join(_shown(self.field, value) for value in self.values[:5])
        shown += f", ... {len(self.values)} values" * (len(self.values) > 5)
        return f"~{self.field}.in_([{shown}])" if self.negated else f"{self.field}.in_([{shown}])"


@attrs.frozen(eq=False, str=False, repr=False)
class Presence(Expression):
    """The field has a value, or with `negated` it has none. Never unknown."""

    field: "Field[Any]"
    negated: bool = False

    def __str__(self) -> str:
        return f"{self.field}.is_none()" if self.negated else f"~{self.field}.is_none()"


FieldTerm = Comparison | Membership | Presence
"""A condition on a field of a model."""


def misfit_error(term: FieldTerm, value: object, problem: str) -> TableOrmError:
    """Return the error for a condition whose value its field cannot be compared with."""
    field = term.field
    if _is_encrypted(field):
        return encrypted_error(field)
    problem = f"in the condition {term} is rejected: {problem}"
    return EncodeError(problem, field.model.__name__, field.name, value)


def encrypted_error(field: "Field[Any]") -> EncryptionError:
    """Return the error for a condition on an encrypted field."""
    return EncryptionError(
        f"a condition on {field} is rejected: it is encrypted, or may be, and the service cannot compare it; keep what "
        "is searched for, such as a keyed hash, in a field of its own"
    )


@attrs.frozen(eq=False, str=False, repr=False)
class PropertyComparison(Expression):
    """The comparison of a property of stored rows, whatever their kind; also of PartitionKey, RowKey and Timestamp."""

    property: str
    op: Op
    constant: Constant

    def __str__(self) -> str:
        return to_odata(Compare(self.property, self.op, self.constant))


@attrs.frozen(eq=False, str=False, repr=False)
class AllOf(Expression):
    """All of the terms hold."""

    terms: tuple[Expression, ...]

    def __str__(self) -> str:
        return " & ".join(f"({term})" for term in self.terms) or "true"


@attrs.frozen(eq=False, str=False, repr=False)
class AnyOf(Expression):
    """At least one of the terms holds."""

    terms: tuple[Expression, ...]

    def __str__(self) -> str:
        return " | ".join(f"({term})" for term in self.terms) or "false"


@attrs.frozen(eq=False, str=False, repr=False)
class NoneOf(Expression):
    """The term is false; unknown stays unknown."""

    term: Expression

    def __invert__(self) -> Expression:
        return self.term

    def __str__(self) -> str:
        return f"~({self.term})"


def condition_of(node: Filter) -> Expression:
    """Return a filter as a condition of a query."""
    if isinstance(node, Compare):
        return PropertyComparison(node.property, node.op, node.constant)
    if isinstance(node, Not):
        return NoneOf(condition_of(node.term))
    return (AllOf if isinstance(node, And) else AnyOf)(tuple([condition_of(term) for term in node.terms]))


def conjuncts(expressions: Iterable[Expression]) -> Iterator[Expression]:
    """Yield the terms of which all must hold, if all of these conditions do."""
    for expression in expressions:
        if isinstance(expression, AllOf):
            yield from conjuncts(expression.terms)
        else:
            yield expression


def is_list(field: "Field[Any]") -> bool:
    """Return whether the values of a field are lists: then an equality is one with an element."""
    member = field.model.__schema__.by_path.get(field.name)
    return member is not None and member.type.json_text and member.type.base is list


def _is_encrypted(field: object) -> bool:
    if not isinstance(field, Field):
        return False
    schema = field.model.__schema__
    return bool(schema.fields[schema.field_of(field.name)].encrypted)


def _shown(field: object, value: object) -> str:
    """Return `repr` of a value that a field is compared with, unless the field is encrypted."""
    return repr(ENCRYPTED if _is_encrypted(field) else value)


def _values(field: object, values: Iterable[Any]) -> list[Any]:
    """Return the values of `in_`, in an order that is the same in every process, as cursors need it."""
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
        given = _shown(field, values)
        raise ModelError(f"{field}.in_({given}) is rejected: give a list of values, as in in_([{given}])")
    found = sorted(values, key=repr) if isinstance(values, (set, frozenset)) else list(values)
    for value in found:
        try:
            hash(value)
        except TypeError:
            given = _shown(field, value)
            raise ModelError(f"{field}.in_() is rejected: {given} is not a value that the service compares") from None
    return found


class Comparable(Generic[T]):
    """What stands on the left side of a comparison: a field, or a property that every row has."""

    __slots__ = ()

    def __eq__(self, other: T) -> Expression:  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
        return self._compare(Op.EQ, other)

    def __ne__(self, other: T) -> Expression:  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
        return self._compare(Op.NE, other)

    def __hash__(self) -> int:
        return hash(self.__reduce__())

    def __lt__(self, other: T) -> Expression:
        return self._compare(Op.LT, other)

    def __le__(self, other: T) -> Expression:
        return self._compare(Op.LE, other)

    def __gt__(self, other: T) -> Expression:
        return self._compare(Op.GT, other)

    def __ge__(self, other: T) -> Expression:
        return self._compare(Op.GE, other)

    def between(self, low: T, high: T) -> Expression:
        """
        Return the condition that the value is from `low` to `high`, both included.

            db.select(Employee).where(Employee.age.between(30, 40))
        """
        return AllOf((self._compare(Op.GE, low), self._compare(Op.LE, high)))

    if not TYPE_CHECKING:  # a checker finds these mistakes by itself, and shall go on to find them

        def __bool__(self) -> NoReturn:
            raise ModelError(f"{self} is not a condition; compare it, as in {self} == value, or ~{self}.is_none()")

        def __and__(self, other: object) -> NoReturn:
            _refuse_term(self)

        __rand__ = __or__ = __ror__ = __and__

        def __invert__(self) -> NoReturn:
            raise ModelError(f"~{self} is not a condition; write {self} == False, or {self}.is_none()")

        def __contains__(self, value: object) -> NoReturn:
            given = _shown(self, value)
            raise ModelError(f"{given} in {self} is not a condition; write {self} == {given}, or filter in Python")

        def __iter__(self) -> NoReturn:
            raise ModelError(f"{self} has no items; it stands for the field in conditions, as in {self} == value")

        def __getattr__(self, name: str) -> Any:
            known = "==, !=, <, <=, >, >=, between, in_, is_none, startswith and contains"
            raise AttributeError(f"{self} has no {name!r}; a condition is made by {known}", name=name, obj=self)

    def _compare(self, op: Op, other: object) -> Expression:
        raise NotImplementedError


class Field(Comparable[T]):
    """
    A field of a model, such as `Employee.age`. Comparing it builds a query condition: `Employee.age >= 30`.

    Attributes:
        model: The class that it was taken from.
        name: Its name in Python; for a part of a field, its path, such as "spot.x".
        parts: The fields by which it is compared if it is stored in several properties; otherwise empty.
    """

    __slots__ = ("model", "name", "parts")

    def __init__(self, model: type[Any], name: str, parts: Iterable[str] = ()) -> None:
        self.model, self.name = model, name
        self.parts: tuple[Field[Any], ...] = tuple(Field(model, part) for part in parts)

    def __str__(self) -> str:
        return f"{self.model.__name__}.{self.name}"

    def __repr__(self) -> str:
        return f"<field {self}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr if self.name.isidentifier() else Field, (self.model, self.name)

    def in_(self, values: Iterable[T]) -> Expression:
        """
        Return the condition that the field has one of these values. Without values, a query finds nothing.

            db.select(Employee).where(Employee.department.in_(["Sales", "HR"]))

        For a key field, each value becomes a request of its own; a query sends at most 1,000 of these.

        Raises:
            ModelError: None is among the values, or they are not an iterable.
            EncodeError: A value is not of the field's type.
        """
        found = Membership(self, tuple(_values(self, values)))
        for value in found.values:
            self._require_constant(value, found)
        return found

    def is_none(self) -> Expression:
        """
        Return the condition that the field has no value, which means that the property is absent.

            sales = db.select(Employee).where(Employee.department == "Sales")
            sales.where(Employee.email.is_none())

        The service can't evaluate this, so it's evaluated on the rows that come back. The service does evaluate
        `~field.is_none()`.
        """
        return AllOf(tuple(part.is_none() for part in self.parts)) if self.parts else Presence(self, negated=True)

    def startswith(self, prefix: str) -> Expression:
        """
        Return the condition that the string starts with `prefix`. This is case-sensitive.

            sales = db.select(Employee).where(Employee.department == "Sales")
            sales.where(Employee.name.startswith("K"))
        """
        if not isinstance(prefix, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ModelError(f"{self}.startswith() needs a str, got {_shown(self, prefix)}")
        found, fault = Comparison(self, None, prefix), check_text(prefix)
        if fault:
            raise misfit_error(found, prefix, f"{fault}, so no stored text starts with it")
        if self.parts or is_list(self):
            self._require_constant(prefix, found)
        return found

    def contains(self: "Field[list[V]] | Field[list[V] | None]", value: V) -> Expression:
        """
        Return the condition that a list has this element. An index with `{field:each}` in its row_key answers it; in
        other queries it is evaluated on the rows that come back.

            db.select(Book).where(Book.shelf == "A", Book.tags.contains("sf"))

        Raises:
            ModelError: The field is no list.
            EncodeError: The value is not of the type of the elements.
        """
        return Comparison(self, Op.EQ, self._element(value))

    def _compare(self, op: Op, other: object) -> Expression:
        found = Comparison(self, op, other)
        self._require_constant(other, found)
        return found

    def _element(self, value: Any) -> Any:
        """Return an element of a list as conditions compare it. Refuses what no list of the field can have."""
        if not is_list(self):
            raise ModelError(f"{self}.contains() is rejected: the field is no list; use another condition on it")
        try:
            hash(value)
            self.model.__schema__.fields[self.name].type.encode([value])
        except (TypeError, ValueError) as error:
            kind = self.model.__schema__.fields[self.name].type.name
            term = Comparison(self, Op.EQ, value)
            raise misfit_error(term, value, f"the value {error}; the field is {kind}") from None
        return value

    def _require_constant(self, other: object, term: FieldTerm) -> None:
        """Refuse a value of a condition that no value of the field can equal."""
        if self.parts:
            if is_list(self):
                raise misfit_error(term, other, "a list has no comparison; use contains() for one element")
            more = ", ..." if len(self.parts) > 3 else ""
            raise misfit_error(term, other, f"compare a part of it: {', '.join(map(str, self.parts[:3]))}{more}")
        if isinstance(other, (Field, SystemField)):
            raise ModelError(
                f"cannot compare {self} with {other}: the service compares a property with a constant only; "
                "filter in Python"
            )
        if other is None:
            raise ModelError(
                f"cannot compare {self} with None: an absent property satisfies no comparison; use {self}.is_none()"
            )
        kind = self.model.__schema__.by_path[self.name].type
        if kind.json_text:
            remedy = "use contains() for one element, or filter in Python" if is_list(self) else "filter in Python"
            raise misfit_error(term, other, f"a field stored as JSON cannot be compared; {remedy}")
        try:
            kind.encode(other)
        except ValueError as error:
            raise misfit_error(term, other, f"the value {error}; the field is {kind.name}") from None


S = TypeVar("S", str, dt.datetime)


class SystemField(Comparable[S]):
    """
    The PartitionKey, RowKey or Timestamp of a row, as stored. Comparing it builds a query condition.

    Attributes:
        name: Which of the three it is.
    """

    __slots__ = ("_kind", "name")

    def __init__(self, name: str, kind: type[S]) -> None:
        self.name = name
        self._kind: type[S] = kind

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> str:
        return self.name

    def in_(self, values: Iterable[S]) -> Expression:
        """Return the condition that it is one of these values. Raises the same errors as `Field.in_`."""
        return AnyOf(tuple(self._compare(Op.EQ, value) for value in _values(self, values)))

    def is_none(self) -> Expression:
        """Return a condition that is never true, since every row has these properties."""
        return AnyOf(())

    def startswith(self, prefix: str) -> Expression:
        """Return the condition that the key starts with `prefix`. This is case-sensitive."""
        if self._kind is not str:
            raise ModelError(f"{self}.startswith() is rejected: it is for text")
        start = self._compare(Op.GE, prefix)
        end = successor(prefix)
        return start if end is None else AllOf((start, self._compare(Op.LT, end)))

    def _compare(self, op: Op, other: object) -> Expression:
        if not isinstance(other, self._kind):
            raise ModelError(f"cannot compare {self} with {other!r}: it needs a {self._kind.__name__}")
        value: Any = other
        fault = check_text(value) if isinstance(value, str) else None
        if fault:
            raise EncodeError(f"{fault}, so no key is equal to it", "", self.name, other)
        try:
            literal = constant(other)
        except ValueError as error:
            raise ModelError(f"cannot compare {self} with {other!r}: {error}") from None
        return condition_of(compare_value(self.name, op, literal))


PartitionKey: SystemField[str] = SystemField("PartitionKey", str)
"""The PartitionKey of a row, as it is stored, for conditions."""
RowKey: SystemField[str] = SystemField("RowKey", str)
"""The RowKey of a row, as it is stored, for conditions."""
Timestamp: SystemField[dt.datetime] = SystemField("Timestamp", dt.datetime)
"""When a row was last written, by the store's clock, for conditions."""
