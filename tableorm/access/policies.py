"""
Stored access policies: what tokens of a table may refer to, kept with the table, so that they can be revoked.
"""

import datetime as dt
from collections.abc import Callable

import attrs

from ..connection.connection import Connection
from ..errors import EntityNotFound, LimitExceeded, ModelError, NotSupported, TableOrmError
from ..protocol.edm import datetime_from_text, text_from_datetime
from ..protocol.sas import MAX_POLICIES, MAX_POLICY_ID, TABLE_LETTERS, AccessPolicy
from ..stores import AccessControl, Policies

__all__ = ["StoredPolicy", "TablePolicies", "access_of", "permission_letters"]


@attrs.frozen
class StoredPolicy:
    """
    A stored access policy of a table.

    Args:
        name: What tokens call it by.
        permissions: Letters of `raud` that it gives; None if tokens say that themselves.
        starts_at: From when, likewise.
        expires_at: Until when, likewise.
    """

    name: str
    permissions: str | None = None
    starts_at: dt.datetime | None = None
    expires_at: dt.datetime | None = None


class TablePolicies:
    """
    The stored access policies of a table, five at most. Made by `db.policies(Model)`.

    A token that refers to one is good while it is there: to revoke it, and all others that refer to it, remove it. In
    the cloud that takes up to 30 seconds.
    """

    def __init__(self, db: Connection, table: str) -> None:
        self._db, self.table = db, table

    async def list(self) -> dict[str, StoredPolicy]:
        """
        All of them, by name.

        Raises:
            TableNotFound: There is no such table.
            NotSupported: This store has none.
        """
        access = access_of(self._db)
        found = await self._db.call(f"policies of {self.table}", self.table, access.policies(self.table))
        return {name: _stored(name, policy or AccessPolicy()) for name, policy in found.items()}

    async def set(
        self,
        name: str,
        permissions: str | None = None,
        *,
        starts_at: dt.datetime | None = None,
        expires_at: dt.datetime | None = None,
    ) -> StoredPolicy:
        """
        Store a policy, in place of one of that name. Tokens that refer to it have the new rights from then on.

        What is None here is for each token to say: `grant(..., policy=name)` with `permissions` or `expires_in`.

        Args:
            name: 1 to 64 characters; no control characters, no blanks around.
            permissions: Letters of `raud`: read, add, update, delete.
            starts_at: From when, aware.
            expires_at: Until when, aware.

        Raises:
            ModelError: Something of it cannot be.
            LimitExceeded: The table has five others.
            TableNotFound: There is no such table.
            NotSupported: This store has none.
        """
        what = f"policies of {self.table}: set({name!r})"
        if not (1 <= len(name) <= MAX_POLICY_ID and name.isprintable() and name == name.strip()):
            # Others are not kept as they are on their way to the service, or cannot stand in a token.
            raise ModelError(
                f"{what} is refused: a name has 1 to {MAX_POLICY_ID} characters that can be seen, or are blanks between"
            )
        try:
            start, expiry = (None if each is None else text_from_datetime(each) for each in (starts_at, expires_at))
        except ValueError as error:
            raise ModelError(f"{what} is refused: {error}") from None
        policy = AccessPolicy(start=start, expiry=expiry, permission=permission_letters(what, permissions))

        def put(policies: Policies) -> Policies:
            if name not in policies and len(policies) >= MAX_POLICIES:
                raise LimitExceeded(
                    f"{what}: a table has {MAX_POLICIES} stored access policies at most, here {', '.join(policies)}; "
                    "revoke one"
                )
            return {**policies, name: policy}

        await self._change(what, put)
        return _stored(name, policy)

    async def revoke(self, name: str, *, missing_ok: bool = False) -> None:
        """
        Remove a policy: every token that refers to it is good no more.

        Args:
            name: Its name.
            missing_ok: Say nothing if there is none.

        Raises:
            EntityNotFound: There is none of that name.
            TableNotFound: There is no such table.
            NotSupported: This store has none.
        """
        what = f"policies of {self.table}: revoke({name!r})"

        def remove(policies: Policies) -> Policies:
            if name not in policies and not missing_ok:
                others = ", ".join(map(repr, policies)) or "none"
                raise EntityNotFound(f"{what}: the table has no stored access policy of that name, there are {others}")
            return {each: policy for each, policy in policies.items() if each != name}

        await self._change(what, remove)

    async def _change(self, what: str, change: Callable[[Policies], Policies]) -> None:
        access, refused = access_of(self._db), list[TableOrmError]()

        def changed(policies: Policies) -> Policies:
            # It may run in a thread of the store, which knows faults alone, and once more after a conflict.
            refused.clear()
            try:
                return change(policies)
            except TableOrmError as error:
                refused.append(error)
                return policies

        await self._db.call(what, self.table, access.change_policies(self.table, changed))
        if refused:
            raise refused[0]

    def __repr__(self) -> str:
        return f"<stored access policies of {self.table}>"


def _stored(name: str, policy: AccessPolicy) -> StoredPolicy:
    start, expiry = (datetime_from_text(each) if each else None for each in (policy.start, policy.expiry))
    return StoredPolicy(name, policy.permission or None, start, expiry)


def access_of(db: Connection) -> AccessControl:
    """
    What the backend of a database offers to those who give others access.

    Raises:
        NotSupported: Nothing.
    """
    db.require_open()
    access: AccessControl | None = getattr(db.backend, "access", None)
    if access is None:
        raise NotSupported(
            f"the backend {type(db.backend).__name__} has neither shared access signatures nor stored access policies"
        )
    return access


def permission_letters(what: str, permissions: str | None) -> str | None:
    """
    Permissions in the order of the service; None for none.

    Raises:
        ModelError: They are none; `what` says of what.
    """
    if permissions is None:
        return None
    odd = [each for each in permissions if each not in TABLE_LETTERS]
    if odd or not permissions:
        raise ModelError(
            f"{what}: permissions={permissions!r} is refused; give letters of {TABLE_LETTERS!r}: read, add (insert), "
            "update, delete"
        )
    return "".join(each for each in TABLE_LETTERS if each in permissions)
