"""
Parse the text of `$filter`, with or without parameters, into a tree.

One pass reads the tokens, with a stack of its own. The time grows with the length of the text, and nesting costs no
Python frames, so that no text can exhaust them.
"""

import re
from collections.abc import Generator, Sequence
from typing import cast

import attrs

from .codes import Code
from .edm import Edm, Value, encode, natural_type
from .filter_tokens import PREFIXES, FilterSyntaxError, Kind, Token, tokens
from .filters import MAX_DEPTH, And, Compare, Constant, Filter, Not, Op, Or, compare_value, constant

__all__ = ["MAX_FILTER_LENGTH", "FilterSyntaxError", "format_filter", "parse_filter", "parse_in_steps"]

# In characters. A filter is part of a URL, and services accept URLs of 32 KiB.
MAX_FILTER_LENGTH = 32 * 1024


def parse_filter(text: str) -> Filter:
    """
    Read the text of `$filter`.

    `or` binds weakest, then `and`, then `not`. `not a eq 1` is read as `not (a eq 1)`: OData lets `not` bind tighter
    than the comparison, which has no meaning here. A property alone, `active`, means `active eq true`. `true` and
    `false` alone are conditions; they are left out where they do not matter, so that `true and a eq 1` becomes
    `a eq 1`. A constant may stand on the left: `5 lt age` becomes `age gt 5`. An `and` within an `and` becomes one node
    with it, and so does an `or` within an `or`. A whole number beyond Int32 without a suffix is an Int64.

    Names and operators are case-sensitive. A property may have the name of an operator, such as `and` or `le`. A
    property named `not`, `null`, `true`, `false`, `NaN` or `INF` cannot be used in a filter.

    Raises:
        FilterSyntaxError: The text is blank or malformed; it compares two properties, two constants or `null`; it calls
            a function (`.code`); it has more than `MAX_FILTER_LENGTH` characters, or nests deeper than
            `MAX_DEPTH` levels of and, or, not. Parentheses alone do not count.

    Source: REST, "Querying tables and entities", "Supported comparison operators".
    """
    return _finish(parse_in_steps(text))


def parse_in_steps(text: str) -> Generator[None, None, Filter]:
    """
    Read the text of `$filter` as `parse_filter` does, and pause after each condition.

    A long filter takes milliseconds, in which an event loop must do other work too.
    """
    return _parse(text, None)


def format_filter(text: str, *values: Value) -> Filter:
    """
    Read filter text in which each `{}` stands for a value, in order: `format_filter("Age ge {}", 30)`.

    The values become constants of the tree and never text, so that nothing in them can change what the filter says. A
    `{}` stands where a literal may, without quotes; within quotes braces are text. An int becomes an Int64 (and is
    sent as an Int32 if it fits, which the service compares with every width of number).

    Args:
        text: Filter text as `parse_filter` reads it, with placeholders.
        values: A str, bool, int, float, UUID, bytes or aware datetime for each placeholder. A datetime stands for its
            whole microsecond, as in `compare_value`.

    Raises:
        FilterSyntaxError: `parse_filter` would raise it; or there are more or fewer values than placeholders, or the
            service cannot compare a value, and then `.position` is that of its placeholder.
    """
    return _finish(_parse(text, values))


def _finish(steps: Generator[None, None, Filter]) -> Filter:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: Filter = end.value
            return found


def _parse(text: str, values: Sequence[object] | None) -> Generator[None, None, Filter]:
    if len(text) > MAX_FILTER_LENGTH:
        problem = f"the filter has {len(text)} characters, {MAX_FILTER_LENGTH} are allowed"
        raise FilterSyntaxError(text, MAX_FILTER_LENGTH, problem)
    reader = _Reader(text, values)
    tree = yield from _read_tree(reader)
    reader.check_values_used()
    return tree


# Names that are operators where an operator is expected. A property may have one of these names nevertheless.
_RANKS = {"or": 1, "and": 2, "not": 3}
_COMPARISONS = {op.value: op for op in Op}
_FLIPPED = {Op.GT: Op.LT, Op.GE: Op.LE, Op.LT: Op.GT, Op.LE: Op.GE}
_ARITHMETIC = frozenset({"add", "sub", "mul", "div", "mod"})
_CALL = re.compile(r"\s*+\(")
_TRUE, _FALSE = And(()), Or(())


