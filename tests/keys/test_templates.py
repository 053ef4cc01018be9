"""
Key templates: what parses, what is rejected, and that every key reads back into what made it.
"""

import datetime as dt
import enum
import re
from collections.abc import Mapping
from typing import Any
from uuid import UUID

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from tableorm import Int32, TemplateError
from tableorm.keys.overlap import may_meet, may_share
from tableorm.keys.parse import parse_template
from tableorm.keys.template import Template
from tableorm.protocol.limits import FORBIDDEN_IN_KEYS

UTC = dt.UTC


class Color(enum.Enum):
    RED = "red"
    BLUE = "dark_blue"


class Lenient(enum.Enum):
    SMALL = "small"

    @classmethod
    def _missing_(cls, value: object) -> "Lenient | None":
        return cls.SMALL if str(value).lower() == "small" else None


TYPES: dict[str, Any] = {
    "t": str,
    "u": str,
    "v": str,
    "n": int,
    "m": int,
    "i": Int32,
    "b": bool,
    "d": dt.date,
    "at": dt.datetime,
    "id": UUID,
    "c": Color,
    "l": Lenient,
}
FORMATS: dict[str, list[str]] = {
    "t": ["", "", "lower", "spread(16)"],
    "u": [""],
    "v": [""],
    "n": ["", "03d", "06d", "06d_desc"],
    "m": ["", "02d"],
    "i": [""],
    "b": [""],
    "d": ["", "%Y%m%d", "%d.%m.%Y", "%Y"],
    "at": ["ticks", "ticks_desc", "%Y%m%d"],
    "id": [""],
    "c": [""],
    "l": [""],
}
LITERALS = ["_", "-", ".", "x", "x_", "_x", "é", "~", "]", "\U0001f600", "\ue000", "a-b", "1", "^"]

fields = st.sampled_from(sorted(TYPES)).flatmap(
    lambda name: st.sampled_from(FORMATS[name]).map(lambda spec: f"{{{name}:{spec}}}" if spec else f"{{{name}}}")
)
template_texts = st.lists(st.one_of(fields, st.sampled_from(LITERALS)), min_size=1, max_size=6).map("".join)
# Separators and escapes, the ends of the ranges around the surrogates, and anything at all.
texts = st.one_of(
    st.text("ab_-x.^1~é]/\x00\ud7ff\ue000\uffff\U0001f600\U0010ffff", max_size=6),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
)
values = st.fixed_dictionaries(
    {
        "t": texts,
        "u": texts,
        "v": texts,
        "n": st.integers(0, 999),
        "m": st.integers(0, 99),
        "i": st.integers(-(2**31), 2**31 - 1),
        "b": st.booleans(),
        "d": st.dates(),
        "at": st.datetimes(dt.datetime(1601, 1, 2), dt.datetime(9999, 12, 30), timezones=st.just(UTC)),  # noqa: DTZ001
        "id": st.uuids(),
        "c": st.sampled_from(Color),
        "l": st.sampled_from(Lenient),
    }
)


def parse(text: str, kind: str | None = None) -> Template:
    return parse_template(text, "Order", "row_key", TYPES, kind)


def parse_or_skip(text: str) -> Template:
    try:
        return parse(text)
    except TemplateError:
        assume(False)
        raise


def held(template: Template, given_values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: given_values[name] for name in template.full_fields}


@given(template_texts, values)
@example("{t}{n:03d}-{u}", {"t": "a-", "n": 5, "u": "-"})
@example("{i}-{m}", {"i": -5, "m": 3})
@example("{i}{d}-{t}", {"i": -12, "d": dt.date(2024, 1, 2), "t": "x"})
@example("{t:lower}\u0307{u}", {"t": "\u0130", "u": "\u0307"})
def test_keys_read_back(text: str, given_values: dict[str, Any]) -> None:
    """Whatever the values, a key gives back the fields that it holds in full, and holds nothing forbidden."""
    template = parse_or_skip(text)

    key = template.format(given_values)

    assert template.parse(key) == held(template, given_values)
    assert template.leads(key)
    assert not FORBIDDEN_IN_KEYS.search(key)
    assert key.startswith(template.head)
    for name in template.full_fields:
        assert template.stored_text(key, name) == template.value_text(name, given_values[name])


