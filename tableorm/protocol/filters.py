"""
Filters as expression trees: their OData text, and functions that tell whether a row satisfies them.

The mapper passes a tree to a store; only the server parses text. Comparison follows the service: an absent property
makes a comparison unknown (neither true nor false, also under `not`), and text is compared by UTF-16 units.
"""

import datetime as dt
import operator
from collections.abc import Callable, Iterable
from enum import StrEnum
from functools import lru_cache
from typing import Any

import attrs

from .edm import (
    ANNOTATION,
    INT32_MAX,
    INT32_MIN,
    JSON_TYPES,
    TICKS_PER_MICROSECOND,
    Edm,
    Value,
    decode,
    edm_type,
    natural_type,
    text_from_ticks,
    ticks_from_datetime,
    ticks_from_text,
    utf16_units,
)

Row = dict[str, Any]
Test = Callable[[Row], bool | None]
"""A function that tells whether a row satisfies a condition; None means unknown, and the row is not found."""


MAX_DEPTH = 64
"""
How many levels of And, Or and Not may stand above a comparison.

The functions here call themselves once per level, and `matcher` makes Python text with as many brackets, of which
Python reads 200. What people and programs write has a few levels; an And within an And is one level once it is parsed.
"""


class Op(StrEnum):
    """The comparison operators, spelled as in OData."""

    __hash__ = str.__hash__  # an enum's own is a Python function, several times slower

    EQ = "eq"
    NE = "ne"
    GT = "gt"
    GE = "ge"
    LT = "lt"
    LE = "le"


@attrs.frozen
class Constant:
    """
    A literal with its type. A DateTime is held as ticks, so that no digit is lost.
    """

    type: Edm
    value: Any  # str, int, float, bool, UUID or bytes


@attrs.frozen
class Compare:
    """`property op constant`; PartitionKey, RowKey and Timestamp are properties too."""

    property: str
    op: Op
    constant: Constant


@attrs.frozen
class And:
    """All of `terms` hold. `And(())` holds for every row: the condition `true`."""

    terms: tuple["Filter", ...]


@attrs.frozen
class Or:
    """Any of `terms` holds. `Or(())` holds for no row: the condition `false`."""

    terms: tuple["Filter", ...]


@attrs.frozen
class Not:
    """`term` is false; unknown stays unknown."""

    term: "Filter"


Filter = Compare | And | Or | Not


def constant(value: Value, kind: Edm | None = None) -> Constant:
    """
    Make the literal of a Python value.

    An Int64 that fits Int32 is written as an Int32 literal. The service compares that with both types, while an Int64
    literal misses rows that other programs wrote as Int32.

    Raises:
        ValueError: No EDM type holds the value.
    """
    kind = kind or natural_type(value)
    if isinstance(value, dt.datetime):
        return Constant(Edm.DATETIME, ticks_from_datetime(value))
    if kind is Edm.INT64 and isinstance(value, int) and INT32_MIN <= value <= INT32_MAX:
        kind = Edm.INT32
    if kind is Edm.DOUBLE and isinstance(value, int):
        value = float(value)
    return Constant(kind, value)


def compare_value(name: str, op: Op, literal: Constant) -> Filter:
    """
    Return the comparison of a property with the literal of a Python value.

    A datetime stands for its whole microsecond, which is ten ticks: it equals each of them, and is above or below none.
    So what was read as a datetime can be asked for. A literal in the text of a filter stands for itself alone.
    """
    if literal.type is not Edm.DATETIME:
        return Compare(name, op, literal)
    last = Constant(Edm.DATETIME, literal.value + TICKS_PER_MICROSECOND - 1)
    match op:
        case Op.EQ:
            return And((Compare(name, Op.GE, literal), Compare(name, Op.LE, last)))
        case Op.NE:
            return Or((Compare(name, Op.LT, literal), Compare(name, Op.GT, last)))
        case Op.GE | Op.LT:
            return Compare(name, op, literal)
        case Op.GT | Op.LE:
            return Compare(name, op, last)


