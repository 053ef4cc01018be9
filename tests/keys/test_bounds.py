"""
Key ranges: what conditions on fields say of a key, against brute force.
"""

import datetime as dt
import functools
import itertools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import assume, event, example, given
from hypothesis import strategies as st

from tableorm import TemplateError
from tableorm.keys.bounds import Condition, KeyBounds
from tableorm.keys.parse import parse_template
from tableorm.keys.template import Template
from tableorm.protocol.edm import check_text, utf16_key
from tableorm.protocol.filters import Op
from tableorm.stores import Bounds
from tableorm.stores.intervals import nameable, successor
from tests.torture import Rounds

UTC = dt.UTC
TYPES: dict[str, Any] = {
    "t": str,
    "u": str,
    "n": int,
    "m": int,
    "d": dt.date,
    "at": dt.datetime,
    "b": bool,
    "s": dt.datetime,
    "w": str,
}
OPS: dict[Op, Callable[[Any, Any], bool]] = {
    Op.EQ: operator.eq,
    Op.NE: operator.ne,
    Op.GT: operator.gt,
    Op.GE: operator.ge,
    Op.LT: operator.lt,
    Op.LE: operator.le,
}

# Prefixes of each other, separators, what is escaped, and the characters around the surrogates.
TEXTS = ["", "a", "a-", "a_", "a0", "a5", "ab", "a/", "a^", "-", "_", "\ue000", "\uffff", "\U0001f600", "a\U0010ffff"]
MOMENTS = [
    dt.datetime(2024, 1, 1, tzinfo=UTC),
    dt.datetime(2024, 1, 1, 23, 59, 59, 999_999, tzinfo=UTC),
    dt.datetime(2024, 1, 2, 1, tzinfo=dt.timezone(dt.timedelta(hours=2))),
    dt.datetime(2024, 12, 31, tzinfo=UTC),
]
POOLS: dict[str, list[Any]] = {
    "t": TEXTS,
    "u": TEXTS,
    "n": [0, 1, 5, 9, 10, 99, 100, 999],
    "m": [0, 5, 99],
    "d": [dt.date(1, 1, 1), dt.date(2024, 1, 31), dt.date(2024, 2, 1), dt.date(9999, 12, 31)],
    "at": MOMENTS,
    "b": [False, True],
    "s": [moment.replace(microsecond=0) for moment in MOMENTS],
    "w": ["00", "0a", "Zz", "a0", "zz"],
}
# What no key can hold still compares with what keys hold.
BOUNDS: dict[str, list[Any]] = POOLS | {
    "n": [*POOLS["n"], -1, 1000, 10**12],
    "at": [*MOMENTS, dt.datetime(1500, 1, 1, tzinfo=UTC)],
    "s": [*MOMENTS, dt.datetime(1500, 1, 1, tzinfo=UTC), dt.datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)],
}
TEMPLATES = [
    "{t}",
    "x_{t}",
    "{t}_end",
    "{t}-",
    "{t}{n:03d}",
    "{t}{n:03d}-{u}",
    "{t}_{u}",
    "{t}-{u}",
    "{t}\uffff{u}",
    "{t}\U0001f600{u}",
    "{t}~{n:03d}",
    "{t}{d:%Y%m%d}",
    "{t}{d:X%Y}-{u}",
    "{t:lower}",
    "{t:lower}_{t}",
    "{t:lower}_{u}",
    "{t:spread(3)}_{t}",
    "{n:03d}",
    "a{n:03d}{m:02d}z",
    "{n:03d}{t}",
    "{n}",
    "{n}_{t}",
    "{n}{m:02d}",
    "{n}-{m:02d}",
    "{b}{n:03d}",
    "{b}e_{n:03d}",
    "{d}",
    "{d:%Y%m}_{n:03d}",
    "{d:%d%m%Y}",
    "{at:ticks}",
    "{n:03d_desc}",
    "{n:03d_desc}_{t}",
    "{t}_{n:03d_desc}",
    "{at:ticks_desc}",
    "{at:ticks_desc}_{n:03d}",
    "{s:epoch_s}",
    "{s:epoch_s_desc}_{n:03d}",
    "{s:epoch_ms_desc}",
    "{s:iso}_{t}",
    "{s:iso3}",
    "{n:03x}",
    "{n:03X_desc}_{t}",
    "{w:desc(2)}",
    "{at:%Y%m%d}",
    "{at:%Y%m%d}_{at:ticks}",
    "{b}_{t}",
    "department",
]


