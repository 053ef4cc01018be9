"""
Granting: tokens for rows of a table, and the stored access policies that tokens refer to.
"""

import datetime as dt
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from ..access.grant import Grant, check_target_table
from ..access.issue import GrantCache, issue_grant
from ..access.policies import TablePolicies
from ..models.entity import Entity, schema_of
from .reading import Reader

__all__ = ["Granting"]


class Granting(Reader):
    """
    The part of a database that gives others access.
    """

    @cached_property
    def _grants(self) -> GrantCache:
        return GrantCache()

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
        Make a token for rows of a table: a shared access signature, as the service's own clients make it.

            token = await db.grant(Employee, "r", dt.timedelta(hours=1), start={"department": "Sales", "id": 100},
                                   end={"department": "Sales", "id": 199})

        The same token is given for the same rights until shortly before it expires. Nothing is sent.

        The token opens every row from `start` to `end`, both included, in the order of keys (PartitionKey, then
        RowKey), also rows of other kinds; `token.explain()` says what it opens and what it does not.

        Args:
            target: A model, or the name of a table.
            permissions: Letters of `raud`: read, add (insert), update, delete. An upsert needs `au`.
            expires_in: How long the token is good; a second at least.
            start: The first key, by key fields of the model: all of them, or the first ones, for all keys that begin
                with them; the default is the table's first row. With the name of a table: `PartitionKey` and `RowKey`.
            end: The last key, given as `start` is; `start=end={"department": "Sales"}` is that partition.
            policy: A stored access policy (see `policies`), which supplies permissions and time that are not given.
            ip: The address that the token may be used from, or `FIRST-LAST`.
            protocol: `"https"`, to refuse the token over HTTP.

        Raises:
            ModelError: An argument is refused, and why.
            TemplateError: A field does not fit its key.
            NotSupported: This database cannot sign tokens, and why.
        """
        return await issue_grant(
            self,
            self._grants,
            target,
            permissions,
            expires_in,
            start=start,
            end=end,
            policy=policy,
            ip=ip,
            protocol=protocol,
        )

    def policies(self, target: type[Entity] | str) -> TablePolicies:
        """
        Return the stored access policies of a table: `await db.policies(Employee).set("readers", "r", expires_at=...)`.

        Args:
            target: A model, or the name of a table.

        Raises:
            ModelError: The target is not a model, nor a name that a table can have.
            AccessDenied: In a scope, since the policies are of the whole table.
        """
        table = target if isinstance(target, str) else schema_of(target).table_name()
        self.boundary.check_whole_table(f"policies({target if isinstance(target, str) else target.__name__})")
        check_target_table("policies", table)
        return TablePolicies(self, table)
