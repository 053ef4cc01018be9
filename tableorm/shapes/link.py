"""
Links: the key of an entity of another model, in two properties. `buyer: Mapped[Key[Customer] | None]` is one, and
`courses: Mapped[list[Key[Course]]]` is a list of links, in one property of JSON text.

A key is read as one of the declared class, so that a key of a class of an abstract base comes back as one of the base.
"""

import typing
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import make_dataclass
from typing import Any, NoReturn, cast

from ..expressions import AllOf, AnyOf, Comparison, Expression, Field, FieldTerm, NoneOf, misfit_error
from ..keys.escapes import escape
from ..models.key import Key
from ..models.property_types import Shape, ValueType, split_optional
from ..models.schema import Schema
from ..protocol.codes import Fault
from ..protocol.filters import Op
from ..protocol.limits import check_key, key_fault


class _Checked:
    """Stands for the class of the values, of which there are none: each key is checked, since its class says little."""


def _restored(model: type[Any], name: str, partition_key: str, row_key: str) -> Any:
    shape: LinkShape | LinksShape = model.__schema__.fields[name].shape
    return (shape if isinstance(shape, LinkShape) else shape.link).pair(partition_key, row_key)


class _LinkField(Field[Key[Any]]):
    """A link on its class: `Order.buyer == key`."""

    __slots__ = ()

    def in_(self, values: Iterable[Key[Any]]) -> Expression:
        """Return the condition that the field has one of these keys."""
        return AnyOf(tuple([self._compare(Op.EQ, value) for value in values]))

    def _compare(self, op: Op, other: object) -> Expression:
        shape: LinkShape = self.model.__schema__.fields[self.name].shape
        term, given = Comparison(self, op, other), cast("Any", other)
        if op not in (Op.EQ, Op.NE) or not isinstance(given, Key):
            self._require_constant(other, term)
        try:
            pair = shape.write(other)
        except ValueError as error:
            raise misfit_error(term, other, f"it {error}") from None
        same = AllOf(tuple([part == text for part, text in zip(self.parts, pair, strict=True)]))
        return same if op is Op.EQ else NoneOf(same)

    def _require_constant(self, other: object, term: FieldTerm) -> NoReturn:
        of = self.model.__schema__.fields[self.name].type.name
        given = "None; write .is_none()" if other is None else f"{other!r}"
        raise misfit_error(term, other, f"a link is compared by == and != with a {of}, not with {given}")


class LinkShape(Shape[Key[Any]]):
    """
    The shape of a link.

    Attributes:
        target: The class of the keys.
        pair: The class of what JSON has in place of a key.
    """

    target: type[Any]
    pair: Any

    def bind(self, model: type[Any], name: str, kind: type[Any], annotation: Any) -> None:
        """Take note of the class of the keys; see `Shape`."""
        (target,) = typing.get_args(split_optional(annotation)[0])
        if not isinstance(target, type):
            problem = f"is declared as a key of {target!r}; give a model, as in Mapped[Key[Customer] | None]"
            raise ValueError(problem)  # noqa: TRY004 - as a `Shape` does
        self.target = target

        def reduce(pair: Any) -> Any:
            return _restored, (model, name, pair.partition_key, pair.row_key)

        # What JSON has: its name says in messages and schemas what the field was declared as.
        parts = [("partition_key", str), ("row_key", str)]
        namespace = {"__reduce__": reduce}
        self.pair = make_dataclass(f"Key[{target.__name__}]", parts, frozen=True, namespace=namespace)

    @property
    def schema(self) -> Schema:
        """The schema of the class of the keys."""
        schema = getattr(self.target, "__schema__", None)
        if not isinstance(schema, Schema) or schema.table is None:
            raise ValueError(f"is a key of {self.target.__name__}, which is no model with a table")
        return schema

    def value_type(self, annotation: Any) -> tuple[ValueType, bool]:
        """Return the type of the values; see `Shape`."""
        return ValueType(annotation=self.pair, encode=self.write, base=_Checked), split_optional(annotation)[1]

    def members(self, name: str, property_: str) -> Sequence[tuple[str, str, Any]]:
        """Return the two halves; see `Shape`."""
        return (f"{name}.partition_key", f"{property_}_pk", str), (f"{name}.row_key", f"{property_}_rk", str)

    def write(self, value: Any) -> Sequence[Any]:
        """Return the two halves of a key of the class; see `Shape`."""
        if not isinstance(value, Key):
            raise ValueError(f"is no key; make one with {self.target.__name__}.key(...)")  # noqa: TRY004
        key: Key[Any] = cast("Any", value)
        if not issubclass(key.model, self.target):
            raise ValueError(f"is a key of {key.model.__name__}")  # noqa: TRY004
        table = self.schema.only_table
        if table is not None and key.table.lower() != table.lower():
            raise ValueError(f"is a key in table {key.table}, and {self.target.__name__} is in {table}")
        return key.partition_key, key.row_key

    def read(self, values: Sequence[Any]) -> Key[Any]:
        """Return the key; see `Shape`."""
        partition_key, row_key = values
        if partition_key is None or row_key is None:
            raise ValueError("is a key of which one half is missing")
        for name, key in (("PartitionKey", partition_key), ("RowKey", row_key)):
            if fault := key_fault(key):
                raise ValueError(f"is no key that an entity can have: its {name} {fault}")
        return self._made(partition_key, row_key)

    def from_json(self, value: Any) -> Any:
        """Return the key that JSON stands for; see `Shape`."""
        halves: dict[str, Any] = value if hasattr(value, "keys") else {}
        if halves.keys() == {"partition_key", "row_key"}:
            with suppress(Fault, TypeError, AttributeError):
                check_key("PartitionKey", halves["partition_key"])
                check_key("RowKey", halves["row_key"])
                return self._made(halves["partition_key"], halves["row_key"])
        return value

    def _made(self, partition_key: str, row_key: str) -> Key[Any]:
        schema = self.schema
        return Key(self.target, schema.table_of(partition_key, row_key), partition_key, row_key)

    def expression(self, model: type[Any], name: str) -> Field[Any]:
        """Return what is compared with keys; see `Shape`."""
        return _LinkField(model, name, [f"{name}.partition_key", f"{name}.row_key"])