def parse(text: str) -> Template:
    return parse_template(text, "Order", "row_key", TYPES)


def holds(template: Template, condition: Condition, value: Any) -> bool:
    """Whether a value satisfies a condition: text that the key holds compares by its stored form, in UTF-16 order."""
    wanted = condition.value
    if condition.op is None:
        return str(value).startswith(wanted)
    if isinstance(value, str) and condition.op not in (Op.EQ, Op.NE):
        if condition.field in template.full_fields and condition.field != "w":
            value, wanted = (template.value_text(condition.field, text) for text in (value, wanted))
        value, wanted = utf16_key(value), utf16_key(wanted)
    return OPS[condition.op](value, wanted)


def inside(bounds: Bounds | None, units: bytes) -> bool:
    """Whether a key, as its UTF-16 units, is in the interval."""
    if bounds is None:
        return False
    if bounds.lower is not None:
        lower = utf16_key(bounds.lower)
        if units < lower or (bounds.lower_open and units == lower):
            return False
    if bounds.upper is not None:
        upper = utf16_key(bounds.upper)
        return units < upper or (units == upper and not bounds.upper_open)
    return True


@functools.cache
def all_keys(text: str) -> list[tuple[dict[str, Any], bytes]]:
    """Every combination of the values, and the UTF-16 units of its key."""
    template = parse(text)
    combinations = itertools.product(*(POOLS[name] for name in template.fields))
    every = [dict(zip(template.fields, combination, strict=True)) for combination in combinations]
    return [(values, utf16_key(template.format(values))) for values in every]


def check(template: Template, conditions: Sequence[Condition]) -> None:
    found = template.bounds(conditions)
    told = [condition for condition in conditions if condition.field in template.fields]
    exact = [conditions[index] for index in found.exact]
    for values, units in all_keys(template.text):
        if inside(found.bounds, units):
            wrong = [c for c in exact if not holds(template, c, values[c.field])]
            assert not wrong, f"not exact: {template.text!r} {values} {wrong} {found}"
        else:
            lost = all(holds(template, c, values[c.field]) for c in told)
            assert not lost, f"lost: {template.text!r} {values} {conditions} {found}"


def test_what_follows_an_open_end_is_not_exact() -> None:
    """Where a longer text could stand in place of the one given, what follows it may be part of that text."""
    template = parse("{t}{n:03d}")

    for conditions in (
        [Condition("t", Op.EQ, ""), Condition("n", Op.GT, 0)],
        [Condition("t", Op.EQ, "a"), Condition("n", Op.LE, 99)],
    ):
        check(template, conditions)
        assert template.bounds(conditions).exact == frozenset()


def condition_on(name: str) -> st.SearchStrategy[Condition]:
    ops: list[Op | None] = [*Op, *([None, None] if name in ("t", "u") else [])]
    return st.builds(Condition, st.just(name), st.sampled_from(ops), st.sampled_from(BOUNDS[name]))


@given(st.data(), st.sampled_from(TEMPLATES))
def test_no_key_is_lost_and_exact_is_exact(data: st.DataObject, text: str) -> None:
    """
    Every key that satisfies the conditions is inside the bounds; each condition called exact holds for all keys inside.
    """
    template = parse(text)
    assume(template.fields)
    # Some fields are fixed, so that bounds on those behind them are reached.
    fixed = data.draw(st.sets(st.sampled_from(template.fields)))
    conditions = [Condition(name, Op.EQ, data.draw(st.sampled_from(BOUNDS[name]))) for name in sorted(fixed)]
    names = st.sampled_from(template.fields)
    conditions += data.draw(st.lists(names.flatmap(condition_on), max_size=3))
    conditions = data.draw(st.permutations(conditions))

    event("empty" if template.bounds(conditions) == KeyBounds(None, frozenset()) else "some")
    check(template, conditions)


