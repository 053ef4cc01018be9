"""
Filters: their OData text, and which rows satisfy them, against an evaluator that is written differently.
"""

import datetime as dt
import math
import sys
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tableorm.protocol.edm import Edm, Value, encode, ticks_from_datetime
from tableorm.protocol.filters import (
    MAX_DEPTH,
    And,
    Compare,
    Constant,
    Filter,
    Not,
    Op,
    Or,
    check_depth,
    compile_filter,
    constant,
    matcher,
    to_odata,
)

NOON = dt.datetime(2024, 2, 29, 12, tzinfo=dt.UTC)
RANKS = {Edm.BOOLEAN: 0, Edm.DATETIME: 2, Edm.GUID: 3, Edm.BINARY: 4, Edm.STRING: 5}  # numbers: 1
NUMBERS = (Edm.INT32, Edm.INT64, Edm.DOUBLE)

# Few values, so that equal ones meet.
typed_values: st.SearchStrategy[tuple[Any, Edm]] = st.one_of(
    st.tuples(st.sampled_from(["", "a", "A", "\U0001f600", "\ue000", str(UUID(int=1)), "1"]), st.just(Edm.STRING)),
    st.tuples(st.booleans(), st.just(Edm.BOOLEAN)),
    st.tuples(st.sampled_from([-1, 0, 1, 2]), st.sampled_from([Edm.INT32, Edm.INT64])),
    st.tuples(st.sampled_from([-math.inf, -0.0, 0.0, 1.0, 1.5, math.inf, math.nan]), st.just(Edm.DOUBLE)),
    st.tuples(st.sampled_from([NOON, NOON + dt.timedelta(microseconds=1)]), st.just(Edm.DATETIME)),
    st.tuples(st.sampled_from([UUID(int=1), UUID(int=2)]), st.just(Edm.GUID)),
    st.tuples(st.sampled_from([b"", b"a", b"b"]), st.just(Edm.BINARY)),
)
constants = typed_values.map(lambda pair: Constant(pair[1], _held(*pair)))
compares = st.builds(Compare, st.sampled_from(["a", "b", "RowKey"]), st.sampled_from(list(Op)), constants)
filters: st.SearchStrategy[Filter] = st.recursive(
    compares,
    lambda inner: st.one_of(
        st.builds(Not, inner),
        st.lists(inner, min_size=1, max_size=3).map(lambda terms: And(tuple(terms))),
        st.lists(inner, min_size=1, max_size=3).map(lambda terms: Or(tuple(terms))),
    ),
    max_leaves=6,
)
contents = st.fixed_dictionaries({}, optional={"a": typed_values, "b": typed_values})


def _held(value: Value, kind: Edm) -> Value:
    return ticks_from_datetime(value) if kind is Edm.DATETIME and isinstance(value, dt.datetime) else value


def row_of(content: dict[str, tuple[Any, Edm]], key: str = "a") -> dict[str, Any]:
    row: dict[str, Any] = {"PartitionKey": "p", "RowKey": key}
    for name, (value, kind) in content.items():
        row[name], annotation = encode(value, kind)
        if annotation is not None:
            row[name + "@odata.type"] = annotation
    return row


def evaluate(node: Filter, content: dict[str, tuple[Any, Edm]]) -> bool | None:
    """The filter's answer: comparison of typed values, then Kleene's three-valued logic."""
    if isinstance(node, Not):
        inner = evaluate(node.term, content)
        return None if inner is None else not inner
    if isinstance(node, (And, Or)):
        answers = [evaluate(term, content) for term in node.terms]
        # False < unknown < True: a conjunction is the least, a disjunction the greatest.
        order = [False, None, True]
        return (min if isinstance(node, And) else max)(answers, key=order.index)
    if node.property not in content:
        return None
    given_value, kind = content[node.property]
    value: Any = _held(given_value, kind)
    wanted, wanted_kind = node.constant.value, node.constant.type
    if kind is wanted_kind or (kind in NUMBERS and wanted_kind in NUMBERS[: NUMBERS.index(kind)]):
        if kind is Edm.STRING:
            value, wanted = value.encode("utf-16-be"), wanted.encode("utf-16-be")
        if kind is Edm.GUID:
            value, wanted = str(value), str(wanted)
        return bool(getattr(value, f"__{node.op}__")(wanted))
    rank, wanted_rank = RANKS.get(kind, 1), RANKS.get(wanted_kind, 1)
    if node.op is Op.NE:
        return True
    if node.op is Op.EQ or rank == wanted_rank:
        return False
    return rank > wanted_rank if node.op in (Op.GT, Op.GE) else rank < wanted_rank


