"""
The words, literals and parentheses of `$filter` text, each with its position.

Source: REST, "Querying tables and entities"; OData 2.0, "URI conventions", for the forms of literals.
"""

import math
import re
from collections.abc import Iterator
from enum import StrEnum
from uuid import UUID

import attrs

from .codes import Code
from .edm import INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, Edm, OutOfRangeError, check_text, ticks_from_text
from .filters import Constant
from .limits import bad_in_property_name

_SHOWN = 30  # characters of the text that an error shows before and after the place


class FilterSyntaxError(ValueError):
    """
    Filter text that cannot be read, or whose parameters do not fit.

    Args:
        text: The filter.
        position: Where in the text: the offset of a character, or the text's length for its end.
        problem: What is wrong there, and the remedy if there is one.
        code: What the service answers: NotImplemented to a call of a function, which OData has and the service has not;
            OutOfRangeInput to a DateTime that it cannot hold; InvalidInput to everything else.
    """

    def __init__(self, text: str, position: int, problem: str, code: Code = Code.INVALID_INPUT) -> None:
        super().__init__(text, position, problem, code)
        self.text, self.position, self.problem, self.code = text, position, problem, code

    def __str__(self) -> str:
        start, end = max(self.position - _SHOWN, 0), self.position + _SHOWN
        before = ("..." if start else "") + self.text[start : self.position]
        after = self.text[self.position : end] + ("..." if end < len(self.text) else "")
        return f"filter at position {self.position}: {self.problem}: {_one_line(before)}>>>{_one_line(after)}"


def _one_line(text: str) -> str:
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text)


class Kind(StrEnum):
    """The kinds of tokens. `and`, `or`, `not` and the comparisons are names; their place tells what they mean."""

    OPEN = "("
    CLOSE = ")"
    NAME = "name"
    LITERAL = "literal"
    PLACEHOLDER = "{}"
    END = "end"


@attrs.frozen
class Token:
    """A token: the text that stands at `position`, and the value if it is a literal."""

    kind: Kind
    text: str
    position: int
    constant: Constant | None = None


PREFIXES = ("datetime", "guid", "binary", "X")
"""The words that stand before the quote of a literal that is not text."""

# Repetitions are possessive (`*+`): a literal without its last quote fails at once, and is not tried at every length.
_TOKEN = re.compile(
    rf"""
    (?P<space>\s*+)
    (?: (?P<open>\() | (?P<close>\)) | (?P<placeholder>\{{\}})
      | (?P<prefix>{"|".join(PREFIXES)})'(?P<content>[^']*+)'
      | '(?P<string>(?:[^']|'')*+)'
      | (?P<infinity>-INF)(?!\w)
      | (?P<integer>-?[0-9]++)(?P<fraction>(?:\.[0-9]++)?+(?:[eE][+-]?[0-9]++)?+)(?P<suffix>\w*+)
      | (?P<name>[^\W\d](?:\w|[^\s\x00-\x7f])*+)
      | (?P<end>\Z)
    )
    """,
    re.VERBOSE,
)
_SPACE = re.compile(r"\s*+")
_SOLID = (Kind.NAME, Kind.LITERAL, Kind.PLACEHOLDER)


def tokens(text: str) -> Iterator[Token]:
    """
    Yield the tokens of `text`; the last one is its end.

    Raises:
        FilterSyntaxError: The text goes on with something that is not a token.
    """
    position, before = 0, Kind.OPEN
    while before is not Kind.END:
        found = _TOKEN.match(text, position)
        if found is None:
            raise _unknown_token(text, position)
        token = _make_token(text, found)
        # Names and literals stand apart from each other; a parenthesis needs no space.
        if token.position == position and before in _SOLID and token.kind in _SOLID:
            raise FilterSyntaxError(text, position, "a space is missing")
        yield token
        position, before = found.end(), token.kind


