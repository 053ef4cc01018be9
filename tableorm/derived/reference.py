"""
References: declarations that refer to entities of another model, by fields that name the other one's key.
"""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from types import ModuleType
from typing import Any, Generic, TypeVar

from ..errors import ModelError, NotSupported
from ..models.kinds import kind_of
from ..models.schema import Schema, concrete
from ..protocol.edm import Edm
from ..stores import Row
from ..writes.maintainer import Maintainer

T = TypeVar("T")

_EVENTUALLY = "consistency='eventual', by which what is kept equal follows some time later"

_REFERENCE = re.compile(r"\{([^{}:]+)\}")


class _Undeclared(ModelError):
    """A name that there is not yet: perhaps of a class that is declared later."""


def find_target(label: str, given: Any) -> Any:
    """Return what a declaration refers to, whether that or a function that returns it was given. Raises ModelError."""
    if isinstance(given, type) or not callable(given):
        return given
    try:
        return given()
    except (NameError, AttributeError) as error:
        # A module may be on the way of being imported.
        if isinstance(error, AttributeError) and not isinstance(error.obj, ModuleType):
            raise ModelError(f"{label}: {error}; give a field of the model, or the model, that is meant") from error
        raise _Undeclared(f"{label}: {error}; declare or import it before entities are written") from error


class ReferenceTarget(Maintainer, Generic[T]):
    """
    A declaration that refers to entities of another model in the same partition.

    Args:
        name: Name of the declaration.
        schema: The schema of the model.
        key: The key fields of the other entity: "{field}" of this model, or text.
    """

    def __init__(self, name: str, schema: Schema, key: Mapping[str, str]) -> None:
        super().__init__(name, schema)
        self.key = dict(key)
        self.sources: dict[str, str] = {}
        self._texts: dict[str, str] = {}
        for theirs, text in key.items():
            found = _REFERENCE.fullmatch(text)
            given = f"{theirs}={text!r}"
            if found is None and ("{" in text or "}" in text):
                raise ModelError(f"{self.label}: {given} is rejected: give one field, as '{{name}}', or plain text")
            if found is None:
                self._texts[theirs] = text
                continue
            if found[1] not in schema.fields:
                raise ModelError(f"{self.label}: {given} is rejected: {schema.name} has no field {found[1]!r}")
            schema.refuse_unseen([found[1]], self.label, f"{given} has")
            self.sources[theirs] = found[1]

    def resolve(self) -> tuple[Schema, T]:
        """Return the schema of the other model, and what is meant of it, found anew. Raises ModelError."""
        raise NotImplementedError

    @cached_property
    def target(self) -> tuple[Schema, T]:
        """
        The schema of the other model, and what is meant of it.

        Raises:
            ModelError: The declaration does not fit it.
        """
        return self.resolve()

    def check(self) -> None:
        """
        Refuse what does not fit the other model, if that is declared by now.

        Raises:
            ModelError: The declaration does not fit.
        """
        with suppress(_Undeclared):
            self.resolve()

    def related(self) -> Sequence[Schema]:
        """Return the other model."""
        return (self.target[0],)

    def is_target(self, row: Row) -> bool:
        """Return whether a row is of the other model or of a class of it, as far as a property tells its kind."""
        target = self.target[0]
        return target.discriminator != "property" or kind_of(row) in {each.kind for each in concrete(target)}

    def address(self, values: Mapping[str, Any], partition_key: str) -> str | None:
        """
        Return the RowKey of the other entity; None if a field is None.

        Raises:
            TemplateError: A value does not fit the other model's key.
            NotSupported: It is in another partition.
        """
        keys = self.keys(values)
        if keys is not None and keys[0] != partition_key:
            raise NotSupported(
                f"{self.label}: {self.target[0].name} {keys} is in another partition than {partition_key!r}, and one "
                f"transaction cannot write both; add {_EVENTUALLY}"
            )
        return None if keys is None else keys[1]

    def keys(self, values: Mapping[str, Any]) -> tuple[str, str] | None:
        """Return the keys of the other entity; None if a field is None. Raises TemplateError."""
        given = {name: values[source] for name, source in self.sources.items()} | self._texts
        return None if any(value is None for value in given.values()) else self.target[0].make_keys(given)

    def check_key(self, target: Schema) -> None:
        """
        Refuse what can never be in one partition.

        Raises:
            ModelError: The other model is in another table, or the key is not its key.
        """
        if target.table != self.schema.table and not self.deferred:
            raise ModelError(
                f"{self.label}: {target.name} is in table {target.table}, {self.schema.name} in {self.schema.table}, "
                f"and one transaction cannot write both; add {_EVENTUALLY}"
            )
        given = frozenset({*self.sources, *self._texts})
        if given != target.key_names:
            raise ModelError(
                f"{self.label}: the key of {target.name} is made of {', '.join(target.key_fields)}, given are "
                f"{', '.join(sorted(given))}"
            )
        for name, source in self.sources.items():
            if (info := self.schema.fields[source]).shape is not None:
                raise ModelError(f"{self.label}: {name}='{{{source}}}' is rejected: {source} {info.many}")
            mine, theirs = info.member.type, target.fields[name].member.type
            if mine.name != theirs.name and not {mine.edm, theirs.edm} <= {Edm.INT32, Edm.INT64}:
                raise ModelError(
                    f"{self.label}: {name}='{{{source}}}' is rejected: {source} is {mine.name}, and {name} of "
                    f"{target.name} is {theirs.name}"
                )
        for name, text in self._texts.items():
            try:
                target.fields[name].type.encode(text)
            except ValueError as error:
                raise ModelError(f"{self.label}: {name}={text!r} is rejected: it {error}") from None