def test_values_can_be_left_out() -> None:
    """For people to see, `{}` stands for each constant that is not compared with a key."""
    key, age = Compare("PartitionKey", Op.EQ, constant("it's")), Compare("Age", Op.GT, constant(4711))
    tree = And((key, Not(age), Or((Compare("RowKey", Op.LT, constant("x")), age))))

    assert to_odata(tree, show_values=False) == (
        "PartitionKey eq 'it''s' and not (Age gt {}) and (RowKey lt 'x' or Age gt {})"
    )


@given(filters, contents, st.sampled_from(["", "a", "\U0001f600", "\ue000"]))
def test_filters_mean_what_they_say(node: Filter, content: dict[str, tuple[Any, Edm]], key: str) -> None:
    """All compiled forms agree with plain evaluation: true, false, or unknown, which is no match."""
    row = row_of(content, key)
    expected = evaluate(node, {**content, "RowKey": (key, Edm.STRING)})

    assert compile_filter(node)(row) is expected
    assert matcher(node)(row) is (expected is True)
    # A long filter is compiled otherwise; this one is long by a condition that every row satisfies.
    always = Compare("RowKey", Op.NE, constant("x" * 3_000))
    assert matcher(And((node, always)))(row) is (expected is True)
    assert matcher(Not(Or((node, Not(always)))))(row) is (expected is False)


def compare(name: str, op: Op, value: Value, kind: Edm | None = None) -> Compare:
    return Compare(name, op, constant(value, kind))


A = compare("a", Op.EQ, 1)
B = compare("b", Op.GT, "x")


def test_timestamp_compares_by_ticks() -> None:
    """Timestamp is a DateTime without an annotation, compared to its last digit; text is never equal to it."""
    row = row_of({}) | {"Timestamp": "2024-02-29T12:00:00.0000007Z"}
    exactly = Constant(Edm.DATETIME, ticks_from_datetime(NOON) + 7)

    assert matcher(Compare("Timestamp", Op.EQ, exactly))(row)
    assert matcher(compare("Timestamp", Op.GT, NOON))(row)
    assert not matcher(compare("Timestamp", Op.EQ, "2024-02-29T12:00:00.0000007Z"))(row)
    assert matcher(compare("Timestamp", Op.NE, "2024-02-29T12:00:00.0000007Z"))(row)


def test_names_are_never_code() -> None:
    """A property name and a value are data of the generated function, whatever they spell."""
    node = And((compare("get('x') or True #", Op.EQ, "' or True or '"), compare("row", Op.EQ, "names")))

    assert not matcher(node)(row_of({}))
    assert matcher(node)({**row_of({}), "get('x') or True #": "' or True or '", "row": "names"})


def nested(levels: int) -> Filter:
    """A tree of that many levels, each with brackets of its own in every form."""
    tree: Filter = compare("RowKey", Op.EQ, "r")
    for level in range(levels):
        tree = (Not(tree), And((A, tree)), Or((tree, B)))[level % 3]
    return tree


def test_the_deepest_tree() -> None:
    """A tree of as many levels as are allowed is written and compiled, also with a thousand terms at the bottom."""
    row = row_of({"a": (1, Edm.INT32)}, "r")
    wide = Or(tuple(compare("RowKey", Op.EQ, str(number)) for number in range(1000)))
    tree = And((nested(MAX_DEPTH - 1), Or((wide, A))))

    check_depth(tree)
    assert to_odata(tree).count("not (") == MAX_DEPTH // 3
    assert matcher(tree)(row) is (compile_filter(tree)(row) is True)
    assert compile_filter(tree)(row) is evaluate(tree, {"a": (1, Edm.INT32), "RowKey": ("r", Edm.STRING)})


@pytest.mark.parametrize("levels", [MAX_DEPTH + 1, 10_000])
@pytest.mark.parametrize("use", [check_depth, to_odata, matcher, compile_filter])
def test_a_tree_that_is_too_deep(levels: int, use: Callable[[Filter], object]) -> None:
    """One level more is rejected with the limit, and so is any number of them."""
    with pytest.raises(ValueError, match=f"more than {MAX_DEPTH} levels"):
        use(And((A, nested(levels - 1))))


def test_long_text_is_compared_in_few_calls() -> None:
    """A comparison of a long text goes through none of its characters in Python, whichever they are."""
    row = {"a": "\U0001f600" * 10_000}
    test = matcher(Compare("a", Op.GT, constant("\U0001f600")))
    calls: list[str] = []
    sys.setprofile(lambda _frame, event, _argument: calls.append(event))
    try:
        found = test(row)
    finally:
        sys.setprofile(None)

    assert found
    assert len(calls) < 50
