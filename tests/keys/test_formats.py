"""
Key formats: the text of each value, its order, and what is rejected.
"""

import datetime as dt
import enum
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tableorm import Int32
from tableorm.keys.escapes import ESCAPE, escape, unescape
from tableorm.keys.format import Format, Order
from tableorm.keys.formats import make_format
from tableorm.protocol.edm import INT64_MAX, INT64_MIN, MAX_TICKS, utf16_key
from tableorm.protocol.limits import FORBIDDEN_IN_KEYS

UTC = dt.UTC
NOON = dt.datetime(2024, 2, 29, 12, 34, 56, 789_123, tzinfo=UTC)


class Color(enum.Enum):
    RED = "red"
    BLUE = "dark/blue"


class Level(enum.Enum):
    LOW = 1
    HIGH = 12


def form_of(annotation: Any, spec: str = "") -> Format:
    form = make_format(annotation, spec)
    assert isinstance(form, Format), form
    return form


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


def rounded(moments: st.SearchStrategy[dt.datetime], digits: int) -> st.SearchStrategy[dt.datetime]:
    unit = 10 ** (6 - digits)
    return moments.map(lambda moment: moment.replace(microsecond=moment.microsecond // unit * unit))


moments = st.datetimes(
    dt.datetime(1601, 1, 2),  # noqa: DTZ001
    dt.datetime(9999, 12, 30),  # noqa: DTZ001
    timezones=st.integers(-14, 14).map(lambda hours: dt.timezone(dt.timedelta(hours=hours))),
)
since_1970 = st.datetimes(dt.datetime(1970, 1, 1), dt.datetime(2286, 11, 20), timezones=st.just(UTC))  # noqa: DTZ001
ALPHANUMERIC = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
# Annotation, format, values: those whose text holds the value in full.
FULL: list[tuple[Any, str, st.SearchStrategy[Any]]] = [
    (str, "", texts),
    (bool, "", st.booleans()),
    (int, "", st.integers(INT64_MIN, INT64_MAX)),
    (Int32, "", st.integers(-(2**31), 2**31 - 1)),
    (int, "04d", st.integers(0, 9999)),
    (int, "019d", st.integers(0, INT64_MAX)),
    (int, "030d", st.integers(0, INT64_MAX)),
    (int, "04d_desc", st.integers(0, 9999)),
    (int, "019d_desc", st.integers(0, INT64_MAX)),
    (Int32, "012d_desc", st.integers(0, 2**31 - 1)),
    (Level, "03d_desc", st.sampled_from(Level)),
    (int, "08x", st.integers(0, 2**32 - 1)),
    (int, "04X_desc", st.integers(0, 2**16 - 1)),
    (int, "020x", st.integers(0, INT64_MAX)),
    (int, "ticks", st.integers(0, MAX_TICKS)),
    (int, "ticks_desc", st.integers(0, MAX_TICKS)),
    (bool, "True", st.booleans()),
    (str, "desc(5)", st.text(ALPHANUMERIC, min_size=5, max_size=5)),
    *(
        (UUID, spec, st.uuids())
        for spec in ("", "N", "B", "upper", "N_upper", "D_upper", "desc", "N_desc", "B_upper_desc")
    ),
    (dt.date, "", st.dates()),
    (dt.date, "%Y%m%d", st.dates()),
    (dt.date, "%d.%m.%Y", st.dates()),
    (dt.date, "%Y1%m2%d", st.dates()),
    (dt.datetime, "ticks", moments),
    (dt.datetime, "ticks_desc", moments),
    *(
        (dt.datetime, f"epoch_{unit}{end}", rounded(since_1970, digits))
        for unit, digits in (("s", 0), ("ms", 3), ("us", 6))
        for end in ("", "_desc")
    ),
    *((dt.datetime, f"iso{digits or ''}", rounded(moments, min(digits, 6))) for digits in (0, 3, 6, 7)),
    (Color, "", st.sampled_from(Color)),
    (Level, "", st.sampled_from(Level)),
    (Level, "03d", st.sampled_from(Level)),
]
# Those whose text holds a part of the value.
PARTIAL: list[tuple[Any, str, st.SearchStrategy[Any]]] = [
    (str, "lower", texts),
    (str, "spread(16)", texts),
    (int, "spread(10)", st.integers(INT64_MIN, INT64_MAX)),
    (dt.date, "%Y-%m", st.dates()),
    (dt.date, "%m", st.dates()),
    (dt.datetime, "%Y%m%d", moments),
    (dt.datetime, "%Y-%m-%d %H:%M:%S.%f", moments),
    (dt.datetime, "%H", moments),
    (Color, "lower", st.sampled_from(Color)),
]


@pytest.mark.one_of(3)
@pytest.mark.parametrize(("annotation", "spec", "values"), FULL)
def test_full_formats_read_back(annotation: Any, spec: str, values: st.SearchStrategy[Any]) -> None:
    """A format that holds a value in full gives it back, and no two values the same text."""
    form = form_of(annotation, spec)
    assert form.full

    @given(values, values)
    def check(first: Any, second: Any) -> None:
        text = form.to_text(first)

        assert form.from_text(text) == first
        assert (text == form.to_text(second)) is (first == second)

    check()


@pytest.mark.one_of(3)
@pytest.mark.parametrize(("annotation", "spec", "values"), FULL + PARTIAL)
def test_text_is_as_the_format_says(annotation: Any, spec: str, values: st.SearchStrategy[Any]) -> None:
    """Width, characters and order of the texts are those that the format states; one that loses something says so."""
    form = form_of(annotation, spec)
    assert form.full is ((annotation, spec, values) in FULL)

    @given(values, values)
    def check(first: Any, second: Any) -> None:
        text, other = form.to_text(first), form.to_text(second)

        if form.atoms is not None:
            assert len(text) == len(form.atoms)
            assert all(char in atom for char, atom in zip(text, form.atoms, strict=True))
        if form.alphabet is not None:
            assert set(text) <= form.alphabet
        if form.order is not Order.NONE and not isinstance(first, (str, enum.Enum)) and first < second:
            low, high = (text, other) if form.order is Order.SAME else (other, text)
            assert utf16_key(low) < utf16_key(high) or (low == high and not form.full)

    check()


@pytest.mark.parametrize(
    ("annotation", "spec", "order"),
    [
        (str, "", Order.SAME),
        (int, "", Order.NONE),
        (int, "06d", Order.SAME),
        (int, "06d_desc", Order.REVERSED),
        (dt.date, "%Y", Order.SAME),
        (dt.date, "%d%m%Y", Order.NONE),
        (dt.datetime, "ticks", Order.SAME),
        (dt.datetime, "ticks_desc", Order.REVERSED),
    ],
)
def test_stated_order(annotation: Any, spec: str, order: Order) -> None:
    """An unpadded integer and a date that does not begin with the year keep no order."""
    assert form_of(annotation, spec).order is order


@pytest.mark.parametrize(
    ("annotation", "spec", "value", "text"),
    [
        (int, "06d", 10, "000010"),
        (int, "06d_desc", 10, "999989"),
        (int, "010d_desc", 10, "9999999989"),
        (Level, "04d_desc", Level.HIGH, "9987"),
        (int, "", -5, "-5"),
        (bool, "", False, "false"),
        (str, "lower", "JunC@Contoso.com", "junc@contoso.com"),
        (UUID, "", UUID(int=0xABC), "00000000-0000-0000-0000-000000000abc"),
        (dt.date, "", dt.date(24, 2, 9), "0024-02-09"),
        (dt.date, "%Y%m%d", dt.date(2024, 2, 29), "20240229"),
        (dt.datetime, "ticks", NOON, "0638448068967891230"),
        (dt.datetime, "ticks_desc", NOON, f"{MAX_TICKS - 638448068967891230:019d}"),
        (dt.datetime, "%Y%m%dT%H%M%S.%f", NOON, "20240229T123456.789123"),
        (dt.datetime, "%Y-%m-%d", dt.datetime(2024, 3, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=2))), "2024-02-29"),
        # As other programs write them: 2024-02-29T12:34:56.789Z is 1709210096789 in JavaScript.
        (dt.datetime, "epoch_s", NOON.replace(microsecond=0), "1709210096"),
        (dt.datetime, "epoch_ms", NOON.replace(microsecond=789_000), "1709210096789"),
        (dt.datetime, "epoch_us", NOON, "1709210096789123"),
        (dt.datetime, "epoch_ms_desc", NOON.replace(microsecond=789_000), "8290789903210"),
        (dt.datetime, "iso", NOON.replace(microsecond=0), "2024-02-29T12:34:56Z"),
        (dt.datetime, "iso3", NOON.replace(microsecond=789_000), "2024-02-29T12:34:56.789Z"),
        (dt.datetime, "iso7", NOON, "2024-02-29T12:34:56.7891230Z"),
        (int, "08x", 3735928559, "deadbeef"),
        (int, "08X", 255, "000000FF"),
        (bool, "True", True, "True"),
        (str, "desc(3)", "0aZ", "zPQ"),
        (UUID, "B_upper", UUID(int=0xABC), "{00000000-0000-0000-0000-000000000ABC}"),
        (UUID, "desc", UUID(int=0xABC), "ffffffff-ffff-ffff-ffff-fffffffff543"),
        (Color, "", Color.BLUE, "dark/blue"),
        (str, "spread(16)", "", "04"),
        (str, "spread(16)", "jun", "13"),
        (str, "spread(16)", "Ünïcode\U0001f600", "09"),
        (int, "spread(100)", 7, "90"),
        (UUID, "spread(1)", UUID(int=1), "0"),
        (dt.datetime, "spread(1000)", dt.datetime(2024, 2, 29, 12, tzinfo=UTC), "127"),
        (dt.date, "spread(9999)", dt.date(2024, 2, 29), "2282"),
    ],
)
def test_known_texts(annotation: Any, spec: str, value: Any, text: str) -> None:
    """Text of each format; moments are written in UTC. Stored keys hold the bucket of a hash, which never changes."""
    assert form_of(annotation, spec).to_text(value) == text


