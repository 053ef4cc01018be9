"""
Filter text: each form that the service documents, what is rejected and where, and parameters that stay values.
"""

import datetime as dt
import enum
import math
import pickle
from typing import Any
from uuid import UUID

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tableorm.protocol.codes import Code
from tableorm.protocol.edm import Edm, ticks_from_datetime, ticks_from_text
from tableorm.protocol.filter_text import MAX_FILTER_LENGTH, FilterSyntaxError, format_filter, parse_filter
from tableorm.protocol.filters import (
    MAX_DEPTH,
    And,
    Compare,
    Constant,
    Filter,
    Not,
    Op,
    Or,
    compile_filter,
    matcher,
    to_odata,
)
from tableorm.protocol.limits import bad_in_property_name

NOON = dt.datetime(2024, 2, 29, 12, tzinfo=dt.UTC)
GUID = "c9da6455-213d-42c9-9a79-3e9149a57833"


def compare(name: str, op: Op = Op.EQ, value: Any = 1, kind: Edm = Edm.INT32) -> Compare:
    return Compare(name, op, Constant(kind, value))


def true(name: str) -> Compare:
    return compare(name, Op.EQ, True, Edm.BOOLEAN)


A, B, C, D = true("a"), true("b"), true("c"), true("d")
EVERY, NONE = And(()), Or(())


@pytest.mark.parametrize(
    ("literal", "kind", "value"),
    [
        ("007", Edm.INT32, 7),
        ("2147483648", Edm.INT64, 2**31),
        ("-2147483649", Edm.INT64, -(2**31) - 1),
        ("-9223372036854775808", Edm.INT64, -(2**63)),
        ("1.25E-7", Edm.DOUBLE, 1.25e-7),
        ("9223372036854775808d", Edm.DOUBLE, 2.0**63),
        ("-INF", Edm.DOUBLE, -math.inf),
        ("datetime'2024-02-29T12:00:00'", Edm.DATETIME, ticks_from_datetime(NOON)),
        ("datetime'2024-02-29T13:00:00+01:00'", Edm.DATETIME, ticks_from_datetime(NOON)),
        ("X'00fF'", Edm.BINARY, b"\x00\xff"),
    ],
)
def test_literals(literal: str, kind: Edm, value: Any) -> None:
    """A literal is read with its type and exact value, however it is written, on either side and in parentheses."""
    expected = compare("a", Op.EQ, value, kind)

    for text in [f"a eq {literal}", f"{literal} eq a", f"a eq ({literal})", f" ( ( {literal})) eq(a) "]:
        found = parse_filter(text)
        assert isinstance(found, Compare) and type(found.constant.value) is type(value)
        assert found == expected


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("not(a)", Not(A)),
        ("not (a) eq 1", Not(compare("a"))),
        ("a and (b or (c and d))", And((A, Or((B, And((C, D))))))),
        ("true eq a", A),
    ],
)
def test_grammar(text: str, tree: Filter) -> None:
    """Parentheses that we do not write; what joins its like becomes one node, and `true` is a constant."""
    assert parse_filter(text) == tree


@pytest.mark.parametrize(
    ("op", "flipped"),
    [(Op.EQ, Op.EQ), (Op.NE, Op.NE), (Op.GT, Op.LT), (Op.GE, Op.LE), (Op.LT, Op.GT), (Op.LE, Op.GE)],
)
def test_a_constant_on_the_left(op: Op, flipped: Op) -> None:
    """`5 lt age` says what `age gt 5` says."""
    assert parse_filter(f"1 {op} a") == compare("a", flipped)


