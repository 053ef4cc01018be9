"""
Key templates: how a model's fields become PartitionKey and RowKey, and back.

Pure functions; nothing here does I/O. Templates are made by `tableorm.template_syntax`, which proves that every key
parses back into the fields that made it.
"""

import itertools
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import attrs

from .errors import TemplateError
from .formats import Format, Order, escape, unescape
from .protocol.edm import utf16_key
from .protocol.filters import Op
from .protocol.limits import MAX_KEY_UNITS, key_fault
from .stores import Bounds

__all__ = ["EMPTY", "Condition", "KeyBounds", "Part", "Template", "outside", "successor"]


@attrs.frozen
class Part:
    """
    One piece of a template: literal text (`field` is None) or a field in a format.

    Args:
        literal: The text, or "" for a field.
        field: Name of the field.
        format: Its format.
        separator: For free text before other variable text: the first character of what follows, escaped inside.
    """

    literal: str
    field: str | None = None
    format: Format | None = None
    separator: str = ""


@attrs.frozen
class Condition:
    """
    `field op value`, a conjunct of a query; `op` is None for `startswith`.
    """

    field: str
    op: Op | None
    value: Any


@attrs.frozen
class KeyBounds:
    """
    What conditions say of a key.

    Args:
        bounds: Interval of keys; every key that satisfies the conditions is inside. None if no key can.
        exact: Those conditions, by index, that each key inside satisfies; others must be checked again.
    """

    bounds: Bounds | None
    exact: frozenset[int]


EMPTY = KeyBounds(None, frozenset())


def successor(prefix: str) -> str | None:
    """
    The smallest text that sorts after every text starting with `prefix`, in UTF-16 order; None if there is none.
    """
    while prefix:
        last = ord(prefix[-1])
        if last == 0xFFFF:
            prefix = prefix[:-1]
            continue
        # In UTF-16 the astral characters sort between U+D7FF and U+E000.
        after = {0xD7FF: 0x10000, 0x10FFFF: 0xE000}.get(last, last + 1)
        return prefix[:-1] + chr(after)
    return None


