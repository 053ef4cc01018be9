"""
Stored access policies: rights that are stored with a table, to which tokens refer, so that they can be revoked.
"""

import datetime as dt
from collections.abc import Callable
from typing import cast

import attrs

from ..connection.connection import Connection
from ..errors import EntityNotFound, LimitExceeded, ModelError, NotSupported, TableOrmError, shown
from ..protocol.edm import datetime_from_text, text_from_datetime
from ..protocol.sas import MAX_POLICIES, MAX_POLICY_ID, TABLE_LETTERS, AccessPolicy
from ..stores import AccessControl, Policies


@attrs.frozen
class StoredPolicy:
    """
    A stored access policy of a table.

    Args:
        name: The name by which tokens refer to it.
        permissions: The permissions that it grants, letters of `raud`; None if each token has its own.
        starts_at: When its tokens become valid; None if each token has its own time.
        expires_at: When its tokens expire; None if each token has its own time.
    """

    name: str
    permissions: str | None = None
    starts_at: dt.datetime | None = None
    expires_at: dt.datetime | None = None


class TablePolicies:
    """
    The stored access policies of a table, at most five. Made by `db.policies(Model)`.

    A token that refers to a policy is valid only as long as the policy exists, so removing the policy revokes all of
    its tokens. In the cloud this takes up to 30 seconds.
    """

    def __init__(self, db: Connection, table: str) -> None:
        self._db, self.table = db, table

    async def list(self) -> dict[str, StoredPolicy]:
        """
        Return all policies, by name.

            print(await db.policies(Employee).list())

        Raises:
            TableNotFound: There is no such table.
            NotSupported: This store does not have policies.
        """
        access = access_of(self._db)
        request = access.policies(self.table)
        found = await self._db.call(f"policies of {self.table}", self.table, request, beside="get-policies")
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
        Store a policy, replacing any policy of that name. Tokens that refer to it then have the new permissions.

            await db.policies(Employee).set(
                "readers", "r", expires_at=now + dt.timedelta(days=30)
            )

        Pass the arguments that are None here for each token instead: `grant(..., policy=name)` with `permissions` or
        `expires_in`.

        Args:
            name: 1 to 64 characters, without control characters, and without spaces at either end.
            permissions: Letters of `raud`: read, add, update, delete.
            starts_at: When its tokens become valid, as an aware datetime.
            expires_at: When its tokens expire, as an aware datetime.

        Raises:
            ModelError: An argument is rejected; the error says why.
            LimitExceeded: The table already has five other policies.
            TableNotFound: There is no such table.
            NotSupported: This store does not have policies.
        """
        what = f"policies of {self.table}: set({name!r})"
        text = isinstance(cast("object", name), str)
        if not text or not (1 <= len(name) <= MAX_POLICY_ID and name.isprintable() and name == name.strip()):
            # Other names are changed on their way to the service, or cannot stand in a token.
            raise ModelError(
                f"{what} is rejected: a name has 1 to {MAX_POLICY_ID} printable characters, and no blanks at its ends"
            )
        for each in (starts_at, expires_at):
            if not isinstance(each, dt.datetime | None):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise ModelError(f"{what} is rejected: {shown(each)} is not a datetime")
        try:
            start, expiry = (None if each is None else text_from_datetime(each) for each in (starts_at, expires_at))
        except ValueError as error:
            raise ModelError(f"{what} is rejected: {error}") from None
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
        Remove a policy, which revokes every token that refers to it.

            await db.policies(Employee).revoke("readers")

        Args:
            name: The name of the policy.
            missing_ok: Whether to accept that there is no such policy.

        Raises:
            EntityNotFound: There is no policy of that name.
            TableNotFound: There is no such table.
            NotSupported: This store does not have policies.
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
            # The store may call it in a thread, from which only faults come back, and again after a conflict.
            refused.clear()
            try:
                return change(policies)
            except TableOrmError as error:
                refused.append(error)
                return policies

        request = access.change_policies(self.table, changed)
        await self._db.call(what, self.table, request, beside="set-policies")
        if refused:
            raise refused[0]

    def __repr__(self) -> str:
        return f"<stored access policies of {self.table}>"


def _stored(name: str, policy: AccessPolicy) -> StoredPolicy:
    start, expiry = (datetime_from_text(each) if each else None for each in (policy.start, policy.expiry))
    return StoredPolicy(name, policy.permission or None, start, expiry)


def access_of(db: Connection) -> AccessControl:
    """
    Return the part of a backend that signs tokens and stores access policies.

    Raises:
        NotSupported: The backend does not have it.
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
    Return permissions in the order of the service; None if none are given.

    Args:
        what: What they are for, for messages.
        permissions: Letters of `raud`, in any order.

    Raises:
        ModelError: There are other letters, or none at all.
    """
    if permissions is None:
        return None
    text = isinstance(cast("object", permissions), str)
    if not text or not permissions or not set(permissions) <= set(TABLE_LETTERS):
        raise ModelError(
            f"{what}: permissions={permissions!r} is rejected; give letters of {TABLE_LETTERS!r}: read, add (insert), "
            "update, delete"
        )
    return "".join(each for each in TABLE_LETTERS if each in permissions)