def _unknown_token(text: str, position: int) -> FilterSyntaxError:
    space = _SPACE.match(text, position)
    position = space.end() if space else position
    char = text[position]
    if char == "'":
        problem = "the string has no closing quote; a quote within a string is written twice"
    elif char == '"':
        problem = "text stands in single quotes"
    elif char in "=<>!&|":
        problem = f"{char!r} is not an operator; write eq, ne, gt, ge, lt, le, and, or, not"
    elif char in "{}":
        problem = "a placeholder is written {}, without a name or a number"
    else:
        problem = f"{char!r} has no meaning in a filter; text stands in single quotes"
    return FilterSyntaxError(text, position, problem)


_WORDS = {
    "true": Constant(Edm.BOOLEAN, value=True),
    "false": Constant(Edm.BOOLEAN, value=False),
    "NaN": Constant(Edm.DOUBLE, math.nan),
    "INF": Constant(Edm.DOUBLE, math.inf),
}


def _make_token(text: str, found: re.Match[str]) -> Token:
    position = found.end("space")
    word = text[position : found.end()]
    match found.lastgroup:
        case "open" | "close" | "placeholder" | "end" as group:
            return Token(Kind[group.upper()], word, position)
        case "name" if word not in _WORDS:
            bad = bad_in_property_name(word)
            if bad is not None:
                raise _unknown_token(text, position + bad)
            return Token(Kind.NAME, word, position)
        case "name":
            constant = _WORDS[word]
        case "infinity":
            constant = Constant(Edm.DOUBLE, -math.inf)
        case _:
            try:
                constant = _read_literal(found)
            except ValueError as error:
                code = Code.KEY_OUT_OF_RANGE if isinstance(error, OutOfRangeError) else Code.INVALID_INPUT
                raise FilterSyntaxError(text, position, str(error), code) from None
    return Token(Kind.LITERAL, word, position, constant)


def _read_literal(found: re.Match[str]) -> Constant:
    """Return the value of a literal. ValueError says what is wrong with it."""
    match found.lastgroup, found["prefix"]:
        case "string", _:
            value = found["string"].replace("''", "'")
            fault = check_text(value)
            if fault:
                raise ValueError(f"the text {fault}")
            return Constant(Edm.STRING, value)
        case _, "datetime":
            try:
                return Constant(Edm.DATETIME, ticks_from_text(found["content"]))
            except ValueError as error:
                raise type(error)(f"not a DateTime: {error}") from None
        case _, "guid":
            if not _GUID.fullmatch(found["content"]):
                raise ValueError("not a guid such as guid'c9da6455-213d-42c9-9a79-3e9149a57833'")
            return Constant(Edm.GUID, UUID(found["content"]))
        case _, "X" | "binary":
            if not _HEX.fullmatch(found["content"]):
                raise ValueError("not pairs of hexadecimal digits such as X'00ff'")
            return Constant(Edm.BINARY, bytes.fromhex(found["content"]))
        case _:
            return _read_number(found["integer"], found["fraction"], found["suffix"])


_GUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_HEX = re.compile(r"(?:[0-9a-fA-F]{2})*+")
_INT64_DIGITS = 19


def _read_number(integer: str, fraction: str, suffix: str) -> Constant:
    if suffix in ("d", "D") or (fraction and not suffix):
        double = float(integer + fraction)
        if math.isinf(double):
            raise ValueError("beyond the range of a Double; INF and -INF are infinite")
        return Constant(Edm.DOUBLE, double)
    if fraction or suffix not in ("", "l", "L"):
        raise ValueError(f"not a number: {suffix!r} follows its digits; L makes an Int64 and d a Double")
    # Python refuses to read thousands of digits, and its time for hundreds grows faster than their number.
    digits = integer.lstrip("-").lstrip("0") or "0"
    value = int(digits) if len(digits) <= _INT64_DIGITS else INT64_MAX + 2
    value = -value if integer[0] == "-" else value
    if not INT64_MIN <= value <= INT64_MAX:
        raise ValueError("beyond the range of Int64; write it with a fraction or the suffix d as a Double")
    # Beyond Int32 the service wants a suffix, which its own clients leave out. Reading it without one loses nothing.
    small = INT32_MIN <= value <= INT32_MAX and not suffix
    return Constant(Edm.INT32 if small else Edm.INT64, value)
