"""
Expiry: a field that says until when an entity counts. Readers pass over an entity whose time has come; a sweep deletes
it.

The row stays until then, and writes see it. Nothing can ask the service for rows that lack a property or have a later
time in it, so rows that have expired are read, and dropped here.
"""

import datetime as dt
from typing import TypeVar

from ..errors import ModelError
from ..stores import utc_now
from .schema import Schema

__all__ = ["check_expiry", "drop_expired", "is_expired"]

T = TypeVar("T")


def check_expiry(schema: Schema) -> None:
    """
    Refuse a model whose fields do not tell when its entities expire, although one is declared to.

    Raises:
        ModelError: Several fields are declared so, or the field is no time, is in the key, or is kept by others.
    """
    found = [info for info in schema.fields.values() if info.expiry]
    if len(found) > 1:
        names = ", ".join(info.name for info in found)
        raise ModelError(
            f"{schema.name} has several fields with expiry=True: {names}; an entity expires once: keep one"
        )
    for info in found:
        label = f"{schema.name}.{info.name} = field(expiry=True) is refused"
        if info.shape is not None or info.type.annotation is not dt.datetime:
            raise ModelError(
                f"{label}: it is declared {info.type.name}; write {info.name}: Mapped[datetime | None] = "
                "field(default=None, expiry=True)"
            )
        if info.name in schema.key_fields:
            raise ModelError(
                f"{label}: it is part of the key, which no write changes, so that no life could be prolonged; leave it "
                "out of the key"
            )
        if info.maintained:
            raise ModelError(f"{label}: other entities keep it; leave out maintained=True")


def is_expired(found: object, now: dt.datetime) -> bool:
    """
    Return whether something that was read is an entity that has expired.

    Args:
        found: An entity, in full or with at least the field that says when it expires; a bag or row never expires.
        now: The time.
    """
    schema: Schema | None = getattr(type(found), "__schema__", None)
    if schema is None or schema.expiry is None:
        return False
    expires: dt.datetime | None = found.__dict__.get(schema.expiry.name)
    return expires is not None and expires <= now


def drop_expired(found: list[T]) -> list[T]:
    """Return what was read without entities that have expired by now."""
    now = utc_now()
    return [each for each in found if not is_expired(each, now)]