@pytest.mark.one_of(3)
@pytest.mark.parametrize("text", TEMPLATES)
def test_each_single_condition(text: str, rounds: Rounds) -> None:
    """The same for every operator and every value of the first field alone, or every third of these."""
    template, step = parse(text), rounds(7, 1)
    for name in template.fields[:1]:
        pairs = itertools.product([*Op, None] if name in ("t", "u") else [*Op], BOUNDS[name])
        for op, value in itertools.islice(pairs, TEMPLATES.index(text) % step, None, step):
            check(template, [Condition(name, op, value)])


@pytest.mark.parametrize("text", [text for text in TEMPLATES if parse(text).fields])
def test_equality_on_all_fields_is_a_point(text: str) -> None:
    """Equality on every field gives one key, and is exact for every field that the key holds in full."""
    template = parse(text)
    values = {name: POOLS[name][1] for name in template.fields}
    conditions = [Condition(name, Op.EQ, value) for name, value in values.items()]

    found = template.bounds(conditions)

    assert found.bounds == Bounds.only(template.format(values))
    exact = {index for index, condition in enumerate(conditions) if condition.field in template.full_fields}
    assert found.exact == exact


@pytest.mark.parametrize(
    ("text", "conditions"),
    [
        ("{t}", [("t", Op.EQ, "a"), ("t", Op.EQ, "b")]),
        ("{t}", [("t", None, "a"), ("t", None, "b")]),
        ("{n:03d}", [("n", Op.EQ, 1000)]),
        ("{n:03d}", [("n", Op.LT, -5)]),
        ("{at:ticks}", [("at", Op.LT, dt.datetime(1500, 1, 1, tzinfo=UTC))]),
    ],
)
def test_nothing_can_satisfy(text: str, conditions: list[tuple[str, Op | None, Any]]) -> None:
    """Conditions that contradict each other, or that no key can satisfy, give no interval."""
    assert parse(text).bounds([Condition(*condition) for condition in conditions]) == KeyBounds(None, frozenset())


@pytest.mark.parametrize(
    ("text", "condition", "words"),
    [
        ("{n:03d}", ("n", Op.EQ, "5"), ["'5'", "an int", "'n'"]),
        ("{t}", ("t", Op.LT, 5), ["5", "a str", "'t'"]),
    ],
)
def test_conditions_of_another_type(text: str, condition: tuple[str, Op, Any], words: list[str]) -> None:
    """A value that is not of the field's type is rejected, showing model, key, value and field."""
    with pytest.raises(TemplateError) as caught:
        parse(text).bounds([Condition(*condition)])
    for word in ["Order.row_key", *words]:
        assert word in str(caught.value)


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=4)
odd_texts = st.text("a\ud7ff\ue000\uffff\U00010000\U0010ffff", max_size=4)


@given(st.one_of(texts, odd_texts), st.one_of(texts, odd_texts), st.one_of(texts, odd_texts))
@example("\ud7ff", "\ud7ff\uffff", "\U00010000")
@example("\U0010ffff", "\U0010ffff\uffff", "\ue000")
@example("a\uffff", "a\uffff\uffff", "b")
def test_successor(prefix: str, rest: str, other: str) -> None:
    """All that starts with a prefix sorts before its successor; all else that sorts above the prefix, does not."""
    after = successor(prefix)

    if after is None:
        assert set(prefix) <= {"\uffff"}
        assert other.startswith(prefix) or utf16_key(other) < utf16_key(prefix)
        return
    assert utf16_key(prefix + rest) < utf16_key(after)
    if utf16_key(other) > utf16_key(prefix) and not other.startswith(prefix):
        assert utf16_key(other) >= utf16_key(after)


UNITS = st.text(
    st.sampled_from("a\ud7ff\ud800\ud801\udbff\udc00\udfff\ue000\uffff\U00010000\U00010400\U0010ffff"), max_size=4
)


@given(text=UNITS, other=UNITS)
def test_what_can_be_named_behind_half_of_a_surrogate_pair(text: str, other: str) -> None:
    """Of a text that no request can name it is the first one behind; nothing that can be named is between."""
    text, other = (each.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass") for each in (text, other))
    named = nameable(text)
    named.encode("utf-8")
    assert (named == text) is (check_text(text) is None)
    if check_text(other) is None:
        assert (utf16_key(other) >= utf16_key(text)) is (utf16_key(other) >= utf16_key(named))
