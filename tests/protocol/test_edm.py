"""
EDM types: values to JSON and back, ticks and text of moments, and the order of text.
"""

import datetime as dt
import enum
import math
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tableorm.protocol.edm import (
    INT32_MAX,
    INT32_MIN,
    INT64_MAX,
    INT64_MIN,
    MAX_TICKS,
    MIN_TICKS,
    TICKS_PER_SECOND,
    Edm,
    OutOfRangeError,
    check_text,
    datetime_from_text,
    decode,
    encode,
    etag_from_ticks,
    marks_from_ticks,
    text_from_datetime,
    text_from_ticks,
    ticks_from_datetime,
    ticks_from_text,
    timestamp_of_etag,
    utf16_key,
    utf16_length,
    utf16_units,
)

FIRST = dt.datetime(1601, 1, 1, tzinfo=dt.UTC)
LAST = dt.datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=dt.UTC)

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
zones = st.integers(-23 * 60, 23 * 60).map(lambda minutes: dt.timezone(dt.timedelta(minutes=minutes)))
moments = st.datetimes(dt.datetime(1601, 1, 2), dt.datetime(9999, 12, 30), timezones=zones)  # noqa: DTZ001
values: st.SearchStrategy[tuple[Any, Edm]] = st.one_of(
    st.tuples(texts, st.just(Edm.STRING)),
    st.tuples(st.booleans(), st.just(Edm.BOOLEAN)),
    st.tuples(st.integers(INT32_MIN, INT32_MAX), st.just(Edm.INT32)),
    st.tuples(st.integers(INT64_MIN, INT64_MAX), st.just(Edm.INT64)),
    st.tuples(st.floats(allow_nan=False), st.just(Edm.DOUBLE)),
    st.tuples(moments, st.just(Edm.DATETIME)),
    st.tuples(st.uuids(), st.just(Edm.GUID)),
    st.tuples(st.binary(max_size=20), st.just(Edm.BINARY)),
)


@given(values)
def test_every_value_comes_back_as_it_was(pair: tuple[Any, Edm]) -> None:
    """Encoding and decoding a value of any type gives the same value, of the same Python type."""
    value, kind = pair

    json, annotation = encode(value, kind)
    back = decode(json, annotation)

    assert back == value
    assert type(back) is type(value)
    if isinstance(value, float):
        assert math.copysign(1, value) == math.copysign(1, float(str(back)))


@pytest.mark.parametrize(
    ("value", "kind", "json", "annotation"),
    [
        ("\U0001f600", Edm.STRING, "\U0001f600", None),
        (True, Edm.BOOLEAN, True, None),
        (INT32_MIN, Edm.INT32, -2147483648, None),
        (INT64_MAX, Edm.INT64, "9223372036854775807", "Edm.Int64"),
        (3.0, Edm.DOUBLE, 3.0, None),
        (3, Edm.DOUBLE, 3.0, None),
        (-0.0, Edm.DOUBLE, -0.0, None),
        (-math.inf, Edm.DOUBLE, "-Infinity", "Edm.Double"),
        (math.nan, Edm.DOUBLE, "NaN", "Edm.Double"),
        (LAST, Edm.DATETIME, "9999-12-31T23:59:59.9999990Z", "Edm.DateTime"),
        (UUID(int=1), Edm.GUID, "00000000-0000-0000-0000-000000000001", "Edm.Guid"),
        (b"\x00\xff", Edm.BINARY, "AP8=", "Edm.Binary"),
    ],
)
def test_wire_form(value: Any, kind: Edm, json: object, annotation: str | None) -> None:
    """Each type is spelt in JSON as the service spells it; an integral Double stays a float."""
    found = encode(value, kind)

    assert found == (json, annotation)
    assert type(found[0]) is type(json)
    assert str(found[0]) == str(json)  # tells -0.0 from 0.0


class _Color(str, enum.Enum):  # noqa: UP042  # whose str() is its name
    RED = "red"


def test_subclasses_are_stored_by_value() -> None:
    """A str enum's member is stored by its value, which is not what str() of it gives; likewise an int enum's."""
    level = enum.IntEnum("level", {"HIGH": 3})

    assert encode(_Color.RED, Edm.STRING) == ("red", None)
    assert type(encode(_Color.RED, Edm.STRING)[0]) is str
    assert encode(level(3), Edm.INT64) == ("3", "Edm.Int64")


@pytest.mark.parametrize(
    ("value", "kind", "words"),
    [
        (INT32_MAX + 1, Edm.INT32, "range"),
        (INT64_MAX + 1, Edm.INT64, "range"),
        (2**53 + 1, Edm.DOUBLE, "exact"),
        ("1", Edm.INT64, "not an Edm.Int64"),
        ("a\ud800b", Edm.STRING, "lone surrogate U+D800 at position 1"),
        (dt.datetime(2024, 1, 1), Edm.DATETIME, "naive"),  # noqa: DTZ001
        (dt.date(2024, 1, 1), Edm.DATETIME, "not an Edm.DateTime"),
        ("x", Edm.GUID, "not an Edm.Guid"),
        ("x", Edm.BINARY, "not an Edm.Binary"),
    ],
)
def test_what_does_not_fit_is_refused(value: Any, kind: Edm, words: str) -> None:
    """A value outside its type is rejected with what is wrong; none is rounded, wrapped or replaced."""
    with pytest.raises(ValueError, match=words.replace("+", r"\+")):
        encode(value, kind)