def check_depth(tree: Filter) -> None:
    """
    Refuse a tree that nests too deeply to be written or compiled. The check goes level by level, so any depth is safe.

    Raises:
        ValueError: And, Or, Not are nested in more than `MAX_DEPTH` levels.
    """
    level: list[Filter] = [tree]
    for _ in range(MAX_DEPTH + 1):
        level = [term for node in level for term in _terms(node)]
        if not level:
            return
    raise ValueError(
        f"The filter nests too deeply: more than {MAX_DEPTH} levels of And, Or, Not; merge an And in an And into one"
    )


def _terms(node: Filter) -> tuple[Filter, ...]:
    match node:
        case Compare():
            return ()
        case Not(term):
            return (term,)
        case And(terms) | Or(terms):
            return terms


def to_odata(node: Filter, *, show_values: bool = True) -> str:
    """
    Return the `$filter` text of a tree.

    Args:
        node: The tree.
        show_values: Whether constants are written, as a service needs them. Otherwise `{}` stands for each that is not
            compared with PartitionKey or RowKey.

    Raises:
        ValueError: The tree nests in more than `MAX_DEPTH` levels.
    """
    check_depth(node)
    return _to_odata(node, 0, show_values=show_values)


_PRECEDENCE = {Or: 1, And: 2, Not: 3}


def _to_odata(node: Filter, outer: int, *, show_values: bool) -> str:
    if isinstance(node, Compare):
        shown = show_values or node.property in ("PartitionKey", "RowKey")
        return f"{node.property} {node.op} {_literal(node.constant) if shown else '{}'}"
    own = _PRECEDENCE[type(node)]
    if not _terms(node):
        return "true" if isinstance(node, And) else "false"
    if isinstance(node, Not):
        text = f"not ({_to_odata(node.term, 0, show_values=show_values)})"
    else:
        word = " and " if isinstance(node, And) else " or "
        text = word.join(_to_odata(term, own, show_values=show_values) for term in node.terms)
    return f"({text})" if own < outer else text


def _literal(const: Constant) -> str:
    value = const.value
    match const.type:
        case Edm.STRING:
            return "'" + str(value).replace("'", "''") + "'"
        case Edm.BOOLEAN:
            return "true" if value else "false"
        case Edm.INT32:
            return str(value)
        case Edm.INT64:
            return f"{value}L"
        case Edm.DOUBLE:
            text = repr(value)
            return {"nan": "NaN", "inf": "INF", "-inf": "-INF"}.get(text, text)
        case Edm.DATETIME:
            return f"datetime'{text_from_ticks(value)}'"
        case Edm.GUID:
            return f"guid'{value}'"
        case Edm.BINARY:
            return f"X'{value.hex()}'"


def matcher(node: Filter) -> Callable[[Row], bool]:
    """
    Return a function that tells whether a row satisfies the tree; unknown counts as no.

    For a short filter the function is generated as one expression, so that a row costs a few dictionary look-ups. `not`
    is moved down to the comparisons, where unknown makes neither a comparison nor its negation hold; so two values are
    enough above. To generate a long one would take Python milliseconds; it is evaluated as `compile_filter` does.

    Raises:
        ValueError: The tree nests in more than `MAX_DEPTH` levels.
    """
    known = _KNOWN.get(id(node))  # the pages of a query pass the same object
    if known is not None:
        return known[1]
    # This must come before what goes through the tree recursively.
    check_depth(node)
    if _size(node) > _MOST_KEPT:
        test = _compile(node)
        return lambda row: test(row) is True
    match = _matcher(node)
    if len(_KNOWN) >= _MOST_KNOWN:
        _KNOWN.clear()
    _KNOWN[id(node)] = node, match  # keeping the node keeps its id from being used again
    return match


_KNOWN: dict[int, tuple[Filter, Callable[[Row], bool]]] = {}
_MOST_KNOWN = 256
# Functions of longer filters take too much memory to be kept, and too much time to be generated.
_MOST_KEPT = 2_500


def _size(node: Filter) -> int:
    """Return about how many characters a tree has as text."""
    if isinstance(node, Compare):
        value = node.constant.value
        return 100 + len(node.property) + (len(value) if isinstance(value, str | bytes) else 0)
    return 100 + sum(map(_size, _terms(node)))


@lru_cache(maxsize=_MOST_KNOWN)
def _matcher(node: Filter) -> Callable[[Row], bool]:
    return _make_matcher(node)


