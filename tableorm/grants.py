"""
Grants: shared access signatures for rows of a table, and what they open.
"""

import datetime as dt
from collections import OrderedDict
from collections.abc import Mapping
from functools import cached_property
from typing import Any, Self

import attrs

from .entity import Entity, schema_of
from .errors import ModelError
from .grant_ranges import keys_between, raw_keys_between
from .guard import Signer
from .policies import TablePolicies, access_of, permission_letters
from .protocol.codes import Fault
from .protocol.key_range import KeyRange
from .protocol.limits import check_table_name
from .protocol.sas import TableSas, sign_sas
from .reader import Reader
from .schema import Schema, concrete
from .translate import translate

__all__ = ["Grant", "GrantExplanation", "Granting"]

# What azure-data-tables 12.7 makes. Source: "Versioning for the Azure Storage services".
_VERSION = "2019-02-02"
_CACHED = 1_000
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


class Granting(Reader):
    """
    What of a database gives others access.
    """

    @cached_property
    def _grants(self) -> OrderedDict[tuple[TableSas, dt.timedelta | None, Signer], Grant]:
        return OrderedDict()

    async def grant(
        self,
        target: type[Entity] | str,
        permissions: str | None = None,
        expires_in: dt.timedelta | None = None,
        *,
        start: Mapping[str, Any] | None = None,
        end: Mapping[str, Any] | None = None,
        policy: str | None = None,
        ip: str | None = None,
        protocol: str | None = None,
    ) -> Grant:
        """
        A token for rows of a table: a shared access signature, as the service's own clients make it.

            token = await db.grant(Employee, "r", dt.timedelta(hours=1), start={"department": "Sales", "id": 100},
                                   end={"department": "Sales", "id": 199})

        Asked again for the same rights, it gives the same token until shortly before that expires. Nothing is sent.

        The token opens every row from `start` to `end`, both included, in the order of keys (PartitionKey, then
        RowKey), also rows of other kinds; `token.explain()` says what it opens and what it does not.

        Args:
            target: A model, or the name of a table.
            permissions: Letters of `raud`: read, add (insert), update, delete. An upsert needs `au`.
            expires_in: How long it is good; a second at least.
            start: The first key, by key fields of the model: all of them, or the first ones, which stand for all that
                begin so; the table's first row by default. Of a table's name: `PartitionKey`, and `RowKey`.
            end: The last key, likewise; `start=end={"department": "Sales"}` is that partition.
            policy: A stored access policy (see `policies`), which supplies what is not given of permissions and time.
            ip: The address that it may be used from, or `FIRST-LAST`.
            protocol: `"https"`, to refuse it over HTTP.

        Raises:
            ModelError: Something of it cannot be; names it.
            TemplateError: A field does not fit its key.
            NotSupported: This database cannot sign tokens, and why.
        """
        access = access_of(self)
        schema = None if isinstance(target, str) else schema_of(target)
        table = target if isinstance(target, str) else schema_of(target).table_name()
        what = f"grant({table if schema is None else schema.name})"
        _check_name(what, table)
        keys = self._keys_between(what, schema, start, end)
        letters = permission_letters(what, permissions)
        if policy is None and (letters is None or expires_in is None):
            missing = "permissions" if letters is None else "expires_in"
            raise ModelError(f"{what} needs {missing}, or the stored access policy that has it: policy=...")
        _check_options(what, expires_in, policy=policy, ip=ip, protocol=protocol)
        try:
            signer = await access.signer()
        except Fault as fault:
            raise translate(fault, what, table) from fault
        now = dt.datetime.now(dt.UTC)
        try:
            expiry = None if expires_in is None else (now + expires_in).replace(microsecond=0)
            token = TableSas(
                sv=_VERSION,
                tn=table,
                sp=letters,
                se=None if expiry is None else f"{expiry:%Y-%m-%dT%H:%M:%SZ}",
                si=policy,
                sip=ip,
                spr=protocol,
                spk=keys.start_partition,
                srk=keys.start_row,
                epk=keys.end_partition,
                erk=keys.end_row,
            )
        except (ValueError, OverflowError) as error:
            raise ModelError(f"{what} is refused: {error}") from None
        asked = attrs.evolve(token, se=None if token.se is None else "2000-01-01"), expires_in, signer
        known = self._grants.get(asked)
        if known is not None and (known.expires_at is None or now < known.expires_at - _spare(expires_in)):
            self._grants.move_to_end(asked)
            return known
        try:
            text = sign_sas(token, signer.account, signer.key)
        except ValueError as error:
            raise ModelError(f"{what} is refused: {error}") from None
        grant = self._grants[asked] = Grant(text, _explained(token, schema, keys, expiry))
        self._grants.move_to_end(asked)
        if len(self._grants) > _CACHED:
            self._grants.popitem(last=False)
        return grant

    def _keys_between(
        self, what: str, schema: Schema | None, start: Mapping[str, Any] | None, end: Mapping[str, Any] | None
    ) -> KeyRange:
        return raw_keys_between(what, start, end) if schema is None else keys_between(schema, start, end)

    def policies(self, target: type[Entity] | str) -> TablePolicies:
        """
        The stored access policies of a table: `await db.policies(Employee).set("readers", "r", expires_at=...)`.

        Args:
            target: A model, or the name of a table.

        Raises:
            ModelError: It is no name of a table.
        """
        table = target if isinstance(target, str) else schema_of(target).table_name()
        _check_name("policies", table)
        return TablePolicies(self, table)


def _spare(expires_in: dt.timedelta | None) -> dt.timedelta:
    return _SPARE if expires_in is None else min(_SPARE, expires_in / 10)


def _check_options(what: str, expires_in: object, **texts: object) -> None:
    if expires_in is not None and (not isinstance(expires_in, dt.timedelta) or expires_in < dt.timedelta(seconds=1)):
        raise ModelError(f"{what}: expires_in={expires_in!r} is refused; give a timedelta of a second at least")
    for name, value in texts.items():
        # An empty one is none to the service: a token that seems to have a policy would be good without it.
        if value is not None and not (isinstance(value, str) and value):
            raise ModelError(f"{what}: {name}={value!r} is refused; give a text, or leave it out")


def _check_name(what: str, table: str) -> None:
    try:
        check_table_name(table)
    except Fault as fault:
        raise ModelError(f"{what}: {fault.message}") from None


# Explaining


def _explained(
    token: TableSas, schema: Schema | None, keys: KeyRange, expires_at: dt.datetime | None
) -> GrantExplanation:
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
        for name, derived in each.derived()
        if not whole or getattr(derived, "partition", each.partition) != each.partition
    ]


_NEEDS = (
    ("r", "get, queries, refresh, modify, and other verbs that read the row first: they need 'r'"),
    ("a", "insert: it needs 'a'"),
    ("au", "upsert: it needs 'a' and 'u'"),
    ("u", "save, merge and replace: they need 'u'"),
    ("d", "delete: it needs 'd'"),
)
