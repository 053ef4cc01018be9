"""
Issuing grants: from what a program asks for to a signed token, which is given again while it is good.
"""

import datetime as dt
from collections.abc import Mapping
from typing import Any

import attrs

from ..connection.connection import Connection
from ..connection.translate import translate
from ..errors import ModelError
from ..models.entity import Entity, schema_of
from ..protocol.codes import Fault
from ..protocol.sas import TableSas, sign_sas
from ..stores import Signer
from .grant import Grant, check_options, check_target_table, explain_grant, spare_time
from .key_ranges import keys_between, raw_keys_between
from .policies import access_of, permission_letters

__all__ = ["GrantCache", "issue_grant"]

# The version that azure-data-tables 12.7 sends. Source: "Versioning for the Azure Storage services".
_VERSION = "2019-02-02"

_MAX_CACHED = 1_000

GrantCache = dict[tuple[TableSas, dt.timedelta | None, Signer], Grant]
"""The tokens that were issued, by what was asked for."""


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
    table = target if isinstance(target, str) else schema_of(target).table_name()
    what = f"grant({table if schema is None else schema.name})"
    check_target_table(what, table)
    first, last = dict(start or {}), dict(end or {})
    if schema is None:
        keys = raw_keys_between(what, first, last)
    else:
        first, last = db.boundary.fill_key(schema, first), db.boundary.fill_key(schema, last)
        keys = keys_between(schema, first, last)
    db.boundary.check_range(what, schema, first, last, keys)
    letters = permission_letters(what, permissions)
    if policy is None and (letters is None or expires_in is None):
        missing = "permissions" if letters is None else "expires_in"
        raise ModelError(f"{what} needs {missing}, or the stored access policy that has it: policy=...")
    check_options(what, expires_in, policy=policy, ip=ip, protocol=protocol)
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
    known = cache.get(asked)
    if known is not None and (known.expires_at is None or now < known.expires_at - spare_time(expires_in)):
        return known
    try:
        text = sign_sas(token, signer.account, signer.key)
    except ValueError as error:
        raise ModelError(f"{what} is refused: {error}") from None
    if len(cache) >= _MAX_CACHED:
        cache.clear()
    grant = cache[asked] = Grant(text, explain_grant(token, schema, keys, expiry))
    return grant