@attrs.frozen(eq=False)
class Template:
    """
    A key template, parsed and proved.

    Args:
        text: As declared.
        model: Name of the model, for messages.
        key: "partition_key" or "row_key", for messages.
        parts: Its pieces.
    """

    text: str
    model: str
    key: str
    parts: tuple[Part, ...]
    _writers: tuple[tuple[str, str | None, Callable[[Any], str]], ...] = attrs.field(init=False)
    _regex: re.Pattern[str] = attrs.field(init=False)
    _lead: re.Pattern[str] = attrs.field(init=False)
    _names: frozenset[str] = attrs.field(init=False)
    _whole: KeyBounds | None = attrs.field(init=False)
    """The bounds of all keys, once they were asked for."""

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "_writers", tuple((p.literal, p.field, _writer(p)) for p in self.parts))
        object.__setattr__(self, "_names", frozenset(self.fields))
        object.__setattr__(self, "_whole", None)
        object.__setattr__(self, "_regex", re.compile("".join(map(_pattern, self.parts)), re.DOTALL))
        fixed = list(itertools.takewhile(lambda p: p.format is None or p.format.atoms is not None, self.parts))
        end = r"\Z" if len(fixed) == len(self.parts) else ""
        object.__setattr__(self, "_lead", re.compile("".join(map(_pattern, fixed)) + end))

    def leads(self, key: str) -> bool:
        """Whether `key` begins as all keys of the template do. Of two that cannot meet, at most one leads a key."""
        return self._lead.match(key) is not None

    @property
    def fields(self) -> tuple[str, ...]:
        """Names of the fields, in order of appearance."""
        return tuple(dict.fromkeys(part.field for part in self.parts if part.field is not None))

    @property
    def full_fields(self) -> frozenset[str]:
        """Names of the fields that the key holds in full."""
        return frozenset(p.field for p in self.parts if p.field is not None and p.format and p.format.full)

    @property
    def head(self) -> str:
        """The literal text that every key starts with."""
        return self.parts[0].literal if self.parts and self.parts[0].field is None else ""

    @property
    def single(self) -> tuple[str, Part] | None:
        """Head and field of a template that is a field behind literal text, or None if it is anything else."""
        fields = self._field_parts()
        if len(fields) == 1 and self.parts[-1] is fields[0] and fields[0].format and fields[0].format.full:
            return self.head, fields[0]
        return None

    def format(self, values: Mapping[str, Any]) -> str:
        """
        The key of these field values.

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
                raise self._error(f"{error} (field {field!r})") from None
        # Two units at most per character: short keys need no counting.
        if len(key) > MAX_KEY_UNITS // 2:
            fault = key_fault(key)
            if fault:
                raise self._error(f"makes a key that {fault}: {key[:40]!r}...; shorten {', '.join(self.fields)}")
        return key

    def parse(self, key: str) -> dict[str, Any]:
        """
        The fields that the key holds in full.

        Raises:
            ValueError: The key is not of this template.
        """
        values: dict[str, Any] = {}
        for part, text in zip(self._field_parts(), self._match(key), strict=True):
            assert part.format is not None
            assert part.field is not None
            if part.format.full:
                try:
                    values[part.field] = part.format.from_text(unescape(text) if part.format.free else text)
                except (ValueError, OverflowError) as error:
                    raise ValueError(f"{self.key} {key!r}: {error}") from None
        return values

    def stored_text(self, key: str, field: str) -> str | None:
        """The text of a field as the key holds it, or None if the key is not of this template."""
        found = self._regex.fullmatch(key)
        if found is None:
            return None
        for part, text in zip(self._field_parts(), found.groups(), strict=True):
            if part.field == field and part.format is not None and part.format.full:
                return text
        return None

    def value_text(self, field: str, value: Any) -> str:
        """The text that a key holds for a value of a field that it holds in full. ValueError if it does not fit."""
        for part in self._field_parts():
            if part.field == field and part.format is not None and part.format.full:
                return _writer(part)(value)
        raise KeyError(field)

    def prefix_text(self, field: str, prefix: str) -> str:
        """The text that a key holds for the start of a text, of a field that it holds in full."""
        for part in self._field_parts():
            if part.field == field and part.format is not None and part.format.full:
                return escape(prefix, part.separator)
        raise KeyError(field)

    def full_format(self, field: str) -> Format | None:
        """The format in which the key holds a field in full, or None."""
        for part in self._field_parts():
            if part.field == field and part.format is not None and part.format.full:
                return part.format
        return None

    def bounds(self, conditions: Iterable[Condition]) -> KeyBounds:
        """
        The interval of keys that satisfy the conditions: equality on leading fields, then bounds on the next.

        Conditions on fields that the template does not reach are left out.

        Raises:
            TemplateError: A value has not the type of its field.
        """
        by_field: dict[str, list[tuple[int, Condition]]] = {}
        for index, condition in enumerate(conditions):
            by_field.setdefault(condition.field, []).append((index, condition))
        return self.bounds_by_field(by_field)

    def bounds_by_field(self, by_field: Mapping[str, list[tuple[int, Condition]]]) -> KeyBounds:
        """As `bounds`, of conditions with their indexes, sorted by field."""
        if not self._names.isdisjoint(by_field):
            return self._bounds(by_field)
        whole = self._whole
        if whole is None:
            whole = self._bounds({})
            object.__setattr__(self, "_whole", whole)
        return whole

    def _bounds(self, by_field: Mapping[str, list[tuple[int, Condition]]]) -> KeyBounds:
        head = ""
        exact: set[int] = set()
        open_ended: set[int] = set()  # exact only if all that follows is given too: {name}{n:03d}
        for position, part in enumerate(self.parts):
            if part.field is None:
                head += part.literal
                continue
            assert part.format is not None
            given = by_field.get(part.field, ())
            known: str | None = None
            for index, condition in given:
                if condition.op is not Op.EQ:
                    continue
                text = self._equal_text(position, condition.value)
                if text is None or (known is not None and text != known):
                    return EMPTY
                known = text
                if part.format.full:
                    (exact if not open_ended and self._ends(position) else open_ended).add(index)
            if known is None:
                found = self._next_bounds(position, head, given, exact.copy())
                return attrs.evolve(found, exact=frozenset(exact)) if open_ended else found
            head += known
        return KeyBounds(Bounds.only(head), frozenset(exact | open_ended))

    def _equal_text(self, position: int, value: Any) -> str | None:
        try:
            return self._writers[position][2](value)
        except ValueError as error:
            part = self.parts[position]
            assert part.format is not None
            if outside(part.format, value):
                return None
            raise self._error(f"{error} (condition on field {part.field!r})") from None

    def _next_bounds(
        self, position: int, head: str, given: Iterable[tuple[int, Condition]], exact: set[int]
    ) -> KeyBounds:
        part, after = self.parts[position], self._after(position)
        form, last = part.format, not after
        assert form is not None
        lowers: list[tuple[str, bool]] = []
        uppers: list[tuple[str, bool]] = []
        for index, condition in given:
            op = condition.op
            if op is None:
                if not (form.free and form.full):
                    continue
                start = head + escape(str(condition.value), part.separator)
                lowers.append((start, False))
                end = successor(start)
                if end is not None:
                    uppers.append((end, True))
                # Where what follows can also be part of the text, a key goes on as if its text did: {name}_end.
                if last or after == part.separator:
                    exact.add(index)
                continue
            if op is Op.NE or form.order is Order.NONE:
                continue
            side = outside(form, condition.value)
            if side:
                below = side < 0
                if below is (op in (Op.LT, Op.LE)):
                    return EMPTY  # say, id < 0 where the format starts at 0
                exact.add(index)  # every value that the format can hold satisfies it
                continue
            text = self._equal_text(position, condition.value)
            assert text is not None
            if form.order is Order.REVERSED:
                op = {Op.LT: Op.GT, Op.LE: Op.GE, Op.GT: Op.LT, Op.GE: Op.LE}[op]
            if not form.full:  # the text of the bound itself stands for values on both sides of it
                op = {Op.LT: Op.LE, Op.GT: Op.GE}.get(op, op)
            if op in (Op.GT, Op.GE):
                bound = _lower_bound(form, head + text, op, last=last)
                if bound is not None:
                    lowers.append(bound)
            else:
                bound = _upper_bound(form, head, text, op, after)
                if bound is not None:
                    uppers.append(bound)
            # Free text that something follows: "a" and "a-b" may sort the other way once the separator stands behind.
            if form.full and (last or not form.free):
                exact.add(index)
        # All keys begin with the head; what conditions say is within that.
        lower = max(lowers, key=_as_lower) if lowers else (head, False)
        upper = min(uppers, key=_as_upper) if uppers else None
        if upper is None:
            whole = successor(head)
            upper = None if whole is None else (whole, True)
        elif lowers:
            low, high = utf16_key(lower[0]), utf16_key(upper[0])
            if low > high or (low == high and (lower[1] or upper[1])):
                return EMPTY
        begin = lower[0] if lower[0] or lower[1] else None
        if upper is None:
            return KeyBounds(Bounds(begin, None, lower[1]), frozenset(exact))
        return KeyBounds(Bounds(begin, upper[0], lower[1], upper[1]), frozenset(exact))

    @property
    def varies(self) -> bool:
        """Whether keys differ in length."""
        return any(part.format is not None and part.format.atoms is None for part in self.parts)

    @property
    def buckets(self) -> tuple[str, ...]:
        """The beginnings of all keys of a template that starts with a hash bucket, in order; none otherwise."""
        first = next(iter(self._field_parts()), None)
        if first is None or first.format is None or not first.format.buckets:
            return ()
        head = self.head
        width = len(first.format.atoms or ())
        return tuple(f"{head}{number:0{width}d}" for number in range(first.format.buckets))

    def characters_after(self, prefix: str) -> list[frozenset[str]] | None:
        """
        Which characters can stand at each position after a prefix of keys, up to where the length varies.

        None if no key starts so, or if the prefix ends where the length varies.
        """
        for count in range(len(self.parts) - 1, -1, -1):
            found = re.match("".join(map(_pattern, self.parts[:count])), prefix, re.DOTALL)
            if found is None:
                continue
            rest = prefix[found.end() :]
            sets: list[frozenset[str]] = []
            for part in self.parts[count:]:
                atoms = [frozenset(c) for c in part.literal] if part.format is None else part.format.atoms
                if atoms is None:
                    break
                sets += atoms
            if len(rest) < len(sets) and all(c in allowed for c, allowed in zip(rest, sets, strict=False)):
                return sets[len(rest) :]
        return None

    def _ends(self, position: int) -> bool:
        """Whether the literal behind a part shows that the part has ended, so that a longer value cannot begin so."""
        part, following = self.parts[position], self.parts[position + 1 : position + 2]
        assert part.format is not None
        if part.format.atoms is not None:
            return True
        end = following[0].literal[:1] if following else ""
        if part.format.alphabet is None:
            return end != "" and end == part.separator
        return end != "" and end not in part.format.alphabet - {"-"}

    def _after(self, position: int) -> str:
        """The greatest character that can follow a part; "" for the last one."""
        if position == len(self.parts) - 1:
            return ""
        part = self.parts[position + 1]
        if part.format is None:
            return part.literal[0]
        # Free text is never followed by something of varying width directly: such a template is refused.
        return max(part.format.atoms[0], key=utf16_key) if part.format.atoms else "\uffff"

    def _field_parts(self) -> tuple[Part, ...]:
        return tuple(part for part in self.parts if part.field is not None)

    def _match(self, key: str) -> tuple[str, ...]:
        found = self._regex.fullmatch(key)
        if found is None:
            raise ValueError(f"{self.key} {key!r} is not of the template {self.text!r}")
        return found.groups()

    def _error(self, problem: str) -> TemplateError:
        return TemplateError(problem, self.model, self.key, self.text)


def _as_lower(bound: tuple[str, bool]) -> tuple[bytes, bool]:
    return utf16_key(bound[0]), bound[1]


def _as_upper(bound: tuple[str, bool]) -> tuple[bytes, bool]:
    return utf16_key(bound[0]), not bound[1]


def _lower_bound(form: Format, start: str, op: Op, *, last: bool) -> tuple[str, bool] | None:
    if op is Op.GE or (form.free and not last):
        return start, False
    if last:
        return start, True
    end = successor(start)  # what starts with the bound itself is excluded, whatever follows
    return None if end is None else (end, False)


def _upper_bound(form: Format, head: str, text: str, op: Op, after: str) -> tuple[str, bool] | None:
    start = head + text
    if not after:
        return start, op is Op.LT
    if form.free:
        # A prefix of the bound is below it as a value, but its key goes on with what follows, which may be above.
        for cut, char in enumerate(text):
            if utf16_key(after) >= utf16_key(char):
                end = successor(head + text[:cut] + after)
                return None if end is None else (end, True)
    if op is Op.LT:
        return start, True
    end = successor(start)
    return None if end is None else (end, True)


def outside(form: Format, value: Any) -> int:
    """-1 or 1 if the value is of the right type but below or above all that the format holds, otherwise 0."""
    if form.low is None or type(value) is not type(form.low):
        return 0
    try:
        return -1 if value < form.low else 1 if value > form.high else 0
    except TypeError:  # a naive datetime against an aware bound
        return 0


def _writer(part: Part) -> Callable[[Any], str]:
    form = part.format
    if form is None:
        return str
    if not form.free:
        return form.to_text
    to_text, separator = form.to_text, part.separator
    alnum_separator = separator.isalnum()
    plain = form.from_text is str and to_text("a") == "a" and to_text("A") == "A" and not alnum_separator

    def write(value: Any) -> str:
        # The commonest first: plain text that needs no check and no escape.
        if plain and type(value) is str and value.isascii() and value.isalnum():
            return value
        text: str = to_text(value)
        return text if not alnum_separator and text.isalnum() else escape(text, separator)

    return write


def _pattern(part: Part) -> str:
    form = part.format
    if form is None:
        return re.escape(part.literal)
    if not form.free:
        return f"({form.pattern})"
    return f"([^{re.escape(part.separator)}]*)" if part.separator else "(.*)"
