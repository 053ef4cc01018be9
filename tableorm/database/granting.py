"""
Grants: shared access signatures for rows of a table, and what they open.
"""

import datetime as dt
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from ..access.grant import Grant, check_target_table
from ..access.issue import GrantCache, GrantOptions, issue_grant
from ..access.policies import TablePolicies
from ..models.entity import Entity, schema_of
from .reading import Reader

__all__ = ["Granting"]


class Granting(Reader):
    """
    What of a database gives others access.
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
        options = GrantOptions(
            permissions=permissions,
            expires_in=expires_in,
            start=start,
            end=end,
            policy=policy,
            ip=ip,
            protocol=protocol,
        )
        return await issue_grant(self, self._grants, target, options)

    def policies(self, target: type[Entity] | str) -> TablePolicies:
        """
        The stored access policies of a table: `await db.policies(Employee).set("readers", "r", expires_at=...)`.

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
