"""
Following a log: what is appended to it, each entity once, although some are written late.
"""

import datetime as dt
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from operator import attrgetter
from typing import Any, TypeVar, cast

from ..errors import DecodeError, ModelError
from ..expressions import Comparison, Expression, Field, conjuncts
from ..keys.format import Order
from ..keys.ranges import KeyPosition
from ..models.kinds import KindSet
from ..models.schema import Schema
from ..protocol.filters import Op
from ..stores import CLOCK
from .misfits import MisfitPolicy, settle_error
from .planning.normalize import has_field
from .polling import PollPause
from .progress import key_of_entity

E = TypeVar("E")

# Entities that are read at once, at most, unless so many are in as much of the log as each poll looks back.
_MOST = 10_000
_SECOND = dt.timedelta(seconds=1)

ReadLog = Callable[[dt.datetime, dt.datetime | None, int | None, list[DecodeError]], Awaitable[list[E]]]
"""
Reads the entities from one moment to before another, or to the end; at most as many as the number says. The list gets
the errors of rows that do not fit their model.
"""


def check_durations(what: str, lag: dt.timedelta, pause: dt.timedelta) -> None:
    """Refuse what is no time to look back, or to wait. Raises ModelError."""
    for name, value, least in (("lag", lag, dt.timedelta(0)), ("pause", pause, dt.timedelta(milliseconds=1))):
        if not isinstance(cast("object", value), dt.timedelta) or value < least:
            raise ModelError(
                f"{what}.follow({name}={value!r}) is rejected: give a timedelta, as in timedelta(seconds=5)"
            )


def find_moment(what: str, kinds: KindSet, where: Iterable[Expression]) -> Field[Any]:
    """
    Return the field whose moments the RowKeys of a query are sorted by.

    Args:
        what: The query, for messages.
        kinds: What it asks for.
        where: Its conditions.

    Raises:
        ModelError: There is none.
    """
    terms = list(conjuncts(where))
    given = {term.field.name for term in terms if isinstance(term, Comparison) and term.op is Op.EQ}
    fields = [_moment_of(schema, given) for schema in kinds.schemas]
    first = fields[0] if fields and not kinds.bags else None
    if first is None or not all(
        each is not None and each.name == first.name and has_field(schema, first)
        for schema, each in zip(kinds.schemas, fields, strict=True)
    ):
        raise ModelError(
            f"{what}.follow() is rejected: it needs RowKeys that sort by a datetime, with only fields that the query "
            "determines before it; begin row_key with a field such as '{at:ticks_desc}' or '{at:ticks}'"
        )
    return first


def _moment_of(schema: Schema, given: set[str]) -> Field[Any] | None:
    parts = () if schema.row is None else schema.row.parts
    first = next((part for part in parts if part.field is not None and part.field not in given), None)
    if first is None or first.field is None:
        return None
    form = first.format
    if not form.full or form.order is Order.NONE or not isinstance(form.low, dt.datetime):
        return None
    return cast("Field[Any]", getattr(schema.model, first.field))


async def follow_log(
    read: ReadLog[E],
    moment: str,
    *,
    lag: dt.timedelta,
    since: dt.datetime | None,
    pause: dt.timedelta,
    misfits: MisfitPolicy,
) -> AsyncGenerator[E, None]:
    """
    Yield what is appended to a log, in the order of time as far as it has come.

    Args:
        read: Reads a part of the log.
        moment: The name of the field that says when an entity was written.
        lag: How late an entity may be written, by its moment: so far back each poll looks.
        since: The moment from which on entities are given; None for what is written from now on.
        pause: The longest pause between two polls.
        misfits: What to do with rows that do not fit their model.
    """
    moment_of = attrgetter(moment)
    known: dict[KeyPosition, dt.datetime] = {}
    start = CLOCK.now() - lag if since is None else since  # what is older was given
    given = since is not None  # otherwise the first poll finds what was there before
    least = max(lag, _SECOND)
    span: dt.timedelta | None = None  # how much of the log is read at once, if there is too much of it
    waiting = PollPause(pause.total_seconds())
    unfit: set[KeyPosition] = set()  # of the last poll
    while True:
        settled = CLOCK.now() - lag  # nothing comes before it any more
        end = start + span if span is not None and start + span < settled else None
        length = (settled if end is None else end) - start
        errors: list[DecodeError] = []
        found = await read(start, end, _MOST + 1 if length > least else None, errors)
        if len(found) > _MOST and length > least:
            span = length / 2
            continue
        lacking = {id(each) for error in errors for each in error.parents} if misfits == "raise" else ()
        new = [each for each in found if key_of_entity(each) not in known and id(each) not in lacking]
        new.sort(key=moment_of)  # what has the same moment stays in the order of RowKeys
        known.update((key_of_entity(each), moment_of(each)) for each in new)
        if given:
            for each in new:
                yield each
            for error in errors:
                if error.key not in unfit:
                    settle_error(misfits, error)
        given, unfit = True, {error.key for error in errors}
        start = max(start, settled if end is None else end)
        known = {key: at for key, at in known.items() if at >= start}
        if end is None:
            span = None
            await waiting.wait(found=bool(new))
        elif span is not None and len(found) < _MOST // 4:
            span *= 2
