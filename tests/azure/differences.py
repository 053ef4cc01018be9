"""
The comparisons that Azurite 3.35 answers otherwise than the service: its known faults, each as narrow as can be told.

A random test leaves out what stands here and nothing else. Each fault has an example, which is tested too: one that a
new version of Azurite has mended is to be struck out, here and in docs/stores/azure.md.
"""

import re
from collections.abc import Callable, Iterable

import attrs

from tableorm.protocol.edm import ANNOTATION, Edm, ticks_from_text, type_of
from tableorm.protocol.filters import And, Compare, Constant, Filter, Not, Op, Or, compile_filter, constant, to_odata
from tableorm.stores import Row

_SAME = frozenset({Op.EQ, Op.NE})
_TEXTUAL = frozenset({Edm.INT64, Edm.DATETIME, Edm.GUID, Edm.BINARY})
# A constant is compared with its own type, and with wider numbers.
_PROMOTED = {(Edm.INT64, Edm.INT32), (Edm.DOUBLE, Edm.INT32), (Edm.DOUBLE, Edm.INT64)}
_DECIMAL = re.compile(r"-?[0-9]+(\.[0-9]+)?")
_TICKS_PER_MILLISECOND = 10_000

Meets = Callable[[Row, Compare], bool]


@attrs.frozen
class Difference:
    """
    A fault of Azurite's.

    Args:
        says: What it does.
        reference: Where the reference says what the service does.
        meets: Whether it decides the comparison of a row: then what Azurite answers is not looked at.
        example: A row and a comparison that meet in it; "V" is the property.
        holds: What the service answers to that.
    """

    says: str
    reference: str
    meets: Meets
    example: tuple[Row, Compare]
    holds: bool


def _kind(row: Row, name: str) -> Edm | None:
    return type_of(row, name) if row.get(name) is not None else None


def _types(row: Row, compare: Compare) -> tuple[Edm | None, Edm]:
    return _kind(row, compare.property), compare.constant.type


def _mixed(row: Row, compare: Compare) -> bool:
    kind, wanted = _types(row, compare)
    return kind is not None and kind is not wanted and (kind, wanted) not in _PROMOTED


def _special(row: Row, name: str) -> bool:
    """Whether it is a Double that JSON writes as text: NaN, Infinity."""
    return _kind(row, name) is Edm.DOUBLE and isinstance(row[name], str)


def _exponent(row: Row, compare: Compare) -> bool:
    text = to_odata(compare).rpartition(" ")[2]
    return compare.constant.type is Edm.DOUBLE and _DECIMAL.fullmatch(text) is None


def _order_of_types(row: Row, compare: Compare) -> bool:
    return compare.op not in _SAME and _mixed(row, compare)


def _int32_misses_int64(row: Row, compare: Compare) -> bool:
    return compare.op in _SAME and _types(row, compare) == (Edm.INT64, Edm.INT32)


def _int32_is_double(row: Row, compare: Compare) -> bool:
    if compare.op not in _SAME or _types(row, compare) != (Edm.INT32, Edm.DOUBLE):
        return False
    return bool(row[compare.property] == compare.constant.value)


def _text_is_text(row: Row, compare: Compare) -> bool:
    if compare.op not in _SAME or compare.constant.type is not Edm.STRING:
        return False
    textual = _kind(row, compare.property) in _TEXTUAL or _special(row, compare.property)
    return textual and bool(row[compare.property] == compare.constant.value)


def _int64_of_text(row: Row, compare: Compare) -> bool:
    kind, wanted = _types(row, compare)
    return wanted is Edm.INT64 and (kind in (Edm.STRING, Edm.BINARY) or _special(row, compare.property))


def _loose(row: Row, compare: Compare) -> bool:
    return (
        compare.op in _SAME and compare.constant.type in (Edm.DATETIME, Edm.GUID, Edm.BINARY) and _mixed(row, compare)
    )


def _millisecond(row: Row, compare: Compare) -> bool:
    if _types(row, compare) != (Edm.DATETIME, Edm.DATETIME):
        return False
    mine: int = compare.constant.value
    return ticks_from_text(row[compare.property]) // _TICKS_PER_MILLISECOND == mine // _TICKS_PER_MILLISECOND


def _order_of_bytes(row: Row, compare: Compare) -> bool:
    kind, wanted = _types(row, compare)
    return compare.op not in _SAME and kind is wanted and kind in (Edm.GUID, Edm.BINARY)


def _crashes(row: Row, compare: Compare) -> bool:
    kind, wanted = _types(row, compare)
    number = kind in (Edm.BOOLEAN, Edm.INT32, Edm.DOUBLE)
    return wanted is Edm.INT64 and number and not _special(row, compare.property)


