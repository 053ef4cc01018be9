"""
Filter text: what `$filter` says, as a tree, and with parameters.

Everything is one pass over the tokens with a stack of its own: the time taken grows with the length of the text, and
nesting costs no Python frames, so that no text can exhaust them.
"""

import re
from collections.abc import Sequence
from typing import cast

import attrs

from .edm import Edm, Value, encode, natural_type
from .filter_tokens import PREFIXES, FilterSyntaxError, Kind, Token, tokens
from .filters import MAX_DEPTH, And, Compare, Constant, Filter, Not, Op, Or, constant

__all__ = ["MAX_FILTER_LENGTH", "FilterSyntaxError", "format_filter", "parse_filter"]

# In characters. A filter is a part of a URL, of which services accept 32 KiB in all.
MAX_FILTER_LENGTH = 32 * 1024


def parse_filter(text: str) -> Filter:
    """
    Read the text of `$filter`.

    `or` binds weakest, then `and`, then `not`. `not a eq 1` is read as `not (a eq 1)`: OData lets `not` bind tighter
    than the comparison, which has no meaning here. A property alone, `active`, means `active eq true`; a constant may
    stand on the left, and `5 lt age` becomes `age gt 5`. `and` in `and`, and `or` in `or`, become one node. A whole
    number beyond Int32 without a suffix is an Int64.

    Names and operators are case-sensitive. A property may have the name of an operator, as `and` or `le`, but there is
    no way to speak of one that is named `not`, `null`, `true`, `false`, `NaN` or `INF`.

    Raises:
        FilterSyntaxError: The text is blank or malformed; it compares two properties, two constants or `null`; it calls
            a function (`.unsupported`); it has more than `MAX_FILTER_LENGTH` characters, or nests deeper than
            `MAX_DEPTH` levels of and, or, not. Parentheses alone do not count.

    Source: REST, "Querying tables and entities", "Supported comparison operators".
    """
    return _parse(text, None)


def format_filter(text: str, *values: Value) -> Filter:
    """
    Read filter text in which each `{}` stands for a value, in order: `format_filter("Age ge {}", 30)`.

    The values become constants of the tree and never text, so that nothing in them can change what the filter says. A
    `{}` stands where a literal may, without quotes; inside of quotes braces are text. An int becomes an Int64 (and is
    sent as an Int32 if it fits, which the service compares with every width of number).

    Args:
        text: As for `parse_filter`, with placeholders.
        values: A str, bool, int, float, UUID, bytes or aware datetime for each.

    Raises:
        FilterSyntaxError: As for `parse_filter`; or there are more or fewer values than placeholders, or a value is
            none that the service can compare. `.position` is the placeholder's.
    """
    return _parse(text, values)


def _parse(text: str, values: Sequence[object] | None) -> Filter:
    if len(text) > MAX_FILTER_LENGTH:
        problem = f"the filter has {len(text)} characters, {MAX_FILTER_LENGTH} are allowed"
        raise FilterSyntaxError(text, MAX_FILTER_LENGTH, problem)
    reader = _Reader(text, values)
    tree = _tree(text, _postfix(reader))
    reader.check_values_used()
    return tree


# Names that are operators in the place of an operator. A property may bear one of them nevertheless.
_RANKS = {"or": 1, "and": 2, "not": 3}
_COMPARISONS = {op.value: op for op in Op}
_FLIPPED = {Op.GT: Op.LT, Op.GE: Op.LE, Op.LT: Op.GT, Op.LE: Op.GE}
_ARITHMETIC = frozenset({"add", "sub", "mul", "div", "mod"})
_CALL = re.compile(r"\s*+\(")