def _make_matcher(node: Filter) -> Callable[[Row], bool]:
    names: dict[str, Any] = {}
    text = _expression(node, names, negated=False)
    # The filter's names and values are variables of the generated text, never part of it.
    return _maker(text, tuple(names))(*names.values())


@lru_cache(maxsize=_MOST_KNOWN)
def _maker(text: str, names: tuple[str, ...]) -> Callable[..., Callable[[Row], bool]]:
    """Return what makes the function of an expression, for all filters that differ only in these variables."""
    found: dict[str, Any] = {"__builtins__": {}}
    # Variables of a closure: those of a module are found more slowly where functions with several share one code.
    exec(  # noqa: S102
        f"def make({', '.join(names)}):\n"
        f"    def match(row):\n        get = row.get\n        return {text}\n    return match",
        found,
    )
    maker: Callable[..., Callable[[Row], bool]] = found["make"]
    return maker


def _expression(node: Filter, names: dict[str, Any], *, negated: bool) -> str:
    if isinstance(node, Not):
        return _expression(node.term, names, negated=not negated)
    if isinstance(node, Compare):
        number = len(names)
        const = node.constant
        if node.op is Op.EQ and const.type is Edm.STRING and node.property != "Timestamp" and not negated:
            names |= {f"p{number}": node.property, f"v{number}": const.value, f"a{number}": node.property + ANNOTATION}
            plain = f"(get(p{number}) == v{number} and (a{number} not in row or t{number}(row) is True))"
            names[f"t{number}"] = _compile_compare(node)
            return plain
        names[f"t{number}"] = _compile_compare(node)
        return f"(t{number}(row) is {not negated})"
    every = isinstance(node, And) is not negated
    terms = [_expression(term, names, negated=negated) for term in node.terms]
    return "(" + (" and " if every else " or ").join(terms or [str(every)]) + ")"


def compile_filter(node: Filter) -> Test:
    """
    Return a function that tells whether a row satisfies the tree: True, False, or None for unknown.

    The result of a query are the rows for which it returns True.

    Raises:
        ValueError: The tree nests in more than `MAX_DEPTH` levels.
    """
    check_depth(node)
    return _compile(node)


def _compile(node: Filter) -> Test:
    if isinstance(node, Compare):
        return _compile_compare(node)
    if isinstance(node, Not):
        return negation(_compile(node.term))
    terms, wanted = node.terms, dict[str, list[Constant]]()
    if isinstance(node, Or):
        # One look-up finds all values that a property may equal.
        terms = tuple(term for term in terms if not _collect_equality(term, wanted))
    tests = [compile_membership(name, values) for name, values in wanted.items()]
    return combination([*tests, *map(_compile, terms)], decides=isinstance(node, Or))


def _collect_equality(node: Filter, wanted: dict[str, list[Constant]]) -> bool:
    """Add what a property must equal to `wanted`. Return False if the condition is of another kind."""
    if not isinstance(node, Compare) or node.op is not Op.EQ or node.property == "Timestamp":
        return False
    wanted.setdefault(node.property, []).append(node.constant)
    return True


def compile_membership(name: str, constants: Iterable[Constant]) -> Test:
    """
    Return a function that tells whether a property equals one of some constants; None if it is absent.

    It says of each constant what `property eq constant` says, in the time of one comparison.
    """
    return _compile_equality(name, constants, same=True)


def negation(test: Test) -> Test:
    """Return the test that is true where `test` is false; unknown stays unknown."""

    def negate(row: Row) -> bool | None:
        known = test(row)
        return None if known is None else not known

    return negate


def combination(tests: Iterable[Test], *, decides: bool) -> Test:
    """
    Join tests by `or` if `decides` is True, since one true test decides then, and by `and` if it is False.

    A test that decides wins over unknown ones.
    """
    terms = tuple(tests)

    def combine(row: Row) -> bool | None:
        result: bool | None = not decides
        for test in terms:
            known = test(row)
            if known is decides:
                return decides
            if known is None:
                result = None
        return result

    return combine


