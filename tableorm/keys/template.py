"""
Key templates: how a model's fields become PartitionKey and RowKey, and back.

Pure functions; nothing here does I/O. Templates are made by `tableorm.keys.parse`, which proves that every key can be
read back into the fields that made it.
"""

import itertools
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any

import attrs

from ..errors import TemplateError
from ..protocol.edm import check_text
from ..protocol.filters import Op
from ..protocol.limits import MAX_KEY_UNITS, key_fault
from .bounds import Condition, ConstraintShape, KeyBounds, KeyConstraint, Part, writer
from .format import Format

MAX_BUCKETS = 64
"""Partitions at most whose rows a query merges: beyond them it reads the table."""

# Constraints that a template keeps; programs have a few, and ask for each again and again.
_MAX_CONSTRAINTS = 256


@attrs.frozen(eq=False, slots=False)  # for what is cached
class Template:
    """
    A key template, parsed and proved.

    Args:
        text: The template as declared.
        model: Name of the model, for messages.
        key: "partition_key" or "row_key", for messages.
        parts: Its parts, in order.

    """

    text: str
    model: str
    key: str
    parts: tuple[Part, ...]

    @cached_property
    def field_parts(self) -> tuple[Part, ...]:
        """The parts that are fields, in order."""
        return tuple(part for part in self.parts if part.field is not None)

    @cached_property
    def each(self) -> str | None:
        """Name of the list of which each element makes a key; None if there is none."""
        return next((part.field for part in self.field_parts if part.format.each), None)

    @cached_property
    def match(self) -> Callable[[str], re.Match[str] | None]:
        """Returns the match of a key, with a group for each of `field_parts`; None if it doesn't match."""
        return re.compile("".join(map(_pattern, self.parts)), re.DOTALL).fullmatch

    @cached_property
    def _lead(self) -> re.Pattern[str]:
        fixed = list(itertools.takewhile(lambda part: part.format.atoms is not None, self.parts))
        end = r"\Z" if len(fixed) == len(self.parts) else ""
        return re.compile("".join(map(_pattern, fixed)) + end)

    @cached_property
    def _writers(self) -> tuple[tuple[str, str | None, Callable[[Any], str]], ...]:
        return tuple((part.literal, part.field, writer(part)) for part in self.parts)

    @cached_property
    def _names(self) -> frozenset[str]:
        return frozenset(self.fields)

    @cached_property
    def _full(self) -> dict[str, int]:
        """Which of the fields' parts holds a field in full."""
        parts = reversed([*enumerate(self.field_parts)])
        return {part.field: n for n, part in parts if part.field and part.format.full}

    def leads(self, key: str) -> bool:
        """
        Return whether a key begins as all keys of the template do.

        Of two templates that cannot meet, at most one leads a key.
        """
        return self._lead.match(key) is not None

    @property
    def fields(self) -> tuple[str, ...]:
        """The names of the fields, in order of appearance."""
        return tuple(dict.fromkeys(part.field for part in self.parts if part.field is not None))

    @property
    def full_fields(self) -> frozenset[str]:
        """The names of the fields that the key holds in full."""
        return frozenset(self._full)

    @property
    def spread_fields(self) -> frozenset[str]:
        """The names of the fields of which the key holds nothing but hash buckets."""
        parts = self.field_parts
        spread = {part.field for part in parts if part.field and part.format.buckets}
        return frozenset(spread.difference(part.field for part in parts if not part.format.buckets))

    @property
    def head(self) -> str:
        """The literal text that every key starts with."""
        return self.parts[0].literal if self.parts and self.parts[0].field is None else ""

    @property
    def single(self) -> tuple[str, Part] | None:
        """The head and the field of a template that is one field behind literal text; None if it is anything else."""
        fields = self.field_parts
        if len(fields) == 1 and self.parts[-1] is fields[0] and fields[0].format.full:
            return self.head, fields[0]
        return None

    def format(self, values: Mapping[str, Any]) -> str:
        """
        Return the key of these field values.

        Raises:
            TemplateError: A value is missing or does not fit its format, or the key is too long.
        """
        key = ""
        for literal, field, write in self._writers:
            if field is None:
                key += literal
                continue
            value = values.get(field)
            if value is None:
                raise self._error(f"needs {field!r} (got None); set it first")
            try:
                key += write(value)
            except ValueError as error:
                raise self._error(f"{error} (field {field!r})", [field]) from None
        # Two units at most per character: short keys need no counting.
        if len(key) > MAX_KEY_UNITS // 2:
            fault = key_fault(key)
            if fault:
                # Its characters were checked with the values, so it is too long.
                raise self._error(
                    f"makes a key that {fault}: {key[:40]!r}...; shorten {', '.join(self.fields)}",
                    self.fields,
                    MAX_KEY_UNITS,
                )
        return key

    def find_misfits(self, values: Mapping[str, Any]) -> dict[str, str]:
        """
        Return by field what is wrong with values for this key: of those that do not fit their formats, or of the
        longest one if the key is too long. A value that is missing, or None, may be set later. Nothing says the key:
        who has given one value may not know the others.
        """
        misfits, lengths, key = dict[str, str](), dict[str, int](), ""
        for literal, field, write in self._writers:
            if field is None:
                key += literal
            elif values.get(field) is not None:
                elements = values[field] if field == self.each else [values[field]]
                try:
                    text = max(map(write, elements), key=len, default="")
                except ValueError as error:
                    misfits[field] = f"does not fit {self.model}.{self.key} {self.text!r}: {error}"
                else:
                    lengths[field] = len(text)
                    key += text
        if not misfits and lengths.keys() == set(self.fields) and (fault := key_fault(key)):
            longest = max(lengths, key=lambda field: lengths[field])
            what = f"{self.model}.{self.key} makes a key that {fault}"
            misfits[longest] = f"is rejected: {what}; shorten {', '.join(self.fields)}"
        return misfits

    def parse(self, key: str) -> dict[str, Any]:
        """
        Return the fields that a key holds in full.

        Raises:
            ValueError: The key is not of this template, or is not the key that `format` makes of these fields.
        """
        found = self.match(key)
        if found is None:
            raise ValueError(f"{self.key} {key!r} does not match the template {self.text!r}")
        if fault := check_text(key):
            raise ValueError(f"{self.key} {key!r} {fault}")
        values: dict[str, Any] = {}
        for part, text in zip(self.field_parts, found.groups(), strict=True):
            assert part.field is not None
            if part.format.full:
                try:
                    value = part.format.from_text(part.unescape(text) if part.format.free else text)
                except (ValueError, OverflowError) as error:
                    raise ValueError(f"{self.key} {key!r}: {error}") from None
                if values.setdefault(part.field, value) != value:
                    raise ValueError(f"{self.key} {key!r} has two values of {part.field!r}")
        return values

    def with_element(self, key: str, element: Any) -> str:
        """
        Return a key with another element of the list of `each`.

        Raises:
            ValueError: The key does not match the template, or the element does not fit.
        """
        found = self.match(key)
        if found is None:
            raise ValueError(f"{self.key} {key!r} does not match the template {self.text!r}")
        texts = iter(found.groups())
        held = [(part, part.literal if part.field is None else next(texts)) for part in self.parts]
        return "".join(writer(part)(element) if part.format.each else text for part, text in held)

    def stored_text(self, key: str, field: str) -> str | None:
        """Return the text of a field as the key holds it; None if the key is not of this template."""
        found, index = self.match(key), self._full.get(field)
        return None if found is None or index is None else found[index + 1]

    def value_text(self, field: str, value: Any, op: Op | None = None) -> str:
        """
        Return the text that a key holds for a value of a field that it holds in full, or that is compared with keys by
        an operator. Raises ValueError.
        """
        return writer(self.field_parts[self._full[field]], op)(value)

    def prefix_text(self, field: str, prefix: str) -> str:
        """Return the text that a key holds for the start of a text, for a field that it holds in full."""
        return self.field_parts[self._full[field]].escape(prefix)

    def full_format(self, field: str) -> Format | None:
        """Return the format in which the key holds a field in full; None if it does not."""
        index = self._full.get(field)
        return None if index is None else self.field_parts[index].format

    def constrain(self, shape: ConstraintShape) -> KeyConstraint:
        """Return what conditions on these fields with these operators say of the keys, for any values."""
        if self._names.isdisjoint(field for field, _ in shape):
            shape = ()  # one constraint, and with it one object for the bounds of all keys
        return self._constraint(shape)

    @cached_property
    def _constraint(self) -> Callable[[ConstraintShape], KeyConstraint]:
        def constrain(shape: ConstraintShape) -> KeyConstraint:
            return KeyConstraint(self.parts, shape, self._error)

        return lru_cache(_MAX_CONSTRAINTS)(constrain)

    @cached_property
    def constrain_by_bucket(self) -> Callable[[ConstraintShape], tuple[KeyConstraint, ...]]:
        """
        Returns what conditions that give all of the key but its hash buckets say of the key, one for each bucket, in
        key order.

        There are none if the conditions leave anything else open, or no bucket, or more than `MAX_BUCKETS` of them.
        """
        return lru_cache(_MAX_CONSTRAINTS)(self._constrain_by_bucket)

    def _constrain_by_bucket(self, shape: ConstraintShape) -> tuple[KeyConstraint, ...]:
        given = {field for field, op in shape if op is Op.EQ}
        buckets = [part for part in self.parts if part.format.buckets and part.field not in given]
        if not buckets or math.prod(part.format.buckets for part in buckets) > MAX_BUCKETS:
            return ()
        texts = [[Part(text) for text in part.format.bucket_texts] for part in buckets]
        found: list[KeyConstraint] = []
        for choice in itertools.product(*texts):
            chosen = dict(zip(map(id, buckets), choice, strict=True))
            found.append(KeyConstraint([chosen.get(id(part), part) for part in self.parts], shape, self._error))
            if not found[0].point:
                return ()
        return tuple(found)

    def bounds(self, conditions: Iterable[Condition]) -> KeyBounds:
        """
        Return the interval of keys that satisfy the conditions: equality on leading fields, then bounds on the next.

        Conditions on fields that the template does not reach are left out.

        Raises:
            TemplateError: A value is not of the type of its field.
        """
        given = tuple(conditions)
        constraint = self.constrain(tuple((condition.field, condition.op) for condition in given))
        return KeyBounds(*constraint.bounds([condition.value for condition in given], range(len(given))))

    @property
    def varies(self) -> bool:
        """Whether keys differ in length."""
        return any(part.format.atoms is None for part in self.parts)

    @property
    def buckets(self) -> tuple[str, ...]:
        """The beginnings of all keys of a template that starts with a hash bucket, in order; none otherwise."""
        first = next(iter(self.field_parts), None)
        return () if first is None else tuple(self.head + text for text in first.format.bucket_texts)

    def characters_after(self, prefix: str) -> list[frozenset[str]] | None:
        """
        Return which characters can stand at each position after a prefix of keys, up to where the length varies.

        It is None if no key starts so, or if the prefix ends where the length varies.
        """
        for count in range(len(self.parts) - 1, -1, -1):
            found = re.match("".join(map(_pattern, self.parts[:count])), prefix, re.DOTALL)
            if found is None:
                continue
            rest = prefix[found.end() :]
            if count and not rest and self.parts[count - 1].format.atoms is None:
                return None  # what follows that part, or more of it
            sets: list[frozenset[str]] = []
            for part in self.parts[count:]:
                if part.format.atoms is None:
                    break
                sets += part.format.atoms
            if len(rest) < len(sets) and all(c in allowed for c, allowed in zip(rest, sets, strict=False)):
                return sets[len(rest) :]
        return None

    def _error(self, problem: str, fields: Sequence[str] = (), limit: int | None = None) -> TemplateError:
        return TemplateError(problem, self.model, self.key, self.text, fields=fields, limit=limit)


def parse_pair(partition: Template, row: Template, partition_key: str, row_key: str) -> dict[str, Any]:
    """
    Return the fields that a PartitionKey and a RowKey hold in full.

    Raises:
        ValueError: A key is not of its template, or they hold different values of a field, as no keys of the model do.
    """
    values, others = partition.parse(partition_key), row.parse(row_key)
    for name in values.keys() & others.keys():
        if values[name] != others[name]:
            raise ValueError(
                f"partition_key {partition_key!r} says {name}={values[name]!r}, and row_key {row_key!r} "
                f"{name}={others[name]!r}"
            )
    return values | others


def _pattern(part: Part) -> str:
    form = part.format
    if not form.free:
        return form.pattern if part.field is None else f"({form.pattern})"
    return f"([^{re.escape(part.separator)}]*)" if part.separator else "(.*)"
