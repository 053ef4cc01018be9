"""
KindSet of damage that an audit has to find, each with what it says of it.
"""

from collections.abc import Awaitable, Callable

import attrs

from tableorm import AuditReport, Damage, Database

Found = tuple[Damage, str | None, str, str | None]
"""Kind of damage, what was declared, RowKey of the entity, and of the other row."""
Harm = Callable[[Database], Awaitable[None]]


@attrs.frozen
class Case:
    """
    Args:
        name: Of the function that does the damage.
        harm: That.
        found: What an audit says.
        same: Whether all is as before once it is repaired.
    """

    name: str
    harm: Harm
    found: set[Found]
    same: bool


class Cases(list[Case]):
    """The damage that a module does: `@CASES.case((Damage.MISSING, ...))` above each function."""

    def case(self, *found: Found, same: bool = True) -> Callable[[Harm], None]:
        def register(harm: Harm) -> None:
            self.append(Case(getattr(harm, "__name__", ""), harm, set(found), same))

        return register


def found_by(report: AuditReport) -> set[Found]:
    """What a report says, as cases do."""
    return {(each.damage, each.index, each.row_key, each.address) for each in report.findings}
