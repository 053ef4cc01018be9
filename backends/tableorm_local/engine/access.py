"""
Access records of a file: the stored access policies of its tables, and a key of its own. Programs that have the file
open, and no account's key, sign tokens with it.
"""

import secrets
from collections.abc import Callable

import msgspec

from tableorm.protocol.codes import Code, Fault
from tableorm.protocol.rights import Rights, admit
from tableorm.protocol.sas import AccessPolicy, AccountSas, TableSas
from tableorm.stores import CLOCK, Policies

from .faults import DAMAGE, damage_fault
from .stored_settings import Settings

_POLICIES = "policies"
_KEY = "signing-key"
_KEY_BYTES = 64

_decode = msgspec.json.Decoder(dict[str, dict[str, str | None] | None]).decode


class AccessRecords:
    """The policies and the key of an engine's file."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    async def policies(self, table: str) -> Policies:
        """
        Read all policies of a table.

        Raises:
            Fault: TableNotFound.
        """
        return _read(await self._settings.get(_POLICIES, table))

    async def policy(self, table: str, name: str) -> AccessPolicy | None:
        """Read a policy of a table; None if the table has none of that name, or does not exist."""
        try:
            found = await self.policies(table)
        except Fault as fault:
            if fault.code != Code.TABLE_NOT_FOUND:
                raise
            return None
        return (found[name] or AccessPolicy()) if name in found else None

    async def admit(self, token: AccountSas | TableSas, *, address: str, scheme: str) -> Rights:
        """
        Return what a verified token allows now.

        Args:
            token: The token.
            address: Where the request comes from.
            scheme: Over what it was sent, http or https.

        Raises:
            Fault: One of the Authorization...Mismatch family.
        """
        policy = None
        if isinstance(token, TableSas) and token.si is not None:
            # Read each time: a token whose policy was removed is no longer valid.
            policy = await self.policy(token.tn, token.si)
        return admit(token, policy, now=CLOCK.now(), address=address, scheme=scheme)

    async def change_policies(self, table: str, change: Callable[[Policies], Policies]) -> None:
        """
        Replace all policies of a table by what `change` makes of them. Nobody else changes them meanwhile.

        Raises:
            Fault: TableNotFound; and what `change` raises.
        """
        await self._settings.change(_POLICIES, lambda value: _write(change(_read(value))), table)

    async def keys(self) -> tuple[bytes, ...]:
        """Read the file's key, if it has one. It is read each time, as another process may have replaced it."""
        key = await self._settings.get(_KEY)
        return () if key is None else (key,)

    async def key(self) -> bytes:
        """Read the file's key, which is made at the first call. Only who can read the file can read it."""
        keys = await self.keys()
        if not keys:
            made = secrets.token_bytes(_KEY_BYTES)
            await self._settings.change(_KEY, lambda value: value or made)
            keys = await self.keys()
        return keys[0]

    async def rotate_key(self) -> bool:
        """Replace the file's key, if it has one, and return whether it had. Tokens signed with the old one end."""
        had = False

        def replace(value: bytes | None) -> bytes | None:
            nonlocal had
            had = value is not None
            return secrets.token_bytes(_KEY_BYTES) if had else None

        await self._settings.change(_KEY, replace)
        return had


def _read(value: bytes | None) -> Policies:
    if value is None:
        return {}
    try:
        return {name: None if policy is None else AccessPolicy(**policy) for name, policy in _decode(value).items()}
    except DAMAGE as error:
        raise damage_fault("The list of access policies of a table", error) from error


def _write(policies: Policies) -> bytes | None:
    return msgspec.json.encode(dict(policies)) if policies else None