@given(template_texts, values, values, st.sets(st.sampled_from(sorted(TYPES))))
def test_no_two_values_share_a_key(
    text: str, first: dict[str, Any], second: dict[str, Any], same: frozenset[str]
) -> None:
    """Two entities with different key fields have different keys."""
    template = parse_or_skip(text)
    second = second | {name: first[name] for name in same}

    if held(template, first) != held(template, second):
        assert template.format(first) != template.format(second)


@given(template_texts, template_texts, values)
@example("a{n:03d}", "ab{t}", {"n": 1, "t": "b"})
@example("x_{t}", "x{n:03d}", {"n": 1, "t": "b"})
@example("{d}", "{at:%Y%m%d}", {"d": dt.date(2024, 1, 2), "at": dt.datetime(2024, 1, 2, tzinfo=UTC)})
def test_what_cannot_meet_never_does(text: str, other_text: str, given_values: dict[str, Any]) -> None:
    """Where two templates cannot meet, no key of one is of the other, nor even begins as it does."""
    template, other = parse_or_skip(text), parse_or_skip(other_text)
    if may_meet(template, other):
        return

    key = template.format(given_values)

    assert not other.leads(key)
    with pytest.raises(ValueError, match="does not match the template"):
        other.parse(key)


@given(template_texts, template_texts, values)
@example("{t}_a_{n:03d}", "{t}_b_{n:03d}", {"n": 1, "t": "_b"})
@example("{t}a", "{t}b", {"n": 1, "t": "b"})
def test_what_cannot_share_never_does(text: str, other_text: str, given_values: dict[str, Any]) -> None:
    """Where two templates cannot share a key, no key of one is of the other."""
    template, other = parse_or_skip(text), parse_or_skip(other_text)
    if may_share(template, other):
        return

    with pytest.raises(ValueError, match="does not match the template"):
        other.parse(template.format(given_values))


@pytest.mark.parametrize(
    ("text", "given_values", "key"),
    [
        ("{t}", {"t": "Sales"}, "Sales"),
        ("empid_{n:06d}", {"n": 10}, "empid_000010"),
        ("{t}_{u}", {"t": "a_b", "u": "c_d"}, "a^5Fb_c_d"),
        ("{t}{n:03d}_{u}", {"t": "a_1", "n": 7, "u": "x"}, "a^5F1007_x"),
        ("{t}_end", {"t": "a_end"}, "a_end_end"),
        ("department", {}, "department"),
        ("{{{t}}}", {"t": "x"}, "{x}"),
        ("{at:%H:%M}", {"at": dt.datetime(2024, 1, 1, 13, 5, tzinfo=UTC)}, "13:05"),
        ("{t:lower}|{t}", {"t": "Jun|C"}, "jun^7Cc|Jun|C"),
        ("{c}:{b}", {"c": Color.BLUE, "b": True}, "dark_blue:true"),
        ("", {}, ""),
    ],
)
def test_known_keys(text: str, given_values: dict[str, Any], key: str) -> None:
    """Keys look like the template; only a separator inside a value, or a forbidden character, is escaped."""
    template = parse(text)

    assert template.format(given_values) == key
    assert template.parse(key) == held(template, given_values)


def test_kind_in_a_template() -> None:
    """`{kind}` stands for the kind, as literal text."""
    assert parse("{kind}_{t}", "CUSTOMER").format({"t": "1"}) == "CUSTOMER_1"
    assert parse("{kind}_{t}", "CUSTOMER").head == "CUSTOMER_"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{t}{u}", ["nothing separates 't' and 'u'", "put a literal"]),
        ("{n}1{m}", ["'1'", "also be part"]),
        ("{t}A{u}", ["'A'", "escape", "another character"]),
        ("{x}", ["'x'", "not a field", "t, u, v"]),
        ("{t:upper}", ["'upper'", "field 't'"]),
        ("a{t", ["unmatched '{'", "position 1", "twice"]),
        ("a/{t}", ["'a/'", "forbid"]),
        ("{kind}_{t}", ["{kind}", "no kind"]),
        ("x" * 513, ["512"]),
        ("\ud800{t}", ["surrogate"]),
    ],
)
def test_what_cannot_parse_is_refused(text: str, words: list[str]) -> None:
    """A template that could not be read back, or never makes a key, is rejected: model, key, template and fault."""
    with pytest.raises(TemplateError) as caught:
        parse(text)
    message = str(caught.value)
    for word in ["Order.row_key", repr(text), *words]:
        assert word in message
    assert caught.value.template == text