@pytest.mark.parametrize(
    ("annotation", "spec", "value", "words"),
    [
        (int, "03d", 1000, ["1000", "3 digits", "0 to 999"]),
        (int, "03d", True, ["an int", "bool"]),
        (int, "", "5", ["an int", "'5'", "str"]),
        (str, "", 5, ["a str", "5", "int"]),
        (str, "", "a\ud800", ["lone surrogate U+D800 at position 1"]),
        (bool, "", 1, ["a bool", "int"]),
        (dt.date, "", NOON, ["a date", "datetime"]),
        (dt.datetime, "ticks", NOON.replace(tzinfo=None), ["aware", "naive"]),
        (dt.datetime, "ticks", dt.datetime(1600, 12, 31, tzinfo=UTC), ["1601"]),
        (dt.datetime, "epoch_ms", NOON, ["whole milliseconds"]),
        (dt.datetime, "epoch_s", NOON.replace(year=1968, microsecond=0), ["1970-01-01", "2286-11-20"]),
        (str, "desc(3)", "ab", ["'ab'", "3 of the characters"]),
        (UUID, "N", "0" * 32, ["a UUID", "UUID(text)"]),
        (Color, "", "red", ["Color", "'red'"]),
    ],
)
def test_values_that_do_not_fit(annotation: Any, spec: str, value: Any, words: list[str]) -> None:
    """A value too wide, negative, of another type, or outside DateTime is rejected; the error says what fits."""
    with pytest.raises(ValueError) as caught:  # noqa: PT011  # the words are asserted below
        form_of(annotation, spec).to_text(value)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("annotation", "spec", "words"),
    [
        (str, "upper", ["'upper'", "'lower'"]),
        (int, "x", ["'x'", "06d", "08x", "06d_desc"]),
        (dt.date, "%Y%Y", ["twice", "'%Y%Y'"]),
        (dt.date, "%Y/%m", ["'%Y/%m'", "forbid"]),
        (dt.date, "%Y%", ["ends in '%'"]),
        (dt.datetime, "", ["ticks", "epoch_ms_desc", "iso", "%Y%m%d"]),
        (dt.datetime, "epoch", ["epoch_s"]),
        (UUID, "X", ["'X'", "N without dashes"]),
        (bool, "true", ["'true'", "'True'"]),
        (str, "desc", ["'desc'", "desc(26)"]),
        (str, "spread(10000)", ["9999"]),
        (float, "", ["float", "str, int"]),
        (enum.Enum("Mixed", {"A": 1, "B": "b"}), "", ["Mixed", "all be int"]),
    ],
)
def test_unknown_formats(annotation: Any, spec: str, words: list[str]) -> None:
    """A format that a type has not is rejected, naming it and what there is."""
    problem = make_format(annotation, spec)

    assert isinstance(problem, str)
    for word in words:
        assert word in problem


