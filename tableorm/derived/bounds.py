"""
Bounds of counts and sums: the validators of maintained fields, which are judged where the value is written.
"""

from collections.abc import Callable, Mapping
from typing import Any, cast

import attrs

from ..models.property_types import REFUSALS
from ..models.schema import FieldInfo, Schema

__all__ = ["Bound", "bound_of"]


@attrs.frozen
class Bound:
    """
    The validator of a maintained field.

    Args:
        info: The field.
        attribute: The attribute of attrs that stands for it.
        validator: Takes an entity, the attribute and the value; raises what says that the value is refused.
    """

    info: FieldInfo
    attribute: Any
    validator: Callable[[Any, Any, Any], object]

    def broken_by(self, probe: Any, now: Mapping[str, int], amounts: Mapping[str, int]) -> Exception | None:
        """
        Return why a count or sum must not be changed; None if it may be.

        A value that broke the validator before, because that was declared later, may come nearer to the default:
        otherwise nobody could repair it by and by.

        Args:
            probe: The entity as it will be; the counts and sums are put into it.
            now: The counts and sums as they are, by property.
            amounts: What is added to them.
        """
        name, start = self.info.member.property, self.info.absent()
        before, after = now[name], now[name] + amounts[name]
        fault = self._judge(probe, {each: value + amounts.get(each, 0) for each, value in now.items()})
        if fault is not None and abs(after - start) < abs(before - start) and self._judge(probe, now) is not None:
            return None
        return fault

    def _judge(self, probe: Any, values: Mapping[str, int]) -> Exception | None:
        by_property = probe.__schema__.by_property
        probe.__dict__.update({by_property[name].field: value for name, value in values.items()})
        try:
            self.validator(probe, self.attribute, values[self.info.member.property])
        except REFUSALS as fault:
            return fault
        return None


def bound_of(schema: Schema, name: str) -> Bound | None:
    """Return the bound of the field that a property holds; None if it has no validator."""
    member = schema.by_property.get(name)
    info = None if member is None else schema.fields[member.field]
    if info is None or not info.maintained:
        return None
    attribute = getattr(attrs.fields(cast("Any", schema.model)), info.name)
    return None if attribute.validator is None else Bound(info, attribute, attribute.validator)
