"""
Conditions and values that are typed at the prompt: `age > 30 and city == 'Oslo'`, and `id=7`.
"""

import ast
import datetime as dt
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import reduce
from itertools import pairwise
from operator import eq, ge, gt, le, lt, ne
from typing import Any, get_args

import msgspec

from ..errors import ModelError, TableOrmError, near
from ..expressions import Expression, PartitionKey, RowKey, SystemField, Timestamp
from ..models.entity import Entity, schema_of

_KEYS: dict[str, tuple[SystemField[Any], type]] = {
    "PartitionKey": (PartitionKey, str),
    "RowKey": (RowKey, str),
    "Timestamp": (Timestamp, dt.datetime),
}
_NAMED = {"true": True, "false": False}
_SIGNS: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: eq,
    ast.Is: eq,
    ast.NotEq: ne,
    ast.IsNot: ne,
    ast.Lt: lt,
    ast.LtE: le,
    ast.Gt: gt,
    ast.GtE: ge,
    ast.In: lambda field, values: field.in_(values),
}
_FLIPPED = {gt: lt, ge: le, lt: gt, le: ge}
_EXAMPLE = "compare fields with values, as in: age > 30 and city == 'Oslo'; or in OData: age gt 30 and city eq 'Oslo'"
# What OData spells in another way: strings, with their types before them; numbers with a suffix; and operators.
_ODATA = re.compile(r"(?:datetime|guid)?'((?:[^']|'')*)'|\b(\d+)L\b|\b(eq|ne|gt|ge|lt|le)\b")
_OPERATORS = {"eq": "==", "ne": "!=", "gt": ">", "ge": ">=", "lt": "<", "le": "<="}


def read_value(annotation: Any, value: object) -> Any:
    """
    Return a value as a field of a type has it; as it is if it cannot be, which the condition or key then refuses.

    Raises:
        ModelError: The value should be a moment, and is spelled otherwise.
    """
    try:
        return msgspec.convert(value, annotation, strict=False)
    except (msgspec.ValidationError, TypeError):
        if isinstance(value, str) and dt.datetime in (annotation, *get_args(annotation)):
            raise ModelError(f"{value!r} is rejected: write a time as in '2026-01-31T12:00:00Z'") from None
        return value


def parse_fields(annotations: Mapping[str, Any], given: Iterable[str]) -> dict[str, Any]:
    """
    Return the values of `field=value` arguments by name.

    Args:
        annotations: The fields that there are, with their types.
        given: The arguments.

    Raises:
        ModelError: One has another form, names no field, or one that was given before.
    """
    fields: dict[str, Any] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or name not in annotations:
            known = near(name, annotations, "field")
            raise ModelError(f"{text!r} is rejected: give FIELD=VALUE; {known}")
        if name in fields:
            raise ModelError(f"{text!r} is rejected: {name} is given twice")
        fields[name] = read_value(annotations[name], value)
    return fields


def parse_where(text: str, model: type[Entity]) -> Expression:
    """
    Return the condition that a text states on the fields of a model. Nothing of the text is run.

    Raises:
        ModelError: The text is no condition, or names what is no field.
        EncodeError: A value does not fit its field.
    """
    try:
        condition: Expression = _Reader(text, model).read(parse_syntax(text)[0])
    except SyntaxError as error:
        raise ModelError(f"--where {text!r} is rejected: {error.msg}; {_EXAMPLE}") from error
    except TableOrmError:
        raise
    except (RecursionError, MemoryError, ValueError) as error:
        raise ModelError(f"--where is rejected: it is nested too deeply, or is no text; {_EXAMPLE}") from error
    return condition


def parse_syntax(text: str) -> tuple[ast.expr, str]:
    """
    Return the tree of a condition, and in which language it is: Python, or OData if it cannot be Python.

    Raises:
        SyntaxError: It is neither.
    """
    try:
        return ast.parse(text.strip(), mode="eval").body, "Python"
    except SyntaxError:
        with suppress(SyntaxError):
            return ast.parse(_ODATA.sub(_as_python, text).strip(), mode="eval").body, "OData"
        raise


