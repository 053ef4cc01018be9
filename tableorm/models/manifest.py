"""
The manifest of a row: what exists elsewhere because of it.
"""

from typing import Any

import msgspec

from ..errors import DecodeError
from ..stores import Row
from .reserved import MANIFEST

__all__ = ["manifest_of"]


def manifest_of(row: Row | None) -> dict[str, Any]:
    """
    What a row notes of the rows that are derived from it.

    Raises:
        DecodeError: The note is damaged.
    """
    text = None if row is None else row.get(MANIFEST)
    if text is None or row is None:
        return {}
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.DecodeError, TypeError):
        raise DecodeError(
            f"has {text!r} as {MANIFEST}, which is no note of its copies; repair it with `tableorm audit --repair`",
            str(row.get("EntityType")),
            (str(row.get("PartitionKey")), str(row.get("RowKey"))),
        ) from None
