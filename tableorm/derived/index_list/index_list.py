"""
Index lists: for a value that many entities have, one entity that holds the keys of all of them.

The table design guide's "index entities", second option: in the partition of the entities, kept by the same entity
group transaction. A list begins as one row, `lastname_Jones~`. Long before that is full it is divided into two, by a
bit of the hash of each key, `lastname_Jones~0` and `lastname_Jones~1`, and so on; the row that was divided stays,
empty.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, overload

from ...errors import ModelError, TemplateError
from ...keys.bounds import Part
from ...keys.formats import Format, make_format
from ...keys.overlap import refuse_meeting
from ...keys.template import Template
from ...models.derivation import Derivation, DerivationOf
from ...models.manifest import ListEntry
from ...models.schema import Schema, concrete
from ...protocol.limits import MAX_KEY_UNITS
from .rows import BITS, SEPARATOR

if TYPE_CHECKING:
    from ...models.entity import Entity

__all__ = ["IndexList", "ListOf", "ListSchema"]

E = TypeVar("E", bound="Entity")


class ListOf(DerivationOf[E]):
    """
    An index list of a model, as `Employee.by_last_name` gives it: for `db.lookup`.
    """

    @property
    def schemas(self) -> "list[ListSchema]":
        """Its schema in each concrete class."""
        return [schema.lists[self.name] for schema in concrete(self.model.__schema__)]


class IndexList(Derivation):
    """
    The entities that have a value, found by one entity that lists their keys: `by_last_name =
    IndexList(row_key="lastname_{last_name}")` in the body of the class. `await db.lookup(Employee.by_last_name,
    department="Sales", last_name="Jones")` gives them.

    A list costs a read and a write of one row with each insert, and all writers of one value meet there; for values
    that many entities have, an `Index` with a row for each entity is better.

    Args:
        row_key: Template of the lists' keys. Begin it with other literal text than the model's and other indexes'.
        where: Takes the entity; only those for which it is true are listed.
        divide_at: Bytes of keys of which a row is divided, up to 512 KiB. Each write reads and writes one row, so a
            small one takes less; all rows of a list are read by one query.

    Raises:
        ModelError: An argument is wrong; when the class is made, the template does not fit the model.
    """

    on_class = ListOf

    def __init__(self, *, row_key: str, where: Callable[[Any], bool] | None = None, divide_at: int = 64 * 1024) -> None:
        if not isinstance(row_key, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ModelError(f"IndexList(row_key={row_key!r}) is refused: give a template, as 'lastname_{{last_name}}'")
        if type(divide_at) is not int or not 2048 <= divide_at <= 512 * 1024:
            raise ModelError(f"IndexList(divide_at={divide_at!r}) is refused: give bytes from 2048 to {512 * 1024}")
        super().__init__(where)
        self.row_key, self.divide_at = row_key, divide_at

    if TYPE_CHECKING:

        @overload
        def __get__(self, instance: None, owner: type[E]) -> ListOf[E]: ...
        @overload
        def __get__(self, instance: object, owner: type[Any]) -> NoReturn: ...
        def __get__(self, instance: object | None, owner: type[Any]) -> Any: ...


class ListSchema:
    """
    An index list of a model.

    Args:
        declared: The declaration.
        primary: The schema of the model.
        row: Template of the lists' keys.
    """

    def __init__(self, declared: IndexList, primary: Schema, row: Template) -> None:
        self.declared, self.primary, self.row = declared, primary, row
        self.name = f"{primary.name}.{declared.name}"
        self.kind = f"{primary.kind}#{declared.name}"
        self.needed = tuple(name for name in row.fields if primary.fields[name].optional)
        assert primary.partition is not None
        assert primary.row is not None
        self.key_names = frozenset({*primary.partition.fields, *row.fields})
        if primary.kind is None or primary.discriminator not in ("property", "row_key"):
            raise ModelError(
                f"{self.name}: an index needs a kind, and discriminator='property' or 'row_key', which tell rows apart"
            )
        refuse_meeting(self.name, self.rows, f"{primary.name}.row_key", primary.row)
        primary.refuse_maintained(row.fields, self.name, f"row_key {row.text!r} has")

    @property
    def rows(self) -> Template:
        """Template of the RowKeys that its rows have, to tell them from others."""
        parts = self.row.parts
        if parts and parts[-1].field is None:
            parts = (*parts[:-1], Part(parts[-1].literal + SEPARATOR))
        else:
            parts = (*parts, Part(SEPARATOR))
        bits = make_format(str, "")
        assert isinstance(bits, Format)
        return Template(self.row.text, self.row.model, self.row.key, (*parts, Part("", "bits", bits)))

    def address(self, values: Mapping[str, Any]) -> str | None:
        """The key of the list that an entity with these fields is in; None if in none. Raises TemplateError."""
        if any(values[name] is None for name in self.needed):
            return None
        if not self.primary.satisfies(self.declared.where, values, f"the index list {self.name}"):
            return None
        key = self.row.format(values)
        if len(key) + BITS > MAX_KEY_UNITS // 2 and len(key.encode("utf-16-le")) // 2 + BITS > MAX_KEY_UNITS:
            raise TemplateError(
                f"makes the key {key[:40]!r}... of a list, which has to be {BITS} UTF-16 units shorter than other "
                f"keys, {MAX_KEY_UNITS - BITS}, to be divided; shorten {', '.join(self.row.fields)}",
                self.name,
                "row_key",
                self.row.text,
            )
        return key

    def mark(self, values: Mapping[str, Any]) -> ListEntry | None:
        """What an entity with these fields notes of it. Raises TemplateError."""
        key = self.address(values)
        return None if key is None else ListEntry(key, self.kind)