def _row(value: object, kind: Edm | None = None) -> Row:
    return {"V": value} if kind is None else {"V": value, "V" + ANNOTATION: kind.value}


def _v(op: Op, value: object, kind: Edm | None = None) -> Compare:
    return Compare("V", op, Constant(kind, value) if kind is not None else constant(value))  # type: ignore[arg-type]


_MOMENT = "2024-02-29T12:34:56.7891234Z"

DIFFERENCES = (
    Difference(
        "a Double with an exponent, NaN and INF are read as names of properties",
        "7.2, literals",
        _exponent,
        (_row(1e22), _v(Op.EQ, 1e22)),
        holds=True,
    ),
    Difference(
        "values of two types are ordered as in JavaScript",
        "7.3, constant of another type than the value",
        _order_of_types,
        (_row("x"), _v(Op.GT, 5)),
        holds=True,
    ),
    Difference(
        "an Int32 literal does not equal an Int64",
        "7.3, numbers: an Int32 literal matches an Int64 property of that value",
        _int32_misses_int64,
        (_row("7", Edm.INT64), _v(Op.EQ, 7)),
        holds=True,
    ),
    Difference(
        "a fractional literal equals an Int32",
        "7.3, numbers: the constant is promoted, never the value",
        _int32_is_double,
        (_row(7), _v(Op.EQ, 7.0)),
        holds=False,
    ),
    Difference(
        "a value that JSON writes as text is compared as a String",
        "7.3, constant of another type than the value: no match for `eq`",
        _text_is_text,
        (_row("7", Edm.INT64), _v(Op.EQ, "7")),
        holds=False,
    ),
    Difference(
        "an Int64 literal is compared with text by its digits",
        "7.3, constant of another type than the value",
        _int64_of_text,
        (_row(""), _v(Op.EQ, 0, Edm.INT64)),
        holds=False,
    ),
    Difference(
        "a DateTime, Guid or Binary literal equals, or does not differ from, values of other types",
        "7.3, `ne` between different types is true when the property exists",
        _loose,
        (_row("x"), _v(Op.NE, ticks_from_text(_MOMENT), Edm.DATETIME)),
        holds=True,
    ),
    Difference(
        "DateTimes are compared by the millisecond",
        "7.3, DateTime by instant; 3.1, 7 fractional digits",
        _millisecond,
        (_row(_MOMENT, Edm.DATETIME), _v(Op.NE, ticks_from_text(_MOMENT) + 1, Edm.DATETIME)),
        holds=True,
    ),
    Difference(
        "Binaries and Guids are ordered as their base64",
        "7.3, order of Binary is bytewise",
        _order_of_bytes,
        (_row("gA==", Edm.BINARY), _v(Op.LT, b"\xff")),
        holds=True,
    ),
)

ABSENT_IS_FALSE = Difference(
    "a comparison with an absent property is false, so `not` makes it true",
    "7.3, an entity without the property never satisfies a comparison on it",
    lambda row, compare: _kind(row, compare.property) is None,
    ({}, _v(Op.EQ, 1)),
    holds=False,
)

CRASHES = Difference(
    "an Int64 literal compared with a number or Boolean answers 500, whatever other rows there are",
    "7.3, numbers; 18, item 15",
    _crashes,
    (_row(7.0), _v(Op.EQ, 7, Edm.INT64)),
    holds=True,
)


def possible(tree: Filter, row: Row) -> set[bool]:
    """What Azurite may answer of a row: one thing only, as far as no difference has a say."""
    match tree:
        case Compare():
            if any(each.meets(row, tree) for each in DIFFERENCES):
                return {True, False}
            return {compile_filter(tree)(row) is True}  # unknown is false there, also under `not`
        case Not(term):
            return {not each for each in possible(term, row)}
        case And(terms):
            return _combined((possible(term, row) for term in terms), all)
        case Or(terms):
            return _combined((possible(term, row) for term in terms), any)


def _combined(terms: Iterable[set[bool]], how: Callable[[list[bool]], bool]) -> set[bool]:
    found = list(terms)
    return {how([min(each) for each in found]), how([max(each) for each in found])}


def may_crash(tree: Filter, rows: Iterable[Row]) -> bool:
    """Whether a comparison in a filter meets a row that makes Azurite answer 500."""
    match tree:
        case Compare():
            return any(CRASHES.meets(row, tree) for row in rows)
        case Not(term):
            return may_crash(term, rows)
        case And(terms) | Or(terms):
            return any(may_crash(term, rows) for term in terms)
