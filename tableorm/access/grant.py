"""
Grants: shared access signatures for rows of a table, from what a program asks for to what they open.
"""

import datetime as dt
from collections.abc import Mapping
from itertools import zip_longest
from typing import Any, Self

import attrs

from ..connection.connection import Connection
from ..connection.translate import translate
from ..errors import ModelError, shown
from ..models.entity import Entity, schema_of
from ..models.schema import DerivedSchema, Schema, concrete
from ..protocol.codes import Fault
from ..protocol.key_range import KeyRange
from ..protocol.limits import check_table_name
from ..protocol.notebook import html_table
from ..protocol.sas import TableSas, sign_sas
from ..stores import CLOCK, Signer
from .key_ranges import keys_between, raw_keys_between, table_between
from .policies import access_of, permission_letters

# The version that azure-data-tables 12.7 sends. Source: "Versioning for the Azure Storage services".
_VERSION = "2019-02-02"

_MAX_CACHED = 1_000

# A token is given again until this time before it expires; a short one until a tenth of its time before.
_SPARE = dt.timedelta(minutes=5)


@attrs.frozen(kw_only=True)
class GrantExplanation:
    """
    What a token opens, and what it doesn't.

    Args:
        table: The name of the table.
        permissions: Letters of `raud`: read, add, update, delete; None if the policy has them.
        keys: The range of keys.
        expires_at: When the token expires; None if the policy has the time.
        policy: The name of the stored access policy that the token refers to, or None.
        covers: What it opens, in sentences.
        not_covered: What it doesn't open although working with the model needs it, in sentences.
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

    def _repr_html_(self) -> str:
        pairs = zip_longest(self.covers, self.not_covered)
        rows = [{"covers": covered, "does not cover": missing} for covered, missing in pairs]
        return html_table(str(self).partition("\n")[0], rows)


class Grant(str):
    """
    A token that knows what it opens. It's a str, so `connect(url, sas=...)` and every other client accept it.

    Attributes:
        explanation: What the token opens, and what it doesn't.
    """

    __slots__ = ("explanation",)
    explanation: GrantExplanation

    def __new__(cls, token: str, explanation: GrantExplanation) -> Self:
        """Make a token of its text and what it opens."""
        self = super().__new__(cls, token)
        self.explanation = explanation
        return self

    @property
    def expires_at(self) -> dt.datetime | None:
        """When the token expires; None if its policy has the time."""
        return self.explanation.expires_at

    @property
    def not_covered(self) -> tuple[str, ...]:
        """What the token doesn't open although working with the model needs it."""
        return self.explanation.not_covered

    def explain(self) -> GrantExplanation:
        """Return what the token opens and what it doesn't: `print(token.explain())`."""
        return self.explanation

    def __repr__(self) -> str:
        # The text is left out, because it gives the rights to everybody who sees it.
        return f"<Grant: {str(self.explanation).partition(chr(10))[0]}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return Grant, (str(self), self.explanation)


GrantCache = dict[tuple[TableSas, dt.timedelta | None, Signer], Grant]
"""The tokens that were issued, by what was asked for."""


# Issuing


async def issue_grant(
    db: Connection,
    cache: GrantCache,
    target: type[Entity] | str,
    permissions: str | None,
    expires_in: dt.timedelta | None,
    *,
    start: Mapping[str, Any] | None,
    end: Mapping[str, Any] | None,
    policy: str | None,
    ip: str | None,
    protocol: str | None,
) -> Grant:
    """
    Issue a token for rows of a table, or give the one again that was issued for the same rights.

    The arguments are those of `Database.grant`, but for the database and the cache of the tokens that it has issued.

    Raises:
        AccessDenied: The rows are outside of the connection's boundary.
        ModelError: Something of the options cannot be; names it.
        TemplateError: A field does not fit its key.
        NotSupported: This database cannot sign tokens, and why.
    """
    access = access_of(db)
    schema = None if isinstance(target, str) else schema_of(target)
    what = f"grant({target if schema is None else schema.name})"
    for name, side in (("start", start), ("end", end)):
        if not isinstance(side, Mapping | None):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ModelError(f"{what}: {name}={shown(side)} is rejected; give fields of the key and their values")
    first, last = dict(start or {}), dict(end or {})
    if schema is None:
        keys = raw_keys_between(what, first, last)
    else:
        first, last = db.boundary.fill_key(schema, first), db.boundary.fill_key(schema, last)
        keys = keys_between(schema, first, last)
    table = db.prefix + (target if isinstance(target, str) else table_between(schema_of(target), first, last))
    check_target_table(what, table)
    db.boundary.check_range(what, schema, first, last, keys)
    if schema is not None and schema.split is not None and keys.end_row is not None:
        keys = attrs.evolve(keys, end_row=schema.split.last_key(keys.end_row))
    letters = permission_letters(what, permissions)
    if policy is None and (letters is None or expires_in is None):
        missing = "permissions" if letters is None else "expires_in"
        raise ModelError(f"{what} needs {missing}, or the stored access policy that has it: policy=...")
    _check_options(what, expires_in, policy=policy, ip=ip, protocol=protocol)
    try:
        signer = await access.signer()
    except Fault as fault:
        raise translate(fault, what, table) from None
    now = CLOCK.now()
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
        raise ModelError(f"{what} is rejected: {error}") from None
    asked = attrs.evolve(token, se=None if token.se is None else "2000-01-01"), expires_in, signer
    known, spare = cache.get(asked), _SPARE if expires_in is None else min(_SPARE, expires_in / 10)
    if known is not None and (known.expires_at is None or now < known.expires_at - spare):
        return known
    try:
        text = sign_sas(token, signer.account, signer.key)
    except ValueError as error:
        raise ModelError(f"{what} is rejected: {error}") from None
    if len(cache) >= _MAX_CACHED:
        cache.clear()
    grant = cache[asked] = Grant(text, _explain(token, schema, keys, expiry, db.prefix))
    return grant