@pytest.mark.parametrize(
    ("text", "position", "problem"),
    [
        ("", 0, "the filter ends where"),
        ("not", 3, "the filter ends where"),
        ("(a", 0, "the parenthesis is not closed"),
        ("a eq (1 and b", 8, "a closing parenthesis is expected"),
        ("a)", 1, "no parenthesis to close"),
        ("a (b)", 0, "no functions"),
        ("a not eq 1", 2, "'not' stands where an operator is expected"),
        ("a EQ 1", 2, "operators are written in lower case: eq"),
        ("a add 1 eq 2", 2, "does not calculate"),
        ("a eq b", 5, "compares the properties 'a' and 'b'"),
        ("1 eq 1", 0, "compares two constants"),
        ("a eq null", 5, "there is no null"),
        ("a eq 'x", 5, "closing quote"),
        ('a eq "x"', 5, "single quotes"),
        ("a = 1", 2, "not an operator; write eq"),
        ("a ≥ 1", 2, "'≥' has no meaning"),
        ("a eq ٣", 5, "'٣' has no meaning"),
        ("a eq 5x", 5, "'x' follows its digits"),
        ("a eq 9223372036854775808", 5, "beyond the range of Int64"),
        ("a eq " + "9" * 10_000, 5, "beyond the range of Int64"),
        ("a eq 1e400", 5, "beyond the range of a Double"),
        ("a eq 1'x'", 6, "a space is missing"),
        ("a eq x'00'", 5, "x'...' is not a literal"),
        ("a eq datetime'1600-12-31T23:59:59Z'", 5, "not a DateTime"),
        (f"a eq guid'{{{GUID}}}'", 5, "not a guid"),
        ("a eq X'0'", 5, "hexadecimal"),
        ("a eq 'x\ud800'", 5, "lone surrogate U+D800"),
        ("a² eq 1", 1, "'²' has no meaning"),
        ("a eq {}", 5, "has no parameters"),
    ],
)
def test_what_is_refused(text: str, position: int, problem: str) -> None:
    """Every mistake is named, with its place."""
    with pytest.raises(FilterSyntaxError) as caught:
        parse_filter(text)
    assert (caught.value.position, caught.value.text) == (position, text)
    assert problem in caught.value.problem
    outside = "1600" in text
    code = Code.KEY_OUT_OF_RANGE if outside else Code.INVALID_INPUT
    assert caught.value.code == (Code.NOT_IMPLEMENTED if problem == "no functions" else code)


@pytest.mark.parametrize(
    "text",
    ["startswith(a,'b')", "a and substringof('b', a) eq true", "a eq tolower ('b')", "not endswith(", "1 lt length(a)"],
)
def test_functions_are_told_apart(text: str) -> None:
    """A function call is not a mistake in the text but something that the service does not have."""
    with pytest.raises(FilterSyntaxError, match="no functions") as caught:
        parse_filter(text)
    assert caught.value.code == Code.NOT_IMPLEMENTED


def test_the_message_shows_the_place() -> None:
    """The message is one line with the text around the place, and survives pickling."""
    with pytest.raises(FilterSyntaxError) as caught:
        parse_filter("a eq '" + "x" * 50 + "'\n and b eq 1L2 and c eq '" + "x" * 50 + "'")
    error = caught.value
    copy: FilterSyntaxError = pickle.loads(pickle.dumps(error))

    assert str(error) == (
        "filter at position 68: not a number: 'L2' follows its digits; L makes an Int64 and d a Double: "
        "...xxxxxxxxxxxxxxxxxx'\\n and b eq >>>1L2 and c eq 'xxxxxxxxxxxxxxxx..."
    )
    assert (str(copy), copy.position, copy.problem, copy.text, copy.code) == (
        *(str(error), error.position, error.problem, error.text),
        Code.INVALID_INPUT,
    )


def test_length() -> None:
    """A filter may be as long as a URL, and no longer."""
    text = "a eq '" + "x" * (MAX_FILTER_LENGTH - 7) + "'"

    assert parse_filter(text) == compare("a", Op.EQ, "x" * (MAX_FILTER_LENGTH - 7), Edm.STRING)
    with pytest.raises(FilterSyntaxError, match=f"{MAX_FILTER_LENGTH} are allowed"):
        parse_filter(text + " ")


@pytest.mark.one_of(3)
@pytest.mark.parametrize(
    "unit", ["(", "a and (", "a or (", "not (", "not ", "a eq (", ")", "a or b and (", "'", "''", "-", "{}"]
)
def test_no_text_is_too_deep_to_be_read(unit: str) -> None:
    """Text that opens as much as it can is rejected with its place, and takes no stack."""
    for end in ["", "a"]:
        text = (unit * MAX_FILTER_LENGTH)[: MAX_FILTER_LENGTH - 1] + end

        with pytest.raises(FilterSyntaxError) as caught:
            parse_filter(text)
        assert 0 <= caught.value.position <= len(text)
    with pytest.raises(FilterSyntaxError, match="100000 characters"):
        parse_filter((unit * 100_000)[:100_000])


def test_parentheses_alone_are_no_depth() -> None:
    """Programs that join conditions two by two nest parentheses a thousandfold; the tree is as flat as it means."""
    names = [f"p{number}" for number in range(1000)]
    left = "(" * 999 + "p0" + "".join(f" or {name})" for name in names[1:])
    right = "".join(f"({name} or " for name in names[:-1]) + names[-1] + ")" * 999

    assert parse_filter("(" * 16_000 + "a" + ")" * 16_000) == A
    assert parse_filter(left) == parse_filter(right) == Or(tuple(map(true, names)))


def alternating(levels: int) -> Filter:
    """A tree with `levels` of And, Or and Not above its deepest comparison."""
    tree: Filter = A
    for level in range(levels):
        tree = (Not(tree), And((B, tree)), Or((tree, C)))[level % 3]
    return tree