class _Reader:
    """Reads the tokens in order, and finds what the operands among them mean."""

    def __init__(self, text: str, values: Sequence[object] | None) -> None:
        self.text, self.values = text, values
        self._tokens = tokens(text)
        self._used = 0

    def next(self) -> Token:
        return next(self._tokens)

    def fault(self, token: Token, problem: str, code: Code = Code.INVALID_INPUT) -> FilterSyntaxError:
        return FilterSyntaxError(self.text, token.position, problem, code)

    def operand(self, token: Token) -> Token:
        """Return the token with the constant that it stands for; without one if it is a property."""
        if token.constant is not None:
            return token
        if token.kind is Kind.PLACEHOLDER:
            return attrs.evolve(token, constant=self._parameter(token))
        end = token.position + len(token.text)
        operator = token.text in _RANKS or token.text in _COMPARISONS
        called = token.kind is Kind.NAME and _CALL.match(self.text, end)
        if token.kind is not Kind.NAME or (called and operator):
            found = "the filter ends" if token.kind is Kind.END else f"{token.text!r} stands"
            raise self.fault(token, f"{found} where a property or a constant is expected")
        if called:
            problem = (
                f"the service has no functions such as {token.text!r}; for a prefix write Name ge 'ab' and Name lt 'ac'"
            )
            raise self.fault(token, problem, Code.NOT_IMPLEMENTED)
        if self.text.startswith("'", end):
            if token.text in PREFIXES:
                raise self.fault(token, f"the {token.text} has no closing quote")
            raise self.fault(
                token, f"{token.text}'...' is not a literal; only datetime, guid, X and binary stand before a quote"
            )
        if token.text == "null":
            raise self.fault(
                token, "there is no null: an absent property satisfies no comparison, and a present one has a value"
            )
        return token

    def comparison(self, left: Token, word: Token) -> Filter:
        """Return the comparison `left word right`; the constant may be on either side."""
        token, depth = self.next(), 0
        while token.kind is Kind.OPEN:
            token, depth = self.next(), depth + 1
        right = self.operand(token)
        for _ in range(depth):
            token = self.next()
            if token.kind is not Kind.CLOSE:
                raise self.fault(token, "a closing parenthesis is expected")
        op = _COMPARISONS[word.text]
        if left.constant is None and right.constant is not None:
            return _compare(left.text, op, right, right.constant)
        if left.constant is not None and right.constant is None:
            return _compare(right.text, _FLIPPED.get(op, op), left, left.constant)
        if left.constant is None:
            names = f"the properties {left.text!r} and {right.text!r}"
            problem = f"compares {names}; one side must be a constant, and text stands in single quotes"
            raise self.fault(right, problem)
        raise self.fault(left, "compares two constants; one side must be a property, a name without quotes")

    def boolean(self, operand: Token) -> Filter:
        """Return the condition that an operand alone is: a Boolean property, `true` or `false`."""
        if operand.constant is not None:
            if operand.constant.type is not Edm.BOOLEAN:
                problem = "a constant alone is not a condition, unless it is true or false; compare it with a property"
                raise self.fault(operand, problem)
            return _TRUE if operand.constant.value else _FALSE
        return Compare(operand.text, Op.EQ, Constant(Edm.BOOLEAN, value=True))

    def misplaced(self, token: Token) -> FilterSyntaxError:
        """Return the error for a token where an operator is expected."""
        if token.text.lower() in {*_RANKS, *_COMPARISONS} and token.text != token.text.lower():
            return self.fault(token, f"operators are written in lower case: {token.text.lower()}")
        if token.text in _ARITHMETIC:
            return self.fault(token, f"the service does not calculate, so {token.text!r} has no meaning")
        return self.fault(token, f"{token.text!r} stands where an operator is expected")

    def _parameter(self, token: Token) -> Constant:
        if self.values is None:
            raise self.fault(token, "this filter has no parameters, so a placeholder has no meaning")
        number, self._used = self._used, self._used + 1
        if number >= len(self.values):
            problem = f"placeholder {number}, counted from 0, has no value; values given: {len(self.values)}"
            raise self.fault(token, problem)
        try:
            return _constant(self.values[number])
        except ValueError as error:
            raise self.fault(token, f"value {number}, counted from 0: {error}") from None

    def check_values_used(self) -> None:
        """Refuse values for which there is no placeholder."""
        if self.values is not None and self._used < len(self.values):
            problem = f"values given: {len(self.values)}, placeholders: {self._used}"
            if "{}'" in self.text:
                problem += "; within quotes {} is text, write it without them"
            raise FilterSyntaxError(self.text, len(self.text), problem)


