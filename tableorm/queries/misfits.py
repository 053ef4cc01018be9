"""
Misfits: rows that a query finds and that do not fit their model, and what becomes of them.
"""

from collections.abc import Callable, Hashable, Sequence
from typing import Any, Literal

import attrs

from ..errors import DecodeError, ModelError, TableOrmError
from ..keys.ranges import KeyPosition
from ..stores import Row

MisfitPolicy = Literal["raise", "skip"] | Callable[[DecodeError], object]
"""What a query does with a row that does not fit its model: a function is called with the error."""


@attrs.frozen(eq=False)
class Misfit:
    """
    A row that could not be made into an entity, in its place among the entities.

    Args:
        error: What is wrong with it.
        position: The keys under which the query has found it.
    """

    error: Exception
    position: KeyPosition


TakeMisfit = Callable[[Misfit], bool]
"""Takes a misfit, so that the query goes on behind it; returns False for one that ends the query."""


def raise_misfits(_: Misfit) -> bool:
    """Take no misfit."""
    return False


def taker_of(policy: MisfitPolicy) -> TakeMisfit:
    """Return what takes the misfits of a query. What a function of the program raises is never taken."""
    if policy == "raise":
        return raise_misfits

    def take(misfit: Misfit) -> bool:
        if not isinstance(misfit.error, DecodeError):
            return False
        settle_error(policy, misfit.error)
        return True

    return take


def settle_error(policy: Any, error: Exception, key: Hashable = None) -> None:
    """
    Do with an error what was to be done.

    Args:
        policy: A `MisfitPolicy`; or a dict, which gets the error.
        error: The error.
        key: Its key in the dict.
    """
    if policy == "raise":
        raise error
    if callable(policy):
        policy(error)
    elif policy != "skip":
        policy[key] = error


def check_policy(call: str, policy: object) -> None:
    """Refuse what is no policy. Raises ModelError."""
    if policy not in ("raise", "skip") and not callable(policy):
        raise ModelError(
            f"{call} is rejected: give 'raise', 'skip', or a function that takes each error, such as errors.append"
        )


def load_each(load: Callable[[list[Row]], list[Any]], rows: Sequence[Row]) -> list[Any]:
    """Make rows into entities one by one, after they could not be made together: with a misfit for each that fails."""
    found: list[Any] = []
    for row in rows:
        try:
            found += load([row])
        except Exception as error:  # noqa: BLE001 - an upgrade or a discriminator may raise anything
            found.append(misfit_of(row, error))
    return found


def misfit_of(row: Row, error: Exception) -> Misfit:
    """Return the misfit of a row that has raised an error."""
    return Misfit(error, (row["PartitionKey"], row["RowKey"]))


def is_of_row(error: Exception) -> bool:
    """Return whether an error says something of a row, and not of the store that was asked for it."""
    return isinstance(error, DecodeError) or not isinstance(error, TableOrmError)


def take_last_misfit(found: list[Any]) -> Misfit | None:
    """Remove the misfit from the end of what was loaded, and return it; None if there is none."""
    return found.pop() if found and type(found[-1]) is Misfit else None


def without_taken(found: list[Any], take: TakeMisfit, wanted: int | None) -> list[Any]:
    """
    Return entities without the misfits that were taken.

    Args:
        found: Entities and misfits, in order.
        take: Takes misfits.
        wanted: How many entities are wanted; behind them nothing is taken, as it is perhaps read again.

    Returns:
        The entities up to the first misfit that was not taken, which is the last item then.
    """
    kept: list[Any] = []
    for each in found:
        if len(kept) == wanted:
            return [*kept, each]  # which tells that more follows
        if type(each) is not Misfit:
            kept.append(each)
        elif not take(each):
            return [*kept, each]
    return kept
