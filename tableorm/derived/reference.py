"""
References: how fields of an entity name the key of another one.
"""

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

from ..errors import ModelError, NotSupported
from ..expressions import Field
from ..models.schema import Schema
from ..protocol.edm import Edm

if TYPE_CHECKING:
    from ..models.entity import Entity

__all__ = ["Reference", "Relation", "as_function", "find_target"]

E = TypeVar("E", bound="Entity")

_REFERENCE = re.compile(r"\{(\w+)\}")


def as_function(field: Any) -> Callable[[], Field[Any]]:
    """Return a function that returns the field, whether a field or a function was given."""
    found: Callable[[], Field[Any]] = partial(_itself, field) if isinstance(field, Field) else field
    return found


def _itself(field: Any) -> Any:
    return field


class _Undeclared(ModelError):
    """A name that there is not yet: perhaps of a class that is declared later."""


def find_target(label: str, function: Callable[[], Any]) -> Any:
    """What a declaration refers to."""
    try:
        return function()
    except NameError as error:
        raise _Undeclared(f"{label}: {error}; declare or import it before entities are written") from error
    except AttributeError as error:
        if isinstance(error.obj, ModuleType):  # which may be on the way of being imported
            raise _Undeclared(f"{label}: {error}; declare or import it before entities are written") from error
        raise ModelError(f"{label}: {error}; give a field of the model, or the model, that is meant") from error


class Relation:
    """The base of what refers to other models."""

    def resolve(self) -> Any:
        """Return the other model, checked. Raises ModelError."""
        raise NotImplementedError

    def check(self) -> None:
        """
        Refuse what does not fit the other model, if that is declared by now.

        Raises:
            ModelError: The declaration does not fit.
        """
        with suppress(_Undeclared):
            self.resolve()


class Reference:
    """Finds the other entity by fields of this one."""

    def __init__(self, label: str, schema: Schema, key: Mapping[str, str]) -> None:
        self.label, self.schema = label, schema
        self._sources: dict[str, str] = {}
        self._texts: dict[str, str] = {}
        for name, text in key.items():
            found = _REFERENCE.fullmatch(text)
            if found is None and ("{" in text or "}" in text):
                raise ModelError(f"{label}: {name}={text!r} is refused: give one field, as '{{name}}', or plain text")
            if found is None:
                self._texts[name] = text
                continue
            if found[1] not in schema.fields:
                raise ModelError(f"{label}: {name}={text!r} is refused: {schema.name} has no field {found[1]!r}")
            schema.refuse_maintained([found[1]], label, f"{name}={text!r} has")
            self._sources[name] = found[1]
        self.fields = frozenset(self._sources.values())

    def find(self, target: Schema, values: Mapping[str, Any], partition_key: str) -> str | None:
        """
        The RowKey of the other entity; None if a field is None.

        Raises:
            TemplateError: A value does not fit the other model's key.
            NotSupported: It is in another partition.
        """
        given = {name: values[source] for name, source in self._sources.items()} | self._texts
        if any(value is None for value in given.values()):
            return None
        key = target.key(given)
        if key.partition_key != partition_key:
            raise NotSupported(
                f"{self.label}: {key} is in another partition than {partition_key!r}, and one transaction cannot write "
                "both; only entities of one partition are kept equal"
            )
        return key.row_key

    def check(self, target: Schema) -> None:
        """
        Refuse what can never be in one partition.

        Raises:
            ModelError: The other model is in another table, or the key is not its key.
        """
        if target.table != self.schema.table:
            raise ModelError(
                f"{self.label}: {target.name} is in table {target.table}, {self.schema.name} in {self.schema.table}; "
                "only entities of one partition are kept equal"
            )
        given = frozenset({*self._sources, *self._texts})
        if given != target.key_names:
            raise ModelError(
                f"{self.label}: the key of {target.name} is made of {', '.join(target.key_fields)}, given are "
                f"{', '.join(sorted(given))}"
            )
        for name, source in self._sources.items():
            mine, theirs = self.schema.fields[source].type, target.fields[name].type
            if mine.name != theirs.name and not {mine.edm, theirs.edm} <= {Edm.INT32, Edm.INT64}:
                raise ModelError(
                    f"{self.label}: {name}='{{{source}}}' is refused: {source} is {mine.name}, and {name} of "
                    f"{target.name} is {theirs.name}"
                )
        for name, text in self._texts.items():
            try:
                target.fields[name].type.encode(text)
            except ValueError as error:
                raise ModelError(f"{self.label}: {name}={text!r} is refused: it {error}") from None