def _compare(name: str, op: Op, operand: Token, literal: Constant) -> Filter:
    """Return a comparison with a literal, which stands for itself, or with the value of a placeholder."""
    return compare_value(name, op, literal) if operand.kind is Kind.PLACEHOLDER else Compare(name, op, literal)


def _constant(value: object) -> Constant:
    """Make the constant of a parameter. ValueError says why there is none."""
    try:
        kind = natural_type(value)
    except ValueError as error:
        raise ValueError(f"{error}; give a str, bool, int, float, UUID, bytes or an aware datetime") from None
    encode(value, kind)
    # An enum's member is compared by its text or number.
    if isinstance(value, str):
        return constant(str.__str__(value))
    if isinstance(value, int) and not isinstance(value, bool):
        return constant(int(value))
    return constant(cast("Value", value))


_Term = tuple[Filter, int]
"""A term that was read, and how many levels of and, or, not it has."""


def _read_tree(reader: _Reader) -> Generator[None, None, Filter]:
    """Read conditions, and join them once an operator follows that binds less tightly than the one between them."""
    terms: list[_Term] = []
    waiting: list[Token] = []  # operators and parentheses whose terms are not complete
    token = reader.next()
    while True:
        while token.kind is Kind.OPEN or token.text == "not":
            waiting.append(token)
            token = reader.next()
        token = _read_condition(reader, reader.operand(token), waiting, terms)
        while token.kind is Kind.CLOSE:
            _join_terms(reader, waiting, terms, 0)
            if not waiting:
                raise reader.fault(token, "there is no parenthesis to close")
            waiting.pop()
            token = reader.next()
            yield
        if token.kind is Kind.END:
            _join_terms(reader, waiting, terms, 0)
            if waiting:
                raise reader.fault(waiting[-1], "the parenthesis is not closed")
            return terms[0][0]
        if token.text not in ("and", "or"):
            raise reader.misplaced(token)
        _join_terms(reader, waiting, terms, _RANKS[token.text])
        waiting.append(token)
        token = reader.next()
        yield


def _read_condition(reader: _Reader, left: Token, waiting: list[Token], terms: list[_Term]) -> Token:
    """Read on after an operand until it is a condition; return the token after that."""
    token = reader.next()
    # `(age) ge 30`: parentheses around an operand mean nothing.
    while token.kind is Kind.CLOSE and waiting and waiting[-1].kind is Kind.OPEN:
        waiting.pop()
        token = reader.next()
    if token.text in _COMPARISONS:
        terms.append((reader.comparison(left, token), 0))
        return reader.next()
    terms.append((reader.boolean(left), 0))
    return token


def _join_terms(reader: _Reader, waiting: list[Token], terms: list[_Term], rank: int) -> None:
    """Join the terms of the operators since the last open parenthesis that bind tighter than `rank`."""
    while waiting and waiting[-1].kind is not Kind.OPEN and _RANKS[waiting[-1].text] > rank:
        operator, count = waiting.pop(), 1
        if operator.text == "not":
            joined = _negate(*terms[-1])
        else:
            count = 2
            while waiting and waiting[-1].text == operator.text:
                waiting.pop()
                count += 1
            joined = _join(And if operator.text == "and" else Or, terms[-count:])
        if joined[1] > MAX_DEPTH:
            raise reader.fault(operator, f"and, or, not are nested in more than {MAX_DEPTH} levels")
        terms[-count:] = [joined]


def _negate(term: Filter, depth: int) -> _Term:
    if term == _TRUE:
        return _FALSE, 0
    return (_TRUE, 0) if term == _FALSE else (Not(term), depth + 1)


def _join(kind: type[And | Or], terms: list[_Term]) -> _Term:
    """
    Join terms, and leave out `true` and `false`.

    One of these decides by itself, also over unknown terms; the other one does not matter.
    """
    deciding, found, depth = _FALSE if kind is And else _TRUE, list[Filter](), 1
    for term, levels in terms:
        if term == deciding:
            return term, 0
        if isinstance(term, kind):  # one of none does not matter
            found += term.terms
            depth = max(depth, levels)
        else:
            found.append(term)
            depth = max(depth, levels + 1)
    return (found[0], depth - 1) if len(found) == 1 else (kind(tuple(found)), depth)