@pytest.mark.parametrize(
    ("text", "given_values", "words"),
    [
        ("{t}_{n:03d}", {"n": 1}, ["'t'", "None"]),
        ("{t}_{n:03d}", {"t": "x", "n": 1000}, ["1000", "3 digits", "'n'"]),
        ("{t}", {"t": 5}, ["a str", "5", "'t'"]),
        ("{t}", {"t": "\ud800"}, ["surrogate", "'t'"]),
        ("{t}", {"t": "x" * 513}, ["513", "512", "shorten t"]),
        ("a{t}_{u}", {"t": "x" * 256, "u": "y" * 256}, ["514", "shorten t, u"]),
    ],
)
def test_keys_that_cannot_be_made(text: str, given_values: dict[str, Any], words: list[str]) -> None:
    """A missing value, one that does not fit, and a key that is too long are rejected, showing template and fault."""
    with pytest.raises(TemplateError) as caught:
        parse(text).format(given_values)
    for word in ["Order.row_key", repr(text), *words]:
        assert word in str(caught.value)


@pytest.mark.parametrize("text", ["x" * 512, "\U0001f600" * 256, "/" * 170 + "xx"])
def test_the_longest_keys(text: str) -> None:
    """A key of exactly 512 UTF-16 units is made; an escape counts as written."""
    assert parse("{t}").parse(parse("{t}").format({"t": text})) == {"t": text}


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("empid_{n:06d}", "empid_00001\u0660"),
        ("empid_{n:06d}", "empid_000010\n"),
        ("{d}", "2024-02-30"),
        ("{at:ticks}", "9999999999999999999"),
        ("{b}", "True"),
        ("{c}", "green"),
        ("{t}_{u}", "ab"),
    ],
)
def test_keys_of_another_template(text: str, key: str) -> None:
    """A key that does not match the template is rejected with ValueError, showing the key."""
    with pytest.raises(ValueError, match=re.escape(repr(key))):
        parse(text).parse(key)


@pytest.mark.parametrize(
    ("text", "key", "written"),
    [
        ("{n}", "007", "'7'"),
        ("{n}", "9223372036854775808", "holds -9223372036854775808 to 9223372036854775807"),
        ("{n:019d_desc}", "0000000000000000000", "holds 0 to 9223372036854775807"),
        ("{t}", "^41nn", "'Ann'"),
        ("{t}-{u}", "a^2-b", "'a^5E2'"),
        ("{id}", "ABCDEF00-0000-0000-0000-000000000001", "'abcdef00-0000-0000-0000-000000000001'"),
        ("{l}", "SMALL", "'small'"),
        ("{at:ticks}", "0638448068967891239", "a fraction of a microsecond"),
        ("{at:ticks}", "0000000000000000000", "1601-01-01"),
    ],
)
def test_a_key_that_its_fields_do_not_make_is_refused(text: str, key: str, written: str) -> None:
    """What was read from it would lead to no row. The error says what would, or what to do."""
    assert parse(text).match(key)

    with pytest.raises(ValueError, match=re.escape(repr(key))) as refused:
        parse(text).parse(key)
    assert written in str(refused.value)


@st.composite
def keys_of_others(draw: st.DrawFn, key: str) -> str:
    """Draw a key of another program: like one of ours, with other digits, letters of another case, and escapes."""
    at = draw(st.integers(0, len(key)))
    other = draw(st.sampled_from(["0", "9", "-", "^", "^2f", "^2F", "^41", "a", "F", "+", " ", "1"]))
    cut = draw(st.integers(0, 3))
    return draw(st.sampled_from([key[:at] + other + key[at + cut :], key.upper(), key.lower(), "0" + key]))


@given(template_texts, values, st.data())
def test_what_a_key_gives_makes_the_key(text: str, given_values: dict[str, Any], data: st.DataObject) -> None:
    """Whatever stands in a store, the fields that are read from a key make that very key, or the key is rejected."""
    template = parse_or_skip(text)
    assume(all(part.format.full for part in template.field_parts))
    key = data.draw(keys_of_others(template.format(given_values)))

    try:
        found = template.parse(key)
    except ValueError:
        return
    assert template.format(found) == key