def _as_python(token: re.Match[str]) -> str:
    """Return a literal or an operator of OData as Python writes it."""
    string, number, operator = token.groups()
    return repr(string.replace("''", "'")) if string is not None else number or _OPERATORS[operator]


class _Reader:
    """Makes conditions of the parts of a text."""

    def __init__(self, text: str, model: type[Entity]) -> None:
        self._text, self._model = text, model
        self._members = schema_of(model).by_property | schema_of(model).by_path

    def read(self, node: ast.expr) -> Any:
        """Return a part as a condition."""
        match node:
            case ast.BoolOp(op=op, values=terms):
                both = isinstance(op, ast.And)
                return reduce(lambda one, two: one & two if both else one | two, map(self.read, terms))
            case ast.UnaryOp(op=ast.Not(), operand=term):
                return ~self.read(term)
            case ast.Call(func=ast.Attribute(value=left, attr="startswith"), args=[prefix], keywords=[]):
                return self._field(left)[0].startswith(self._value(prefix, str))
            case ast.Call(func=ast.Attribute(value=left, attr="contains"), args=[element], keywords=[]):
                return self._contains(left, element)
            case ast.Compare(left=first, ops=signs, comparators=others):
                pairs = pairwise([first, *others])
                found = [self._compare(*pair, sign) for pair, sign in zip(pairs, signs, strict=True)]
                return reduce(lambda one, two: one & two, found)
            case _:
                raise self._refusal(node)

    def _contains(self, left: ast.expr, element: ast.expr) -> Any:
        field, kind = self._field(left)
        (given,) = read_value(kind, [self._value(element, Any)])
        return field.contains(given)

    def _compare(self, left: ast.expr, right: ast.expr, sign: ast.cmpop) -> Any:
        if isinstance(sign, ast.NotIn):
            return ~self._compare(left, right, ast.In())
        operator: Any = _SIGNS[type(sign)]
        if isinstance(left, ast.Constant):
            if isinstance(sign, ast.In):
                return self._contains(right, left)
            left, right, operator = right, left, _FLIPPED.get(operator, operator)
        field, kind = self._field(left)
        value = self._value(right, kind)
        if value is None and operator in (eq, ne):
            return field.is_none() if operator is eq else ~field.is_none()
        return operator(field, value)

    def _field(self, node: ast.expr) -> tuple[Any, Any]:
        """Return what stands for the field that a part names, and the type of its values."""
        path = ast.unparse(node)
        if path in _KEYS:
            return _KEYS[path]
        if not isinstance(node, (ast.Name, ast.Attribute)):
            raise self._refusal(node)
        if path not in self._members:
            known = f"{self._model.__name__} has no field {path!r}; {near(path, [*self._members, *_KEYS], 'field')}"
            raise ModelError(f"--where {self._text!r} is rejected: {known}")
        member = self._members[path]
        name, dot, _ = member.path.partition(".")
        field: Any = getattr(self._model, name)
        if dot:
            field = next(part for part in field.parts if part.name == member.path)
        return field, member.type.annotation

    def _value(self, node: ast.expr, kind: Any) -> Any:
        if isinstance(node, ast.Name) and node.id in _NAMED:
            return _NAMED[node.id]
        if isinstance(node, (ast.List, ast.Tuple)):
            return [self._value(each, kind) for each in node.elts]
        try:
            value = ast.literal_eval(node)
        except (ValueError, TypeError):
            raise self._refusal(node) from None
        if isinstance(value, (dict, set, complex)):
            raise self._refusal(node)
        return read_value(kind, value)

    def _refusal(self, node: ast.expr) -> ModelError:
        return ModelError(f"--where {self._text!r} is rejected: {ast.unparse(node)!r} is not understood; {_EXAMPLE}")
