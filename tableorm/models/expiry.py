"""
Expiry: a field that says until when an entity counts. Readers pass over an entity whose time has come, see
`visibility`; a sweep deletes it. The row stays until then.
"""

import datetime as dt

from ..errors import ModelError
from .schema import Schema


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
        label = f"{schema.name}.{info.name} = field(expiry=True) is rejected"
        if info.shape is not None or info.type.annotation is not dt.datetime:
            raise ModelError(
                f"{label}: it is declared {info.type.name}; write {info.name}: Mapped[datetime | None] = "
                "field(default=None, expiry=True)"
            )
        if info.name in schema.key_fields:
            raise ModelError(
                f"{label}: it is part of the key, which a write can't change, so it could never be extended; leave it "
                "out of the key"
            )
        if info.maintained:
            raise ModelError(f"{label}: writes of other entities maintain it; leave out maintained=True")