@pytest.mark.parametrize(
    ("json", "annotation"),
    [
        (True, "Edm.Int32"),
        ("2024-02-29", "Edm.DateTime"),
        ("A===", "Edm.Binary"),
        ("AAAA=", "Edm.Binary"),
        ("x", "Edm.Time"),
        (None, None),
    ],
)
def test_what_is_no_wire_form_is_refused(json: object, annotation: str | None) -> None:
    """JSON that no client of the service may send is rejected, not guessed at."""
    with pytest.raises(ValueError):  # noqa: PT011  # each says something else
        decode(json, annotation)


@given(st.integers(MIN_TICKS, MAX_TICKS))
def test_ticks_and_text(ticks: int) -> None:
    """Text of ticks keeps all seven digits, and sorts as the ticks do."""
    text = text_from_ticks(ticks)

    assert ticks_from_text(text) == ticks
    assert (text < text_from_ticks(MAX_TICKS)) is (ticks < MAX_TICKS)
    assert ticks_from_datetime(datetime_from_text(text)) == ticks - ticks % 10


@given(moments)
def test_text_of_a_moment(moment: dt.datetime) -> None:
    """A datetime of any zone is written in UTC, and comes back as the same moment."""
    text = text_from_datetime(moment)

    assert datetime_from_text(text) == moment
    assert datetime_from_text(text).tzinfo is dt.UTC
    assert ticks_from_text(text) == ticks_from_datetime(moment)
    since_first = (moment - FIRST) // dt.timedelta(microseconds=1)
    assert ticks_from_datetime(moment) == MIN_TICKS + 10 * since_first


@pytest.mark.parametrize(
    ("text", "ticks"),
    [
        ("1601-01-01T00:00:00.0000000Z", MIN_TICKS),
        ("9999-12-31T23:59:59.9999999Z", MAX_TICKS),
        ("1601-01-01T00:00:00Z", MIN_TICKS),
        ("1601-01-01T00:00Z", MIN_TICKS),
        ("1601-01-01T00:00:00", MIN_TICKS),
        ("1601-01-01T00:00:00.1Z", MIN_TICKS + 1_000_000),
        ("1601-01-01T00:00:00.0000001Z", MIN_TICKS + 1),
        ("1601-01-01T00:00:00.000000149Z", MIN_TICKS + 1),
        ("1601-01-01T00:00:00.000000151Z", MIN_TICKS + 2),
        ("1601-01-01T00:00:00.00000015000Z", MIN_TICKS + 2),
        ("1601-01-01T00:00:00.000000250Z", MIN_TICKS + 2),
        ("1601-01-01T00:00:00.99999999Z", MIN_TICKS + TICKS_PER_SECOND),
        ("1601-01-01T02:00:00+02:00", MIN_TICKS),
        ("1600-12-31T22:30:00-01:30", MIN_TICKS),
    ],
)
def test_spellings_of_a_moment(text: str, ticks: int) -> None:
    """Fewer digits or more, no seconds, no zone and an offset are read; no zone means UTC, and a half is made even."""
    assert ticks_from_text(text) == ticks


@pytest.mark.parametrize("text", ["1600-12-31T23:59:59Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59.99999999Z"])
def test_moments_outside_the_range(text: str) -> None:
    """A moment that a DateTime cannot hold is told apart from what is no moment."""
    with pytest.raises(OutOfRangeError, match="1601-01-01 to 9999-12-31"):
        ticks_from_text(text)
    with pytest.raises(ValueError, match=r"not an Edm\.DateTime") as caught:
        ticks_from_text(text.replace("T", " "))
    assert not isinstance(caught.value, OutOfRangeError)


@given(st.integers(MIN_TICKS, MAX_TICKS))
def test_etag_holds_the_timestamp(ticks: int) -> None:
    """An ETag is made from the Timestamp, and gives it back; another kind of ETag gives None."""
    assert timestamp_of_etag(etag_from_ticks(ticks)) == text_from_ticks(ticks)
    assert marks_from_ticks(ticks) == (text_from_ticks(ticks), etag_from_ticks(ticks))
    assert timestamp_of_etag('"' + str(ticks) + '"') is None


@given(st.text(max_size=6), st.text(max_size=6))
def test_utf16_order(first: str, second: str) -> None:
    """`utf16_key` and `utf16_units` order text by its UTF-16 units, and `utf16_length` counts them."""
    if check_text(first) or check_text(second):
        return
    units, other = first.encode("utf-16-be"), second.encode("utf-16-be")

    assert (utf16_key(first) < utf16_key(second)) is (units < other)
    assert (utf16_key(first) == utf16_key(second)) is (first == second)
    assert (utf16_units(first) < utf16_units(second)) is (units < other)
    assert utf16_length(first) == len(units) // 2


@given(st.text(max_size=8))
def test_check_text(text: str) -> None:
    """`check_text` finds exactly what has no UTF-8 form."""
    has_form = all(not 0xD800 <= ord(char) <= 0xDFFF for char in text)

    assert (check_text(text) is None) is has_form
