"""
Access to an embedded database in process: the keys that sign tokens for its tables, and the check of a token.

Tokens are the service's own. A token that is granted here is valid at a server of the same file, and the other way
round: the server also takes tokens that are signed with the file's key.
"""

import re
from collections.abc import Callable
from typing import cast

from tableorm.errors import NotSupported
from tableorm.protocol.rights import Rights, read_token
from tableorm.protocol.sas import AccountSas, TableSas
from tableorm.protocol.shared_key import DEVELOPMENT_ACCOUNT, decode_key
from tableorm.stores import Policies, Signer

from .engine import Engine

__all__ = ["DEVELOPMENT_ACCOUNT", "LocalAccess"]

# The same names as the accounts of a server.
_ACCOUNT = re.compile(r"[a-z0-9]{3,24}", re.ASCII)
# A call in process comes from this machine, and nobody can read it on the way.
_ADDRESS, _SCHEME = "127.0.0.1", "https"


class LocalAccess:
    """
    The account that an embedded database is opened as.

    Args:
        engine: The file.
        account: The name of the account that tokens are signed for.
        key: Its key, in base64; None for the file's own.
        opened_by: What opened the database, if not its owner did.

    Raises:
        NotSupported: The name or the key cannot be used. The message does not show the key.
    """

    def __init__(self, engine: Engine, account: str, key: str | None, opened_by: str | None) -> None:
        if not (isinstance(cast("object", account), str) and _ACCOUNT.fullmatch(account)):
            # The message leaves out the value, which is the key where the two were confused.
            raise NotSupported("account=... is not 3 to 24 lower case letters and digits; choose another name")
        try:
            self._key = None if key is None else decode_key(key)
        except ValueError as error:
            raise NotSupported(f"key=...: {error}") from None
        self._engine, self.account, self._opened_by = engine, account, opened_by
        # The token that was verified last, and the keys then, which may be replaced.
        self._verified: tuple[str, tuple[bytes, ...], AccountSas | TableSas] | None = None

    async def signer(self) -> Signer:
        """See `AccessControl`."""
        self._require_owner("grant")
        return Signer(self.account, self._key or await self._engine.access.key())

    async def keys(self) -> tuple[bytes, ...]:
        """Return the keys that tokens may be signed with."""
        own = () if self._key is None else (self._key,)
        return own + await self._engine.access.keys()

    async def admit(self, text: str) -> Rights:
        """
        Verify the token that opens the database, at every call, as a server does; return what it allows now.

        Raises:
            Fault: AuthenticationFailed, or one of the Authorization...Mismatch family.
        """
        keys = await self.keys()
        if self._verified is None or self._verified[:2] != (text, keys):
            self._verified = text, keys, read_token(text, self.account, keys)
        return await self._engine.access.admit(self._verified[2], address=_ADDRESS, scheme=_SCHEME)

    async def policies(self, table: str) -> Policies:
        """See `AccessControl`."""
        self._require_owner("policies")
        return await self._engine.access.policies(table)

    async def change_policies(self, table: str, change: Callable[[Policies], Policies]) -> None:
        """See `AccessControl`."""
        self._require_owner("policies")
        await self._engine.access.change_policies(table, change)

    def _require_owner(self, what: str) -> None:
        if self._opened_by is not None:
            raise NotSupported(
                f"{what}: this database was opened with {self._opened_by}, which cannot give access to others; open it "
                "without one"
            )
