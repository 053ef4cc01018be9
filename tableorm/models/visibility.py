"""
Whether an entity counts that has a row. Readers pass over those that do not; writes see their rows.

Nothing can ask the service for rows that lack a property or have a later time in it, so these rows are read, and
dropped here.
"""

import datetime as dt
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

from ..stores import utc_now

T = TypeVar("T")

_ALL_COUNT: ContextVar[bool] = ContextVar("tableorm_all_count", default=False)


@contextmanager
def including_expired() -> Generator[None]:
    """Let readers find entities that do not count too, in this task and those that it starts."""
    token = _ALL_COUNT.set(True)
    try:
        yield
    finally:
        _ALL_COUNT.reset(token)


def is_live(found: object, now: dt.datetime) -> bool:
    """Return whether an entity counts, of which the field that tells it was read; a bag always does."""
    schema: Any = getattr(type(found), "__schema__", None)
    if schema is None or schema.expiry is None or _ALL_COUNT.get():
        return True
    until: dt.datetime | None = found.__dict__.get(schema.expiry.name)
    return until is None or until > now


def live_only(found: list[T]) -> list[T]:
    """Return those of the entities and bags which count by now."""
    now = utc_now()
    return [each for each in found if is_live(each, now)]