# A constant is compared with properties of its own type and of wider number types, to which it is promoted.
_PROMOTES = {
    Edm.INT32: frozenset({Edm.INT32, Edm.INT64, Edm.DOUBLE}),
    Edm.INT64: frozenset({Edm.INT64, Edm.DOUBLE}),
}
# The service orders values of different types. We observed Double and DateTime before String, and chose the rest.
_TYPE_ORDER = {
    Edm.BOOLEAN: 0,
    Edm.INT32: 1,
    Edm.INT64: 1,
    Edm.DOUBLE: 1,
    Edm.DATETIME: 2,
    Edm.GUID: 3,
    Edm.BINARY: 4,
    Edm.STRING: 5,
}
_TESTS: dict[Op, Callable[[Any, Any], bool]] = {op: getattr(operator, op) for op in Op}


def _compile_compare(node: Compare) -> Test:
    name, op, const = node.property, node.op, node.constant
    annotation_name = name + ANNOTATION
    test = _TESTS[op]
    allowed: frozenset[str] = _PROMOTES.get(const.type, frozenset({const.type}))
    wanted = _comparable(const.type, const.value)
    order, is_text = _TYPE_ORDER[const.type], const.type is Edm.STRING
    plain, as_it_is = is_text and const.value.isascii(), const.type not in (Edm.STRING, Edm.GUID)
    # One more than the constant has decides how a longer text or Binary compares with it: the rest need not be read.
    most = _length(const.value) + 1
    if name == "Timestamp":

        def compare_timestamp(row: Row) -> bool | None:
            return test(ticks_from_text(row["Timestamp"]), wanted) if const.type is Edm.DATETIME else op is Op.NE

        return compare_timestamp
    if op in (Op.EQ, Op.NE):
        return _compile_equality(name, (const,), same=op is Op.EQ)

    def compare(row: Row) -> bool | None:
        value = row.get(name)
        if value is None:
            return None
        annotation = row.get(annotation_name)
        if annotation is None and is_text and type(value) is str:
            return test(value, const.value) if plain and value.isascii() else test(utf16_units(value[:most]), wanted)
        try:
            kind = JSON_TYPES[type(value)] if annotation is None else annotation
            if kind in allowed:
                found = _raw(kind, value, most)
                return test(found if as_it_is else _comparable(const.type, found), wanted)
            own = _TYPE_ORDER[edm_type(kind)]
        except _MISFITS:
            return None
        return own != order and (own > order) is (op in (Op.GT, Op.GE))

    return compare


def _compile_equality(name: str, constants: Iterable[Constant], *, same: bool) -> Test:
    """Return the test whether a property equals one of some constants, or with `same=False` none of them."""
    wanted: dict[Edm, set[Any]] = {}
    for const in constants:
        if const.value == const.value:  # NaN is equal to nothing, while a set finds it
            for kind in _PROMOTES.get(const.type, (const.type,)):
                wanted.setdefault(kind, set()).add(const.value)
    annotation_name = name + ANNOTATION
    texts = wanted.get(Edm.STRING, set())
    most = 1 + max(map(_length, wanted.get(Edm.BINARY, ())), default=0)

    def compare_equal(row: Row) -> bool | None:
        value = row.get(name)
        if value is None:
            return None
        annotation = row.get(annotation_name)
        if annotation is None and type(value) is str:  # the commonest case: a condition on the kind of a row
            return (value in texts) is same
        # An annotated value, for example a Guid, may have the same text and is still of another type.
        try:
            kind = JSON_TYPES[type(value)] if annotation is None else edm_type(annotation)
            values = wanted.get(kind)
            return (values is not None and _raw(kind, value, most) in values) is same
        except _MISFITS:
            return not same

    return compare_equal


# What a value that is none of its type raises: it equals nothing, and has no order.
_MISFITS = (ValueError, KeyError, TypeError)


def _length(constant: Any) -> int:
    return len(constant) if isinstance(constant, str | bytes) else 0


def _raw(kind: str, value: Any, most: int) -> Any:
    """Return a value as Python has it; of a Binary at least the first bytes, so many."""
    if kind == Edm.DATETIME:
        return ticks_from_text(value)
    if kind == Edm.BINARY:
        value = value[: (most + 2) // 3 * 4]  # in base64
    return decode(value, None if kind in _PLAIN else kind)


_PLAIN = frozenset({Edm.STRING, Edm.BOOLEAN, Edm.INT32})


def _comparable(kind: Edm, value: Any) -> Any:
    if kind is Edm.STRING:
        return utf16_units(value)
    if kind is Edm.GUID:
        return str(value)
    return value
