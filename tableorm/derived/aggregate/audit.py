"""
What an audit checks of a count or sum: what entities say that they add, and what the entities that hold it have.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence

from ...audit.check import WRONG, Check
from ...audit.context import AuditContext, EntitySnapshot, Problem
from ...audit.report import Damage
from ...models.manifest import ManifestEntry
from ...models.schema import FieldInfo, Schema, concrete
from ...stores import Row
from .repair import amounts_of, counted_value, verify_holders
from .schema import AggregateSchema

__all__ = ["AggregateCheck", "HolderCheck", "aggregate_checks"]


def aggregate_checks(context: AuditContext, aggregate: AggregateSchema) -> Sequence[Check]:
    """Return the checks of a count or sum: of the entities that add to it, and of those that hold it."""
    target, info = aggregate.target
    holders = [schema for schema in context.kinds.schemas if schema in concrete(target)]
    return [
        AggregateCheck(context, aggregate),
        *(HolderCheck(context, schema, schema.fields[info.name]) for schema in holders),
    ]


def _claim_address(holder: str, property_: str) -> str:
    return f"{holder}\n+{property_}"


def _factor(address: str) -> int:
    """Return what amounts are multiplied by: an odd number, so that no amount but zero becomes zero."""
    return hash(address) | 1


class AggregateCheck(Check):
    """
    The check of what entities add to a count or sum.

    Args:
        context: The rows of the table.
        aggregate: The count or sum of one model.
    """

    def __init__(self, context: AuditContext, aggregate: AggregateSchema) -> None:
        super().__init__(context, aggregate.schema, aggregate.name)
        self.aggregate = aggregate
        self.verify_totals = verify_holders

    def claims(self, snapshot: EntitySnapshot) -> Iterable[tuple[str, int]]:
        """Claim WRONG where the manifest says another amount, or another holder."""
        if snapshot.manifest.get(self.name) != snapshot.expected.get(self.name):
            return ((snapshot.row["RowKey"], WRONG),)
        return ()

    def contributions(self, snapshot: EntitySnapshot) -> Iterable[tuple[str, str, int]]:
        """Return what the entity adds by its fields."""
        for holder, property_, amount in amounts_of(snapshot.expected.get(self.name)):
            address = _claim_address(holder, property_)
            yield holder, address, amount * _factor(address)

    def compare(self, snapshot: EntitySnapshot, found: Mapping[str, Row | None]) -> Iterable[Problem]:
        """Compare the manifest with the fields; whether the total is right is verified with its holder."""
        del found
        noted, due = snapshot.manifest.get(self.name), snapshot.expected.get(self.name)
        if noted == due:
            return ()
        address = next((holder for holder, _, _ in amounts_of(due)), None)
        text = f"its manifest says that it {_describe(noted)}, and it {_describe(due)}"
        return (Problem(Damage.MANIFEST, self.name, address, text),)


def _describe(entry: ManifestEntry | None) -> str:
    parts = [f"adds {amount} to {name} of {holder!r}" for holder, name, amount in amounts_of(entry)]
    return " and ".join(parts) or "adds nothing"


class HolderCheck(Check):
    """
    The check of a field that holds a count or sum, on the entity that has it.

    Args:
        context: The rows of the table.
        schema: The model that has the field.
        info: The field.
    """

    def __init__(self, context: AuditContext, schema: Schema, info: FieldInfo) -> None:
        super().__init__(context, schema, info.name)
        self._info = info
        self.verify_totals = verify_holders

    @property
    def identity(self) -> Hashable:
        """Equal for all counts of one field: what they add is added up."""
        return type(self), self.name

    def contributions(self, snapshot: EntitySnapshot) -> Iterable[tuple[str, str, int]]:
        """Take away what the entity holds."""
        if snapshot.age != "current" or snapshot.problem is not None:
            return
        holder = snapshot.row["RowKey"]
        address = _claim_address(holder, self._info.property)
        yield holder, address, -counted_value(snapshot.row, self._info) * _factor(address)