def _check_options(what: str, expires_in: object, **texts: object) -> None:
    """Refuse an `expires_in` below one second, and texts that are empty. Raises ModelError."""
    if expires_in is not None and (not isinstance(expires_in, dt.timedelta) or expires_in < dt.timedelta(seconds=1)):
        raise ModelError(f"{what}: expires_in={expires_in!r} is rejected; give a timedelta of a second at least")
    for name, value in texts.items():
        # The service ignores an empty text: a token that seems to have a policy would be good without it.
        if value is not None and not (isinstance(value, str) and value):
            raise ModelError(f"{what}: {name}={value!r} is rejected; pass a string, or omit it")


def check_target_table(what: str, table: str) -> None:
    """Refuse a name that no table can have. Raises ModelError."""
    try:
        check_table_name(table)
    except Fault as fault:
        raise ModelError(f"{what}: {fault.message}") from None


# Explaining


def _explain(
    token: TableSas, schema: Schema | None, keys: KeyRange, expires_at: dt.datetime | None, prefix: str
) -> GrantExplanation:
    """Return what a token opens, and what it leaves closed."""
    rows = f"every row of table {token.tn}" if keys == KeyRange() else f"every row of table {token.tn} {keys}"
    kinds = "" if schema is None or schema.kind is None else f", of any kind, not only of {schema.name}"
    missing = [
        "other tables; making, listing and deleting tables; stored access policies",
        "queues and blobs, including those that entities refer to",
        "moves to another partition or table, archives and workflows, which send messages through a queue",
    ]
    outside = [] if schema is None else _derived_outside(schema, keys, prefix)
    if outside:
        names = ", ".join(outside)
        missing.append(
            f"what is kept for {names}, where its keys are not in the range; verbs that need it are rejected"
        )
    in_blobs = [] if schema is None else [each.label for each in _declared(schema) if each.in_blobs]
    if in_blobs:
        missing.append(f"the blobs of the lists {', '.join(in_blobs)}; lookups are rejected")
    if schema is not None and (deferred := _deferred(schema)):
        missing.append(
            f"the queue that tells workers of changes, which writes need because of {', '.join(deferred)}; they are "
            "refused"
        )
    if keys != KeyRange():
        missing.insert(0, f"rows of table {token.tn} with other keys")
    allowed = token.sp
    if allowed is not None:
        missing += [verbs for needed, verbs in _NEEDS if not set(needed) <= set(allowed)]
    return GrantExplanation(
        table=token.tn,
        permissions=allowed,
        keys=keys,
        expires_at=expires_at,
        policy=token.si,
        covers=(rows + kinds,),
        not_covered=tuple(missing),
    )


def _derived_outside(schema: Schema, keys: KeyRange, prefix: str) -> list[str]:
    """Return the names of what is derived from a model in rows that may lie outside of a range that its own are in."""
    whole = not keys.start_row and keys.end_row is None  # a range of whole partitions has all rows of each
    return [
        derived.label if derived.table == each.table else f"{derived.label} in table {prefix}{derived.table}"
        for each in concrete(schema) or [schema]
        for derived in each.derived.values()
        if not derived.in_blobs
        and (derived.table != each.table or (keys != KeyRange() and (not whole or derived.partition != each.partition)))
    ]


def _deferred(schema: Schema) -> list[str]:
    """Return what is declared of a model and kept right after the write."""
    return [derived.label for derived in _declared(schema) if derived.deferred]


def _declared(schema: Schema) -> list[DerivedSchema]:
    return [derived for each in concrete(schema) or [schema] for derived in each.derived.values()]


_NEEDS = (
    ("r", "get, queries, refresh, modify, and other verbs that read the row first: they need 'r'"),
    ("a", "insert: it needs 'a'"),
    ("au", "upsert: it needs 'a' and 'u'"),
    ("u", "save, merge and replace: they need 'u'"),
    ("d", "delete: it needs 'd'"),
)
