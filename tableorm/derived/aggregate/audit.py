"""
What an audit checks of counts and sums: what entities note that they add, and what the entities that keep them hold.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from ...audit.check import WRONG, Check, EntitySnapshot, Problem, members_of
from ...audit.report import Damage
from ...models.schema import FieldInfo, Schema, concrete
from ...protocol.edm import Edm
from ...stores import Row
from .aggregate import AggregateMaintainer
from .schema import AggregateSchema

__all__ = ["AggregateCheck", "Keeps", "added", "aggregate_fields", "kept_of"]


def added(mark: Any) -> Iterable[tuple[str, str, int]]:
    """What a note says that is added: RowKey of the keeper, property, amount; nothing if it is no such note."""
    match mark:
        case {"add": [str(address), amounts]}:
            pairs = members_of(amounts)
            return [(address, name, amount) for name, amount in pairs.items() if type(amount) is int]
        case _:
            return []


def aggregate_fields(schema: Schema, aggregates: Iterable[AggregateSchema]) -> list[FieldInfo]:
    """The fields of a model in which some counts and sums are kept."""
    found: dict[str, FieldInfo] = {}
    for each in aggregates:
        target, info = each.target
        if schema in concrete(target):
            found[info.name] = schema.fields[info.name]
    return list(found.values())


def kept_of(row: Row, info: FieldInfo) -> int:
    """What a row holds in a field that keeps a count."""
    value = row.get(info.property)
    if value is None:
        return _begin(info)
    return int(value)


def _begin(info: FieldInfo) -> int:
    return 0 if info.default is None else int(info.default())


def _address(keeper: str, name: str) -> str:
    return f"{keeper}\n+{name}"


def _factor(address: str) -> int:
    """What an amount is taken times: an odd number, so that what is left of the sum is zero for no amount but zero."""
    return hash(address) | 1


class AggregateCheck(Check):
    """
    The check of what entities of a model add to counts and sums.

    Args:
        schema: The model.
        only: Name of the one that is checked; None for all.
    """

    def __init__(self, schema: Schema, only: str | None = None) -> None:
        self.aggregates = {
            name: each.aggregate
            for name, each in schema.derived_as(AggregateMaintainer).items()
            if only is None or name == only
        }

    def claims(self, seen: EntitySnapshot) -> Iterable[tuple[str, int]]:
        """WRONG where it notes another amount, or another keeper."""
        return [(seen.row["RowKey"], WRONG) for name in self.aggregates if seen.marks.get(name) != seen.due.get(name)]

    def adds(self, seen: EntitySnapshot) -> Iterable[tuple[str, str, int]]:
        """What it adds by its fields."""
        for name in self.aggregates:
            for keeper, property_, amount in added(seen.due.get(name)):
                address = _address(keeper, property_)
                yield keeper, address, amount * _factor(address)

    def compare(self, seen: EntitySnapshot, found: Mapping[str, Row | None]) -> list[Problem]:
        """What it notes; whether the sum is right is judged with the keeper."""
        del found
        problems: list[Problem] = []
        for name in self.aggregates:
            mark, due = seen.marks.get(name), seen.due.get(name)
            if mark != due:
                address = next((keeper for keeper, _, _ in added(due)), None)
                text = f"it notes that it {_said(mark)}, and {_said(due)}"
                problems.append(Problem(Damage.NOTE, name, address, text))
        return problems


def _said(mark: Any) -> str:
    parts = [f"adds {amount} to {name} of {keeper!r}" for keeper, name, amount in added(mark)]
    return " and ".join(parts) or "adds nothing"


class Keeps(Check):
    """
    The check of the fields of a model in which counts and sums are kept.

    Args:
        fields: These fields.
    """

    def __init__(self, fields: Iterable[FieldInfo]) -> None:
        self.fields = tuple(fields)

    def adds(self, seen: EntitySnapshot) -> Iterable[tuple[str, str, int]]:
        """What it keeps, taken away."""
        if seen.age != "current" or seen.problem is not None:
            return
        keeper = seen.row["RowKey"]
        for info in self.fields:
            address = _address(keeper, info.property)
            yield keeper, address, -self.counted(seen.row, info) * _factor(address)

    def counted(self, row: Row, info: FieldInfo) -> int:
        """What entities have added, if it is right."""
        return kept_of(row, info) - _begin(info)

    def members(self, info: FieldInfo, total: int) -> Row | None:
        """The property for what entities add; None if its type does not hold that."""
        value, small = _begin(info) + total, info.type.edm is Edm.INT32
        if not -(2**31) <= value < 2**31 if small else not -(2**63) <= value < 2**63:
            return None
        if small:
            return {info.property: value}
        return {info.property: str(value), f"{info.property}@odata.type": Edm.INT64.value}

    def wanted(self, info: FieldInfo, total: int) -> int:
        """What it should hold."""
        return _begin(info) + total
