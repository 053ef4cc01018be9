"""
What is known of one field of a model.
"""

from collections.abc import Callable
from typing import Any

import attrs

from .property_types import PropertyType

__all__ = ["FieldInfo"]


@attrs.frozen
class FieldInfo:
    """
    A field of a model.

    Args:
        name: In Python.
        property: Name of the stored property.
        type: How values are stored.
        optional: Declared `| None`.
        default: Makes the default value; None if there is none.
        stored: Whether it is a property of the row; False if a key holds it in full.
        on_insert: Makes the value when an entity is inserted that has none; None if nothing does.
        on_write: Makes the value whenever the entity is written; None if nothing does.
        maintained: Whether other entities keep it, and this one's own writes leave it alone.
    """

    name: str
    property: str
    type: PropertyType
    optional: bool
    default: Callable[[], Any] | None
    stored: bool
    on_insert: Callable[[], Any] | None = None
    on_write: Callable[[], Any] | None = None
    maintained: bool = False
