"""
Issuing grants: from what a program asks for to a signed token, which is given again while it is good.
"""

import datetime as dt
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import attrs

from ..connection.connection import Connection
from ..connection.translate import translate
from ..errors import ModelError
from ..models.entity import Entity, schema_of
from ..protocol.codes import Fault
from ..protocol.key_range import KeyRange
from ..protocol.sas import TableSas, sign_sas
from ..stores import Signer
from .grant import Grant, check_options, check_target_table, explain_grant, spare_time
from .key_ranges import keys_between, raw_keys_between
from .policies import access_of, permission_letters

__all__ = ["GrantCache", "GrantOptions", "issue_grant"]

# The version that azure-data-tables 12.7 sends. Source: "Versioning for the Azure Storage services".
_VERSION = "2019-02-02"

_CACHED = 1_000

GrantCache = OrderedDict[tuple[TableSas, dt.timedelta | None, Signer], Grant]
"""The tokens that were issued, by what was asked for, the one that was used last at the end."""


@attrs.frozen(kw_only=True)
class GrantOptions:
    """
    What a token shall open. The arguments are those of `Database.grant`.
    """

    permissions: str | None
    expires_in: dt.timedelta | None
    start: Mapping[str, Any] | None
    end: Mapping[str, Any] | None
    policy: str | None
    ip: str | None
    protocol: str | None


async def issue_grant(db: Connection, cache: GrantCache, target: type[Entity] | str, options: GrantOptions) -> Grant:
    """
    Issue a token for rows of a table, or give the one again that was issued for the same rights.

    Args:
        db: The database.
        cache: The tokens that were issued.
        target: A model, or the name of a table.
        options: What the token shall open.

    Raises:
        AccessDenied: The rows are outside of the connection's boundary.
        ModelError: Something of the options cannot be; names it.
        TemplateError: A field does not fit its key.
        NotSupported: This database cannot sign tokens, and why.
    """
    access = access_of(db)
    schema = None if isinstance(target, str) else schema_of(target)
    table = target if isinstance(target, str) else schema_of(target).table_name()
    what = f"grant({table if schema is None else schema.name})"
    check_target_table(what, table)
    start, end = dict(options.start or {}), dict(options.end or {})
    if schema is None:
        keys = raw_keys_between(what, start, end)
    else:
        start, end = db.boundary.fill_key(schema, start), db.boundary.fill_key(schema, end)
        keys = keys_between(schema, start, end)
    db.boundary.check_range(what, schema, start, end, keys)
    letters = permission_letters(what, options.permissions)
    if options.policy is None and (letters is None or options.expires_in is None):
        missing = "permissions" if letters is None else "expires_in"
        raise ModelError(f"{what} needs {missing}, or the stored access policy that has it: policy=...")
    check_options(what, options.expires_in, policy=options.policy, ip=options.ip, protocol=options.protocol)
    try:
        signer = await access.signer()
    except Fault as fault:
        raise translate(fault, what, table) from fault
    now = dt.datetime.now(dt.UTC)
    token, expiry = _unsigned(what, table, keys, letters, options, now)
    asked = attrs.evolve(token, se=None if token.se is None else "2000-01-01"), options.expires_in, signer
    known = cache.get(asked)
    if known is not None and (known.expires_at is None or now < known.expires_at - spare_time(options.expires_in)):
        cache.move_to_end(asked)
        return known
    try:
        text = sign_sas(token, signer.account, signer.key)
    except ValueError as error:
        raise ModelError(f"{what} is refused: {error}") from None
    grant = cache[asked] = Grant(text, explain_grant(token, schema, keys, expiry))
    cache.move_to_end(asked)
    if len(cache) > _CACHED:
        cache.popitem(last=False)
    return grant


def _unsigned(
    what: str, table: str, keys: KeyRange, letters: str | None, options: GrantOptions, now: dt.datetime
) -> tuple[TableSas, dt.datetime | None]:
    """Return the token without its signature, and when it expires."""
    try:
        expiry = None if options.expires_in is None else (now + options.expires_in).replace(microsecond=0)
        token = TableSas(
            sv=_VERSION,
            tn=table,
            sp=letters,
            se=None if expiry is None else f"{expiry:%Y-%m-%dT%H:%M:%SZ}",
            si=options.policy,
            sip=options.ip,
            spr=options.protocol,
            spk=keys.start_partition,
            srk=keys.start_row,
            epk=keys.end_partition,
            erk=keys.end_row,
        )
    except (ValueError, OverflowError) as error:
        raise ModelError(f"{what} is refused: {error}") from None
    return token, expiry