class _Reader:
    """The tokens in order, and what operands among them mean."""

    def __init__(self, text: str, values: Sequence[object] | None) -> None:
        self.text, self.values = text, values
        self._tokens = tokens(text)
        self._used = 0

    def next(self) -> Token:
        return next(self._tokens)

    def fault(self, token: Token, problem: str, *, unsupported: bool = False) -> FilterSyntaxError:
        return FilterSyntaxError(self.text, token.position, problem, unsupported)

    def operand(self, token: Token) -> "_Operand":
        """The constant or the property that `token` is."""
        if token.constant is not None:
            return _Operand(token, token.constant)
        if token.kind is Kind.PLACEHOLDER:
            return _Operand(token, self._value(token))
        end = token.position + len(token.text)
        operator = token.text in _RANKS or token.text in _COMPARISONS
        called = token.kind is Kind.NAME and _CALL.match(self.text, end)
        if token.kind is not Kind.NAME or (called and operator):
            found = "the filter ends" if token.kind is Kind.END else f"{token.text!r} stands"
            raise self.fault(token, f"{found} where a property or a constant is due")
        if called:
            problem = f"the service has no functions, such as {token.text!r}; a prefix is Name ge 'ab' and Name lt 'ac'"
            raise self.fault(token, problem, unsupported=True)
        if self.text.startswith("'", end):
            if token.text in PREFIXES:
                raise self.fault(token, f"the {token.text} has no closing quote")
            raise self.fault(
                token, f"{token.text}'...' is no literal; before a quote stand datetime, guid, X and binary"
            )
        if token.text == "null":
            raise self.fault(
                token, "there is no null: an absent property satisfies no comparison, and a present one has a value"
            )
        return _Operand(token, None)

    def comparison(self, left: "_Operand", word: Token) -> Compare:
        """`left word right`, with the constant on either side."""
        token, depth = self.next(), 0
        while token.kind is Kind.OPEN:
            token, depth = self.next(), depth + 1
        right = self.operand(token)
        for _ in range(depth):
            token = self.next()
            if token.kind is not Kind.CLOSE:
                raise self.fault(token, "a closing parenthesis is due")
        op = _COMPARISONS[word.text]
        if left.constant is None and right.constant is not None:
            return Compare(left.token.text, op, right.constant)
        if left.constant is not None and right.constant is None:
            return Compare(right.token.text, _FLIPPED.get(op, op), left.constant)
        if left.constant is None:
            names = f"the properties {left.token.text!r} and {right.token.text!r}"
            problem = f"compares {names}; one side is a constant, and text stands in single quotes"
            raise self.fault(right.token, problem)
        raise self.fault(left.token, "compares two constants; one side is a property, a name without quotes")

    def alone(self, operand: "_Operand") -> Compare:
        """A property that is a condition by itself."""
        if operand.constant is not None:
            raise self.fault(operand.token, "a constant is no condition by itself; compare it with a property")
        return Compare(operand.token.text, Op.EQ, Constant(Edm.BOOLEAN, value=True))

    def misplaced(self, token: Token) -> FilterSyntaxError:
        """The error for a token in the place of an operator."""
        if token.text.lower() in {*_RANKS, *_COMPARISONS} and token.text != token.text.lower():
            return self.fault(token, f"operators are written small: {token.text.lower()}")
        if token.text in _ARITHMETIC:
            return self.fault(token, f"the service does not calculate, so {token.text!r} has no meaning")
        return self.fault(token, f"{token.text!r} stands where an operator is due")

    def _value(self, token: Token) -> Constant:
        if self.values is None:
            raise self.fault(token, "a placeholder, and this filter has no parameters")
        number, self._used = self._used, self._used + 1
        if number >= len(self.values):
            problem = f"placeholder {number}, counted from 0, has no value; values given: {len(self.values)}"
            raise self.fault(token, problem)
        try:
            return _constant(self.values[number])
        except ValueError as error:
            raise self.fault(token, f"value {number}, counted from 0: {error}") from None

    def check_values_used(self) -> None:
        """Refuse values that no placeholder stands for."""
        if self.values is not None and self._used < len(self.values):
            problem = f"values given: {len(self.values)}, placeholders: {self._used}"
            if "{}'" in self.text:
                problem += "; in quotes {} is text, write it without them"
            raise FilterSyntaxError(self.text, len(self.text), problem)


