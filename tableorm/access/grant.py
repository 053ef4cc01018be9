"""
Grants: shared access signatures for rows of a table, and what they open.
"""

import datetime as dt
from typing import Any, Self

import attrs

from ..errors import ModelError
from ..models.schema import Schema, concrete
from ..protocol.codes import Fault
from ..protocol.key_range import KeyRange
from ..protocol.limits import check_table_name
from ..protocol.sas import TableSas

__all__ = ["Grant", "GrantExplanation", "check_options", "check_target_table", "explain_grant", "spare_time"]

# A token is given again until so long before it expires; of a short one until the tenth part of its time.
_SPARE = dt.timedelta(minutes=5)


@attrs.frozen
class GrantExplanation:
    """
    What a token opens, and what it does not.

    Args:
        table: The table.
        permissions: Letters of `raud`: read, add, update, delete; None if the policy says that.
        keys: The range of keys.
        expires_at: Until when it is good; None if the policy says that.
        policy: The stored access policy that it refers to.
        covers: What it opens, a sentence each.
        not_covered: What belongs to the model, or to working with it, that it does not open.
    """

    table: str
    permissions: str | None
    keys: KeyRange
    expires_at: dt.datetime | None
    policy: str | None
    covers: tuple[str, ...]
    not_covered: tuple[str, ...]

    def __str__(self) -> str:
        until = "as its policy says" if self.expires_at is None else f"until {self.expires_at:%Y-%m-%d %H:%M:%S} UTC"
        lines = [f"{self.permissions or 'what its policy says'} on table {self.table}, {self.keys}, {until}"]
        lines += [f"  covers: {each}" for each in self.covers]
        lines += [f"  does not cover: {each}" for each in self.not_covered]
        return "\n".join(lines)


class Grant(str):
    """
    A token: a str, as `connect(url, sas=...)` and every other client takes it, which knows what it opens.

    Attributes:
        explanation: What it opens, and what it does not.
    """

    __slots__ = ("explanation",)
    explanation: GrantExplanation

    def __new__(cls, token: str, explanation: GrantExplanation) -> Self:
        """A token and what it opens."""
        self = super().__new__(cls, token)
        self.explanation = explanation
        return self

    @property
    def expires_at(self) -> dt.datetime | None:
        """Until when it is good; None if its policy says that."""
        return self.explanation.expires_at

    @property
    def not_covered(self) -> tuple[str, ...]:
        """What belongs to the model, or to working with it, that it does not open."""
        return self.explanation.not_covered

    def explain(self) -> GrantExplanation:
        """What it opens, and what it does not: `print(token.explain())`."""
        return self.explanation

    def __repr__(self) -> str:
        # Whoever sees the text has the rights.
        return f"<Grant: {str(self.explanation).partition(chr(10))[0]}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return Grant, (str(self), self.explanation)


def spare_time(expires_in: dt.timedelta | None) -> dt.timedelta:
    """Return how long before its end a token is no longer given again."""
    return _SPARE if expires_in is None else min(_SPARE, expires_in / 10)


def check_options(what: str, expires_in: object, **texts: object) -> None:
    """Refuse an `expires_in` below one second, and texts that are empty. Raises ModelError."""
    if expires_in is not None and (not isinstance(expires_in, dt.timedelta) or expires_in < dt.timedelta(seconds=1)):
        raise ModelError(f"{what}: expires_in={expires_in!r} is refused; give a timedelta of a second at least")
    for name, value in texts.items():
        # An empty one is none to the service: a token that seems to have a policy would be good without it.
        if value is not None and not (isinstance(value, str) and value):
            raise ModelError(f"{what}: {name}={value!r} is refused; give a text, or leave it out")


def check_target_table(what: str, table: str) -> None:
    """Refuse a name that no table can have. Raises ModelError."""
    try:
        check_table_name(table)
    except Fault as fault:
        raise ModelError(f"{what}: {fault.message}") from None


# Explaining


def explain_grant(
    token: TableSas, schema: Schema | None, keys: KeyRange, expires_at: dt.datetime | None
) -> GrantExplanation:
    """Return what a token opens, and what it leaves closed."""
    rows = f"every row of table {token.tn}" if keys == KeyRange() else f"every row of table {token.tn} {keys}"
    kinds = "" if schema is None or schema.kind is None else f", of whatever kind, not of {schema.name} alone"
    lacking = [
        "other tables; making, listing and deleting tables; stored access policies",
        "queues and blobs, also those that entities refer to",
    ]
    apart = [] if schema is None or keys == KeyRange() else _kept_apart(schema, keys)
    if apart:
        names = ", ".join(apart)
        lacking.append(f"what is kept for {names}, where its keys are not in the range; verbs that need it are refused")
    if keys != KeyRange():
        lacking.insert(0, f"rows of table {token.tn} with other keys")
    allowed = token.sp
    if allowed is not None:
        lacking += [verbs for needed, verbs in _NEEDS if not set(needed) <= set(allowed)]
    return GrantExplanation(token.tn, allowed, keys, expires_at, token.si, (rows + kinds,), tuple(lacking))


def _kept_apart(schema: Schema, keys: KeyRange) -> list[str]:
    """The indexes, lists, counts and the like of a model whose rows may be outside of a range that its own are in."""
    whole = not keys.start_row and keys.end_row is None  # what is in the partition of an entity is in it too
    return [
        f"{each.name}.{name}"
        for each in concrete(schema) or [schema]
        for name, derived in each.derived.items()
        if not whole or derived.partition != each.partition
    ]


_NEEDS = (
    ("r", "get, queries, refresh, modify, and other verbs that read the row first: they need 'r'"),
    ("a", "insert: it needs 'a'"),
    ("au", "upsert: it needs 'a' and 'u'"),
    ("u", "save, merge and replace: they need 'u'"),
    ("d", "delete: it needs 'd'"),
)
