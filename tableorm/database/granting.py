"""
Grants: shared access signatures for rows of a table, and what they open.
"""

import datetime as dt
from collections import OrderedDict
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import attrs

from ..access.grant import Grant, check_options, check_target_table, explain_grant, spare_time
from ..access.key_ranges import keys_between, raw_keys_between
from ..access.policies import TablePolicies, access_of, permission_letters
from ..connection.translate import translate
from ..errors import ModelError
from ..models.entity import Entity, schema_of
from ..models.schema import Schema
from ..protocol.codes import Fault
from ..protocol.key_range import KeyRange
from ..protocol.sas import TableSas, sign_sas
from ..stores import Signer
from .reading import Reader

__all__ = ["Granting"]

# What azure-data-tables 12.7 makes. Source: "Versioning for the Azure Storage services".
_VERSION = "2019-02-02"

_CACHED = 1_000


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
        check_target_table(what, table)
        keys = self._keys_between(what, schema, start, end)
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
        known = self._grants.get(asked)
        if known is not None and (known.expires_at is None or now < known.expires_at - spare_time(expires_in)):
            self._grants.move_to_end(asked)
            return known
        try:
            text = sign_sas(token, signer.account, signer.key)
        except ValueError as error:
            raise ModelError(f"{what} is refused: {error}") from None
        grant = self._grants[asked] = Grant(text, explain_grant(token, schema, keys, expiry))
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
        check_target_table("policies", table)
        return TablePolicies(self, table)