@attrs.frozen
class _Operand:
    """A property, or a constant with its value."""

    token: Token
    constant: Constant | None


def _constant(value: object) -> Constant:
    """The constant for a parameter; ValueError says why there is none."""
    try:
        kind = natural_type(value)
    except ValueError as error:
        raise ValueError(f"{error}; give a str, bool, int, float, UUID, bytes or an aware datetime") from None
    encode(value, kind)
    # A member of an enum is not what is compared, but the text or number that it is.
    if isinstance(value, str):
        return constant(str.__str__(value))
    if isinstance(value, int) and not isinstance(value, bool):
        return constant(int(value))
    return constant(cast("Value", value))


def _postfix(reader: _Reader) -> "list[Compare | Token]":
    """
    The comparisons in their order, each operator after what it joins: `a and not b` as `a b not and`.
    """
    output: list[Compare | Token] = []
    waiting: list[Token] = []  # operators and parentheses that something must still follow
    token = reader.next()
    while True:
        while token.kind is Kind.OPEN or token.text == "not":
            waiting.append(token)
            token = reader.next()
        token = _condition(reader, reader.operand(token), waiting, output)
        while token.kind is Kind.CLOSE:
            _settle(waiting, output, 0)
            if not waiting:
                raise reader.fault(token, "there is no parenthesis to close")
            waiting.pop()
            token = reader.next()
        if token.kind is Kind.END:
            _settle(waiting, output, 0)
            if waiting:
                raise reader.fault(waiting[-1], "the parenthesis is not closed")
            return output
        if token.text not in ("and", "or"):
            raise reader.misplaced(token)
        _settle(waiting, output, _RANKS[token.text])
        waiting.append(token)
        token = reader.next()


def _condition(reader: _Reader, left: _Operand, waiting: list[Token], output: "list[Compare | Token]") -> Token:
    """Read on after an operand until it is a condition; the token after that."""
    token = reader.next()
    # `(age) ge 30`: parentheses around an operand mean nothing.
    while token.kind is Kind.CLOSE and waiting and waiting[-1].kind is Kind.OPEN:
        waiting.pop()
        token = reader.next()
    if token.text in _COMPARISONS:
        output.append(reader.comparison(left, token))
        return reader.next()
    output.append(reader.alone(left))
    return token


def _settle(waiting: list[Token], output: "list[Compare | Token]", rank: int) -> None:
    """Put out the operators since the last open parenthesis that bind at least as tightly as `rank`."""
    while waiting and waiting[-1].kind is not Kind.OPEN and _RANKS[waiting[-1].text] >= rank:
        output.append(waiting.pop())


@attrs.define
class _Node:
    """An operator and those of its terms that are complete, the last one first."""

    word: str
    due: int
    terms: list[Filter] = attrs.Factory(list[Filter])

    def filter(self) -> Filter:
        if self.word == "not":
            return Not(self.terms[0])
        terms = tuple(reversed(self.terms))
        return And(terms) if self.word == "and" else Or(terms)


def _tree(text: str, postfix: "list[Compare | Token]") -> Filter:
    """Backwards an operator comes before its terms, so that one inside of its like just adds a term to it."""
    nodes: list[_Node] = []
    while True:
        item = postfix.pop()
        if isinstance(item, Token):
            if nodes and item.text == nodes[-1].word != "not":
                nodes[-1].due += 1
            elif len(nodes) == MAX_DEPTH:
                problem = f"and, or, not are nested in more than {MAX_DEPTH} levels"
                raise FilterSyntaxError(text, item.position, problem)
            else:
                nodes.append(_Node(item.text, 1 if item.text == "not" else 2))
            continue
        done: Filter = item
        while True:
            if not nodes:
                return done
            nodes[-1].terms.append(done)
            nodes[-1].due -= 1
            if nodes[-1].due:
                break
            done = nodes.pop().filter()
