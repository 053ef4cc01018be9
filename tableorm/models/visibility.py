"""
Whether an entity counts that has a row. Readers pass over those that do not; writes see their rows.

Nothing can ask the service for rows that lack a property or have a later time in it, so these rows are read, and
dropped here.
"""

import datetime as dt
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

import attrs

from ..stores import utc_now
from .property_types import FieldInfo

T = TypeVar("T")

_ALL_COUNT: ContextVar[bool] = ContextVar("tableorm_all_count", default=False)


@attrs.frozen
class Visibility:
    """
    Until when the entities of a model count.

    Args:
        until: The field that says so; they count forever if it is None.
    """

    until: FieldInfo

    @property
    def needs(self) -> tuple[str, ...]:
        """Names of the fields that must be read of an entity."""
        return (self.until.name,)

    def is_live(self, entity: object, now: dt.datetime) -> bool:
        """Return whether an entity counts of which at least these fields were read."""
        until: dt.datetime | None = entity.__dict__.get(self.until.name)
        return until is None or until > now


@contextmanager
def including_expired() -> Generator[None]:
    """Let readers find entities that do not count too, in this task and those that it starts."""
    token = _ALL_COUNT.set(True)
    try:
        yield
    finally:
        _ALL_COUNT.reset(token)


def is_live(found: object, now: dt.datetime) -> bool:
    """Return whether an entity counts, of which the fields that tell it were read; a bag always does."""
    schema = getattr(type(found), "__schema__", None)
    visibility: Visibility | None = None if schema is None else schema.visibility
    return visibility is None or _ALL_COUNT.get() or visibility.is_live(found, now)


def live_only(found: list[T]) -> list[T]:
    """Return those of the entities and bags which count by now."""
    now = utc_now()
    return [each for each in found if is_live(each, now)]