def test_depth() -> None:
    """Text of the deepest tree is read, one level more is rejected at the operator that is one too many."""
    deep = Or((A, Not(alternating(MAX_DEPTH - 2))))
    text = to_odata(deep)

    assert parse_filter(text) == deep
    assert parse_filter(f"({text}) or d") == Or((*deep.terms, D))
    with pytest.raises(FilterSyntaxError, match=f"more than {MAX_DEPTH} levels") as caught:
        parse_filter(f"not ({text})")
    assert caught.value.text[caught.value.position :].startswith(("not", "and", "or"))


# Trees of everything, to text and back.

RESERVED = {"not", "null", "true", "false", "NaN", "INF"}
names = (
    st.one_of(
        st.sampled_from(
            ["a", "PartitionKey", "and", "or", "eq", "ne", "add", "datetime", "guid", "X", "binary", "L", "d"]
        ),
        st.from_regex(r"[^\W\d]\w{0,8}", fullmatch=True),
        st.text(st.sampled_from("aéกด\u0e31\u0e37\u093e‿\u200d٣"), min_size=1, max_size=8),
    )
    .filter(lambda name: bad_in_property_name(name) is None)
    .filter(lambda name: name not in RESERVED)
)
texts = st.one_of(st.text(), st.text("'{}()\"\\ \n\U0001f600\ue000"))
constants: st.SearchStrategy[Constant] = st.one_of(
    st.builds(Constant, st.just(Edm.STRING), texts),
    st.builds(Constant, st.just(Edm.BOOLEAN), st.booleans()),
    st.builds(Constant, st.just(Edm.INT32), st.integers(-(2**31), 2**31 - 1)),
    st.builds(Constant, st.just(Edm.INT64), st.integers(-(2**63), 2**63 - 1)),
    st.builds(Constant, st.just(Edm.DOUBLE), st.floats()),
    st.builds(
        Constant,
        st.just(Edm.DATETIME),
        st.integers(ticks_from_text("1601-01-01T00:00Z"), ticks_from_text("9999-12-31T23:59:59.9999999Z")),
    ),
    st.builds(Constant, st.just(Edm.GUID), st.uuids()),
    st.builds(Constant, st.just(Edm.BINARY), st.binary(max_size=20)),
)


def trees_of(leaves: st.SearchStrategy[Filter]) -> st.SearchStrategy[Filter]:
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.builds(Not, inner),
            st.lists(inner, min_size=1, max_size=4).map(lambda terms: And(tuple(terms))),
            st.lists(inner, min_size=1, max_size=4).map(lambda terms: Or(tuple(terms))),
        ),
        max_leaves=12,
    )


trees = trees_of(st.builds(Compare, names, st.sampled_from(list(Op)), constants))
trees_with_constants = trees_of(st.sampled_from([And(()), Or(()), true("a"), true("b")]))
A_ROW_EACH: list[dict[str, bool]] = [
    {},
    *({"a": True}, {"a": False}, {"a": True, "b": True}, {"a": True, "b": False}, {"a": False, "b": False}),
]


def has_constants(node: Filter) -> bool:
    """Whether `true` or `false` is anywhere in a tree."""
    terms = (node.term,) if isinstance(node, Not) else () if isinstance(node, Compare) else node.terms
    return (isinstance(node, And | Or) and not terms) or any(map(has_constants, terms))


@given(trees_with_constants)
def test_true_and_false_are_conditions(tree: Filter) -> None:
    """A filter with them means the same once it is read, also where a property is absent, and has none inside."""
    found = parse_filter(to_odata(tree))

    for row in A_ROW_EACH:
        assert compile_filter(found)(row) is compile_filter(tree)(row)
        assert matcher(found)(row) is matcher(tree)(row) is (compile_filter(tree)(row) is True)
    assert found in (EVERY, NONE) or not has_constants(found)


def flat(node: Filter) -> Filter:
    """The same with And in And, and Or in Or, as one, and nothing around a single term."""
    if isinstance(node, Compare):
        return node
    if isinstance(node, Not):
        return Not(flat(node.term))
    kind = type(node)
    terms: list[Filter] = []
    for term in map(flat, node.terms):
        terms += term.terms if isinstance(term, kind) else [term]
    return kind(tuple(terms)) if len(terms) > 1 else terms[0]


@given(trees)
@example(compare("a", Op.EQ, -math.inf, Edm.DOUBLE))
@example(compare("a", Op.EQ, "O'Neil", Edm.STRING))
def test_text_and_back(tree: Filter) -> None:
    """Reading the text of a tree gives the tree, to the last digit; both mean the same."""
    # The text of NaN is equal, NaN is not.
    assert repr(parse_filter(to_odata(tree))) == repr(flat(tree))