@given(texts, texts, st.sampled_from(["", "_", "-", ".", "é", "\U0001f600", "x", "]", "~"]))
def test_escapes(text: str, rest: str, also: str) -> None:
    """An escaped text holds nothing forbidden and no separator, comes back, and keeps its prefixes."""
    stored = escape(text, also)

    assert unescape(stored, also) == text
    assert not FORBIDDEN_IN_KEYS.search(stored)
    assert not also or also not in stored
    assert escape(text + rest, also).startswith(stored)
    assert (stored == escape(rest, also)) is (text == rest)


@pytest.mark.parametrize(
    ("text", "also", "stored"),
    [
        ("Sales & Marketing", "", "Sales & Marketing"),
        ("a/b", "", "a^2Fb"),
        ("100%", "", "100%"),
        ("a^b", "", "a^5Eb"),
        ("a_b", "_", "a^5Fb"),
        ("a_b", "-", "a_b"),
        ("\x00\x9f", "", "^00^9F"),
        ("\u2013", "\u2013", "^u2013"),
        ("\U0001f600", "\U0001f600", "^U01F600"),
        ("é", "", "é"),
    ],
)
def test_known_escapes(text: str, also: str, stored: str) -> None:
    """What needs no escaping stands verbatim; the escape character is not the percent sign."""
    assert escape(text, also) == stored
    assert ESCAPE != "%"


@pytest.mark.parametrize(
    "stored",
    ["^", "a^", "^2", "^zz", "^u12", "^uD800", "^U110000", "^^", "a^2fb", "^41", "^u0041", "^U00002F", "^u00e9", "^2D"],
)
def test_a_caret_of_another_program(stored: str) -> None:
    """A caret that starts no escape, or an escape that this program would not write, is no text of any value."""
    with pytest.raises(ValueError, match="conditions cannot find the row"):
        unescape(stored, "")


@given(st.text("^2fF5EuU0041Dé/-_", max_size=8), st.sampled_from(["", "_", "-"]))
def test_what_is_read_is_what_is_written(stored: str, also: str) -> None:
    """A stored text is read as the value that is written so, or refused."""
    try:
        value = unescape(stored, also)
    except ValueError:
        return
    if not FORBIDDEN_IN_KEYS.search(stored) and (not also or also not in stored):
        assert escape(value, also) == stored
