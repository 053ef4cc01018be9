"""
Key constraints: what conditions say of a key, worked out once from their fields and operators, whatever the values.

A query is planned again and again with other values. Which conditions fix the head of a key, which bound what follows,
and which need no second look is the same each time. A constraint has it ready, so that values need only be written as
text.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import msgspec

from ..errors import TemplateError
from ..protocol.edm import utf16_key
from ..protocol.filters import Op
from ..protocol.limits import FORBIDDEN_IN_KEYS
from ..stores import Bounds
from ..stores.intervals import EVERYTHING, meet, starting_with, successor
from .escapes import ESCAPE, escape, unescape
from .format import Format, Order, literal_format

_PLAIN = "".join(char for char in map(chr, range(0x20, 0x7F)) if char != ESCAPE and not FORBIDDEN_IN_KEYS.match(char))

ConstraintShape = tuple[tuple[str, Op | None], ...]
"""Fields and operators of conditions, in order; the operator None is `startswith`."""


@attrs.frozen
class Part:
    """
    One part of a template: literal text (`field` is None) or a field in a format.

    Args:
        literal: The text, or "" for a field.
        field: Name of the field.
        format: Its format; that of literal text has the one text.
        separator: The first character of what follows, which free text before other variable text escapes.
        verbatim: Whether free text stands as it is, so that what would have to be escaped is rejected.
    """

    literal: str
    field: str | None = None
    format: Format = attrs.field(default=attrs.Factory(lambda part: literal_format(part.literal), takes_self=True))
    separator: str = ""
    verbatim: bool = False

    def escape(self, text: str) -> str:
        """Return free text as keys hold it. Raises ValueError if they cannot."""
        if not self.verbatim:
            return escape(text, self.separator)
        found = FORBIDDEN_IN_KEYS.search(text)
        if found or (self.separator and self.separator in text):
            why = f"keys forbid {found[0]!r}" if found else f"{self.separator!r} ends the field"
            raise ValueError(f"cannot hold {text[:40]!r}: {why}, and keys='verbatim' escapes nothing")
        return text

    def unescape(self, text: str) -> str:
        """Return the text that keys hold so. Raises ValueError if they hold none so."""
        return text if self.verbatim else unescape(text, self.separator)


@attrs.frozen
class Condition:
    """
    The comparison `field op value`, one of several that all hold; `op` is None for `startswith`.
    """

    field: str
    op: Op | None
    value: Any


@attrs.frozen
class KeyBounds:
    """
    What conditions say of a key.

    Args:
        bounds: The interval of keys that every key which satisfies the conditions is in; None if no key can.
        exact: The conditions, by index, that each key inside satisfies; the others must be checked again.
    """

    bounds: Bounds | None
    exact: frozenset[int]


_NOTHING: frozenset[int] = frozenset()


@attrs.frozen(eq=False)
class _Step:
    """
    A field that equalities give.

    Args:
        literal: The literal text before it.
        part: The field.
        write: Writes a value as text.
        first: The first of the equalities, by index.
        more: The other equalities on the same field.
    """

    literal: str
    part: Part
    write: Callable[[Any], str]
    first: int
    more: tuple[int, ...]


class _Limit(msgspec.Struct, frozen=True, eq=False):
    """
    A condition that bounds the first field that is not given.

    Args:
        index: The condition, by index.
        op: How its text bounds the key; None for `startswith`.
        above: Whether the condition wants greater values.
        write: Writes its value as text.
    """

    index: int
    op: Op | None
    above: bool
    write: Callable[[Any], str]


Text = Callable[[Sequence[Any], Sequence[int]], str | None]
"""Takes the values of a query, and where those of the conditions are; None if no key can satisfy the conditions."""


class KeyConstraint:
    """
    What conditions with certain fields and operators say of the keys of a template.

    Args:
        parts: The parts of the template.
        shape: The fields and operators of the conditions.
        error: Makes the error that names the template from a problem.

    Attributes:
        exact: The conditions, by index, that each key inside of the bounds satisfies, unless a value is beyond all that
            the template holds.
        bounding: The conditions, by index, that the bounds are made of.
        point: Whether the conditions give the whole key.
        fixed: The bounds, if no value counts.
        text: Takes what `bounds` takes, and returns the text that all keys begin with, which is the whole key if the
            constraint is a point; None if no key can satisfy the conditions.
    """

    def __init__(
        self, parts: Sequence[Part], shape: ConstraintShape, error: Callable[[str, Sequence[str]], TemplateError]
    ) -> None:
        self._error = error
        steps: list[_Step] = []
        self._tail = ""
        exact: set[int] = set()
        open_ended: set[int] = set()  # exact only if all that follows is given too: {name}{n:03d}
        self._next: Part | None = None
        self._limits: list[_Limit] = []
        for position, part in enumerate(parts):
            if part.field is None:
                self._tail += part.literal
                continue
            equal = [index for index, (field, op) in enumerate(shape) if field == part.field and op is Op.EQ]
            if not equal:
                exact |= self._prepare_limits(parts, position, shape)
                break
            steps.append(_Step(self._tail, part, writer(part), equal[0], tuple(equal[1:])))
            self._tail = ""
            if part.format.full or part.format.each:
                (exact if not open_ended and _ends(parts, position) else open_ended).update(equal)
        self._steps = tuple(steps)
        self.text: Text = self._text if len(steps) != 1 or steps[0].more else self._text_of_one(steps[0])
        self.point = self._next is None
        self._open_ended = bool(open_ended)
        if open_ended and not self.point:
            exact -= {limit.index for limit in self._limits}
        self.exact = frozenset(exact | open_ended if self.point else exact)
        given = [index for step in steps for index in (step.first, *step.more)]
        self.bounding = frozenset([*given, *[limit.index for limit in self._limits]])
        self.fixed: Bounds | None = None
        if not steps and not self._limits:
            self.fixed = self.bounds((), ())[0]

    def _prepare_limits(self, parts: Sequence[Part], position: int, shape: ConstraintShape) -> set[int]:
        """Prepare the first part that is not given. Returns the conditions on it that each key inside satisfies."""
        part = self._next = parts[position]
        form, self._last = part.format, _after(parts, position)
        exact: set[int] = set()
        limits = self._limits
        for index, (field, op) in enumerate(shape):
            if field != part.field or op is Op.NE:
                continue
            if op is None:
                if form.free and form.full:
                    limits.append(_Limit(index, None, True, writer(part)))
                    # Where what follows can also be part of the text, a key goes on as if its text did: {name}_end.
                    if not self._last or self._last == part.separator:
                        exact.add(index)
            elif form.order is not Order.NONE:
                bound = REVERSED[op] if form.order is Order.REVERSED else op
                # Of a text that is not all of the value, the bound stands for values on both sides of it.
                bound = bound if form.full else _INCLUSIVE[bound]
                limits.append(_Limit(index, bound, op in (Op.GT, Op.GE), writer(part, op)))
                # Free text that something follows: "a" and "a-b" may sort the other way once the separator is behind.
                if form.full and (not self._last or not form.free):
                    exact.add(index)
        return exact

    def bounds(self, values: Sequence[Any], at: Sequence[int]) -> tuple[Bounds | None, frozenset[int]]:
        """
        Return the interval of keys that satisfy the conditions.

        Args:
            values: The values of a query.
            at: The indexes among them of the conditions' values, in order.

        Returns:
            The interval, None if no key can satisfy the conditions; and the conditions, by index, that each key inside
            satisfies.

        Raises:
            TemplateError: A value is not of the type of its field.
        """
        if self.fixed is not None:
            return self.fixed, self.exact
        head = self.text(values, at) if self._steps else self._tail
        if head is None:
            return None, _NOTHING
        if self.point:
            return Bounds(head, head), self.exact
        if self._limits:
            return self._apply_limits(head, values, at)
        return starting_with(head), self.exact

    def _text(self, values: Sequence[Any], at: Sequence[int]) -> str | None:
        head = ""
        for step in self._steps:
            try:
                text = step.write(values[at[step.first]])
                if step.more and any(step.write(values[at[index]]) != text for index in step.more):
                    return None
            except ValueError as error:
                self._refuse(step, values, at, error)
                return None
            head += step.literal + text
        return head + self._tail

    def _text_of_one(self, step: _Step) -> Text:
        """Return what `_text` does for one value alone: a plan for a point spends its time on it."""
        literal, write, place, tail = step.literal, step.write, step.first, self._tail

        def text(values: Sequence[Any], at: Sequence[int]) -> str | None:
            try:
                return f"{literal}{write(values[at[place]])}{tail}"
            except ValueError as error:
                self._refuse(step, values, at, error)
                return None

        return text

    def _refuse(self, step: _Step, values: Sequence[Any], at: Sequence[int], error: ValueError) -> None:
        """Refuse a value of another type; a value that no key can hold is not a mistake."""
        form = step.part.format
        known: str | None = None
        for index in (step.first, *step.more):
            try:
                text = step.write(values[at[index]])
            except ValueError:
                if outside(form, values[at[index]]) or form.is_between(values[at[index]]):
                    return
                raise self._error(f"{error} (condition on field {step.part.field!r})", [str(step.part.field)]) from None
            if known is not None and text != known:
                return
            known = text

    def _apply_limits(
        self, head: str, values: Sequence[Any], at: Sequence[int]
    ) -> tuple[Bounds | None, frozenset[int]]:
        part, after = self._next, self._last
        assert part is not None
        form = part.format
        exact, last = self.exact, not after
        whole: Bounds | None = EVERYTHING
        for limit in self._limits:
            value = values[at[limit.index]]
            try:
                text = part.escape(str(value)) if limit.op is None else limit.write(value)
            except ValueError as error:
                side = outside(form, value)
                if not side:
                    raise self._error(f"{error} (condition on field {part.field!r})", [str(part.field)]) from None
                if (side > 0) is limit.above:
                    return None, _NOTHING  # say, id < 0 where the format starts at 0
                if not self._open_ended:
                    exact |= {limit.index}  # every value that the format can hold satisfies it
                continue
            if limit.op is None:
                found = starting_with(head + text)
            elif limit.op in (Op.GT, Op.GE):
                found = _lower_bound(form, head + text, limit.op, last=last)
            else:
                found = _upper_bound(form, head, text, limit.op, after)
            whole = None if whole is None else meet(whole, found)
        if whole is not None and (whole.lower is None or whole.upper is None):
            whole = meet(starting_with(head), whole)
        return (None, _NOTHING) if whole is None else (whole, exact)


REVERSED = {Op.LT: Op.GT, Op.LE: Op.GE, Op.GT: Op.LT, Op.GE: Op.LE}
_INCLUSIVE = {Op.LT: Op.LE, Op.LE: Op.LE, Op.GT: Op.GE, Op.GE: Op.GE}


def _ends(parts: Sequence[Part], position: int) -> bool:
    """Return whether the literal behind a part shows that the part has ended, so that no longer value begins so."""
    part, following = parts[position], parts[position + 1 : position + 2]
    if part.format.atoms is not None:
        return True
    end = following[0].literal[:1] if following else ""
    if part.format.alphabet is None:
        return end != "" and end == part.separator
    return end != "" and end not in part.format.alphabet - {"-"}


def _after(parts: Sequence[Part], position: int) -> str:
    """Return the greatest character that can follow a part; "" for the last one."""
    if position == len(parts) - 1:
        return ""
    atoms = parts[position + 1].format.atoms
    # Free text is never followed by something of varying width directly: such a template is rejected.
    return max(atoms[0], key=utf16_key) if atoms else "\uffff"


def _lower_bound(form: Format, start: str, op: Op, *, last: bool) -> Bounds:
    """Return the keys whose field is above a value that is written as `start`."""
    if op is Op.GE or (form.free and not last):
        return Bounds(start)
    # What starts with the bound itself is excluded, whatever follows.
    return Bounds(start, lower_open=True) if last else Bounds(successor(start))


def _upper_bound(form: Format, head: str, text: str, op: Op, after: str) -> Bounds:
    """Return the keys whose field is below a value that is written as `text`, behind the head."""
    start = head + text
    if not after:
        return Bounds(None, start, upper_open=op is Op.LT)
    if form.free:
        # A prefix of the bound is below it as a value, but its key goes on with what follows, which may be above.
        for cut, char in enumerate(text):
            if utf16_key(after) >= utf16_key(char):
                return _before(successor(head + text[:cut] + after))
    return _before(start if op is Op.LT else successor(start))


def _before(end: str | None) -> Bounds:
    return Bounds(None, end, upper_open=end is not None)


def outside(form: Format, value: Any) -> int:
    """Return -1 or 1 if a value of the right type is below or above all that the format holds, otherwise 0."""
    if form.low is None or type(value) is not type(form.low):
        return 0
    try:
        return -1 if value < form.low else 1 if value > form.high else 0
    except TypeError:  # a naive datetime against an aware bound
        return 0


def writer(part: Part, op: Op | None = None) -> Callable[[Any], str]:
    """
    Return the function that writes a value as a part of a key; its ValueError says what does not fit.

    Args:
        part: The part.
        op: The operator by which keys are compared with the value; None to make a key.
    """
    form = part.format
    if not form.free:
        return form.writer(op)
    to_text, separator = form.to_text, part.separator
    alnum_separator = separator.isalnum()
    plain = form.from_text is str and to_text("a") == "a" and to_text("A") == "A" and not alnum_separator
    kept = re.compile(f"[{re.escape(''.join(set(_PLAIN).difference(separator)))}]*").fullmatch

    def write(value: Any) -> str:
        # The commonest first: plain text that needs no check and no escape.
        if plain and type(value) is str and ((value.isascii() and value.isalnum()) or kept(value)):
            return value
        text: str = to_text(value)
        return text if not alnum_separator and text.isalnum() else part.escape(text)

    return write
