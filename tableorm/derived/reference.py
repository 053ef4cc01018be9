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


def split_given(place: str, given: Mapping[str, object]) -> tuple[dict[str, str], dict[str, str]]:
    """
    Return the fields of a model that a declaration gives for fields of another one, and the texts that it gives.

    Args:
        place: The declaration, for messages, with `%s` where it gives something.
        given: By field of the other model: "{field}" of this model, or text.

    Raises:
        ModelError: Something else is given.
    """
    fields, texts = dict[str, str](), dict[str, str]()
    for theirs, text in given.items():
        found = _REFERENCE.fullmatch(text) if isinstance(text, str) else None
        if found is not None:
            fields[theirs] = found[1]
        elif isinstance(text, str) and "{" not in text and "}" not in text:
            texts[theirs] = text
        else:
            problem = f"{place % f'{theirs}={text!r}'} is rejected: give one field of this model"
            raise ModelError(f"{problem}, as in {theirs}='{{name}}', or plain text")
    return fields, texts


def check_alike(label: str, mine: Schema, theirs: Schema, fields: Mapping[str, str], texts: Mapping[str, str]) -> None:
    """
    Refuse fields and texts that are given for fields of another model and are not of the types of these.

    Args:
        label: The declaration, for messages.
        mine: The model that has the fields.
        theirs: The other model.
        fields: By field of the other model the field of this one.
        texts: By field of the other model the text.

    Raises:
        ModelError: A type differs, or a field is stored in several properties.
    """
    for name, source in fields.items():
        problem, info = f"{label}: {name}='{{{source}}}' is rejected: {source}", mine.fields[source]
        if info.shape is not None:
            raise ModelError(f"{problem} {info.many}")
        one, two = info.member.type, theirs.fields[name].member.type
        if one.name != two.name and not {one.edm, two.edm} <= {Edm.INT32, Edm.INT64}:
            raise ModelError(f"{problem} is {one.name}, and {name} of {theirs.name} is {two.name}; declare both alike")
    for name, text in texts.items():
        try:
            theirs.fields[name].type.encode(text)
        except ValueError as error:
            raise ModelError(f"{label}: {name}={text!r} is rejected: it {error}") from None


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
        self.sources, self._texts = split_given(f"{self.label}: %s", key)
        for theirs, source in self.sources.items():
            given = f"{theirs}={key[theirs]!r}"
            if source not in schema.fields:
                raise ModelError(f"{self.label}: {given} is rejected: {schema.name} has no field {source!r}")
            schema.refuse_unseen([source], self.label, f"{given} has")

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
        check_alike(self.label, self.schema, target, self.sources, self._texts)