class _LinksField(Field[list[Key[Any]]]):
    """A list of links on its class: `Student.courses.contains(key)`."""

    __slots__ = ()

    def _element(self, value: Any) -> Any:
        shape: LinksShape = self.model.__schema__.fields[self.name].shape
        ((pair,),) = shape.write([super()._element(value)])
        return pair


class LinksShape(Shape[list[Key[Any]]]):
    """
    The shape of a list of links.

    Attributes:
        link: The shape of each.
    """

    link: LinkShape

    @staticmethod
    def element_text(value: Any) -> str:
        """Return the text of one of the keys, as a key has it."""
        return f"{escape(value.partition_key, '|')}|{value.row_key}"

    def bind(self, model: type[Any], name: str, kind: type[Any], annotation: Any) -> None:
        """Take note of the class of the keys; see `Shape`."""
        self.link = LinkShape()
        self.link.bind(model, name, kind, typing.get_args(split_optional(annotation)[0])[0])

    def value_type(self, annotation: Any) -> tuple[ValueType, bool]:
        """Return the type of the values; see `Shape`."""
        return ValueType(annotation=_list_of(self.link.pair), encode=self.write, base=_Checked), split_optional(
            annotation
        )[1]

    def copy(self, value: list[Key[Any]]) -> list[Key[Any]]:
        """Return another list of the same keys; see `Shape`."""
        return [*value]

    def members(self, name: str, property_: str) -> Sequence[tuple[str, str, Any]]:
        """Return the one member; see `Shape`."""
        return [(name, property_, _list_of(self.link.pair))]

    def write(self, value: Any) -> Sequence[Any]:
        """Return what JSON has of the keys; see `Shape`."""
        if type(value) is not list:
            raise ValueError("is no list of keys")
        return [[self.link.pair(*self.link.write(key)) for key in cast("Any", value)]]

    def read(self, values: Sequence[Any]) -> list[Key[Any]]:
        """Return the keys; see `Shape`."""
        return [self.link.read((each.partition_key, each.row_key)) for each in values[0]]

    def from_json(self, value: Any) -> Any:
        """Return the keys that JSON stands for; see `Shape`."""
        return [self.link.from_json(each) for each in cast("Any", value)] if type(value) is list else value

    def expression(self, model: type[Any], name: str) -> Field[Any]:
        """Return what is asked for one of the keys; see `Shape`."""
        return _LinksField(model, name, [name])


def _list_of(kind: Any) -> Any:
    return list[kind]


Key._shape_of_values = LinkShape  # pyright: ignore[reportPrivateUsage]
Key._shape_of_elements = LinksShape  # pyright: ignore[reportPrivateUsage]