WORDS = """
a b and or not eq gt null true NaN f( ( ) 'x' ' '' 1 - 1e5 L d datetime' 2024-01-01T00:00:00Z' guid' X' {} { } . é
"""
pieces = st.sampled_from([*WORDS.split(), " ", " ", "\n", "\ud800", "\0"])


@given(st.one_of(st.text(), st.lists(pieces).map("".join), st.lists(pieces).map(" ".join)))
@example("a eq datetime'0000-01-01T00:00:00Z'")
@example("a eq datetime'9999-12-31T23:59:59-23:59'")
def test_any_text_is_answered(text: str) -> None:
    """Text is read, and then means the same once written and can be matched, or it is rejected with a place in it."""
    try:
        tree = parse_filter(text)
    except FilterSyntaxError as error:
        fault = error
    else:
        row = {"PartitionKey": "p", "RowKey": "r", "a": "x", "b": 1}
        assert repr(parse_filter(to_odata(tree))) == repr(tree)
        assert matcher(tree)(row) is (compile_filter(tree)(row) is True)
        return
    assert 0 <= fault.position <= len(text)
    assert "\n" not in str(fault)


# Parameters.


class Color(enum.StrEnum):
    RED = "red"


class Old(str, enum.Enum):  # noqa: UP042 - whose str() is not its value
    GREEN = "green"


class Size(enum.IntEnum):
    LARGE = 3


@pytest.mark.parametrize(
    ("value", "kind", "held"),
    [
        (-(2**31), Edm.INT32, -(2**31)),
        (NOON, Edm.DATETIME, ticks_from_datetime(NOON)),
        (UUID(GUID), Edm.GUID, UUID(GUID)),
        (Color.RED, Edm.STRING, "red"),
        (Old.GREEN, Edm.STRING, "green"),
        (Size.LARGE, Edm.INT32, 3),
    ],
)
def test_parameters(value: Any, kind: Edm, held: Any) -> None:
    """A value becomes the constant of its type, on either side of the comparison, and is spelt as one."""
    expected = compare("a", Op.LT, held, kind)

    for text in ["a lt {}", "{} gt a", "a lt ({})", "({})gt a"]:
        found = format_filter(text, value)
        assert isinstance(found, Compare) and type(found.constant.value) is type(held)
        assert found == expected
        assert parse_filter(to_odata(found)) == expected


def test_parameters_in_order() -> None:
    """Placeholders take the values from left to right; braces in quotes are text; text may have none of them."""
    found = format_filter("PartitionKey eq {} and (Age ge {} or Note eq '{} {{}}') and {}  lt Age", "Sales", 30, 99)

    assert to_odata(found) == "PartitionKey eq 'Sales' and (Age ge 30 or Note eq '{} {{}}') and Age gt 99"
    assert format_filter("a") == A


@given(st.lists(texts, max_size=5))
def test_nothing_is_injected(values: list[str]) -> None:
    """Whatever the values say, the tree has the form of the text, and the values are in it as they were."""
    text = " and ".join(["z", *["a eq {}"] * len(values)])
    found = format_filter(text, *values)

    terms = [compare("a", Op.EQ, value, Edm.STRING) for value in values]
    assert found == (And((true("z"), *terms)) if terms else true("z"))


@pytest.mark.parametrize(
    ("text", "values", "position", "problem"),
    [
        ("a eq {}", [], 5, "placeholder 0, counted from 0, has no value; values given: 0"),
        ("a eq {}", [1, 2], 7, "values given: 2, placeholders: 1"),
        ("a eq '{}'", ["x"], 9, "within quotes {} is text"),
        ("a {} 1", ["eq"], 2, "'{}' stands where an operator is expected"),
        ("a eq datetime'{}'", [NOON], 5, "not a DateTime"),
        ("a eq {0}", [1], 5, "without a name or a number"),
        ("f({})", [1], 0, "no functions"),
        ("a eq 1 and b eq {}", [None], 16, "value 0, counted from 0: None (NoneType) is not a value"),
        ("a eq {}", [["x"]], 5, "(list) is not a value"),
        ("a eq {}", [2**63], 5, "outside the range of Edm.Int64"),
        ("a eq {}", ["x\ud800"], 5, "lone surrogate"),
        ("a eq {}", [NOON.replace(tzinfo=None)], 5, "is naive; give it a time zone"),
    ],
)
def test_parameters_that_are_refused(text: str, values: list[Any], position: int, problem: str) -> None:
    """Each says which value or placeholder it is, where, and what to do."""
    with pytest.raises(FilterSyntaxError) as caught:
        format_filter(text, *values)
    assert caught.value.position == position
    assert problem in caught.value.problem
