"""
Access for others to an account's tables: the key that signs tokens, and the stored access policies of tables.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Any

import attrs
from azure.core.credentials import AzureNamedKeyCredential, AzureSasCredential
from azure.data.tables import TableAccessPolicy
from azure.data.tables.aio import TableServiceClient

from tableorm.errors import NotSupported
from tableorm.protocol.codes import Code, Fault
from tableorm.protocol.edm import text_from_datetime
from tableorm.protocol.limits import check_table_name
from tableorm.protocol.sas import AccessPolicy
from tableorm.protocol.shared_key import decode_key
from tableorm.stores import Policies, Signer

from .endpoints import Account
from .faults import translated
from .options import Credential


class AzureAccess:
    """
    Tokens and policies of an account.

    Args:
        service: The SDK's client of the tables; None while the backend is not open.
        credential: The credential that opens the account.
        account: The account of the tables.
    """

    def __init__(self, service: TableServiceClient | None, credential: Credential, account: Account) -> None:
        self._service: Any = service  # its own types are incomplete
        self._credential = credential
        self._cosmos, self._emulated = account.cosmos, account.emulated

    async def signer(self) -> Signer:
        """See `AccessControl`."""
        self._require_storage("grant", "shared access signatures of this kind")
        credential = self._credential
        if isinstance(credential, AzureNamedKeyCredential):
            account, key = credential.named_key
            return Signer(account, decode_key(key))
        how = "a shared access signature" if isinstance(credential, AzureSasCredential) else "a token credential"
        raise NotSupported(
            f"grant: a token is signed with a key of the account, and this database was opened with {how}; open it "
            "with key=..., or have a program that has the key grant tokens"
        )

    async def policies(self, table: str) -> Policies:
        """See `AccessControl`."""
        client = self._client(table)
        with translated(write=False):
            found: dict[str, TableAccessPolicy | None] = await client.get_table_access_policy()
        return {name: None if policy is None else _from_sdk(policy) for name, policy in found.items()}

    async def change_policies(self, table: str, change: Callable[[Policies], Policies]) -> None:
        """See `AccessControl`. The service has no condition for it: of two changes at once one may be lost."""
        found = await self.policies(table)
        wanted = change(found)
        if wanted == found:
            return
        policies = {name: None if policy is None else _to_sdk(policy) for name, policy in wanted.items()}
        client = self._client(table)
        try:
            with translated(write=True):
                await client.set_table_access_policy(policies)
        except Fault as fault:
            lacking = [name for name, each in wanted.items() if each is None or None in attrs.astuple(each)]
            if self._emulated and fault.code == Code.INVALID_INPUT and lacking:
                message = f"{fault.message} Azurite takes a policy only with a start, an expiry and permissions; "
                raise Fault(fault.code, f"{message}these lack one: {', '.join(lacking)}.") from fault
            raise

    def _client(self, table: str) -> Any:
        self._require_storage("policies", "stored access policies")
        check_table_name(table)
        if self._service is None:
            raise NotSupported("the backend is not open, or has no tables; open it, and give the URL of the tables")
        return self._service.get_table_client(table)

    def _require_storage(self, what: str, lacking: str) -> None:
        if self._cosmos:
            raise NotSupported(
                f"{what}: Cosmos DB has no {lacking} for tables; give others access by Microsoft Entra ID and its roles"
            )


def _from_sdk(policy: TableAccessPolicy) -> AccessPolicy:
    return AccessPolicy(
        start=_format_time(policy.start), expiry=_format_time(policy.expiry), permission=policy.permission or None
    )


def _format_time(moment: datetime | str | None) -> str | None:
    return text_from_datetime(moment) if isinstance(moment, datetime) else moment or None


def _to_sdk(policy: AccessPolicy) -> TableAccessPolicy:
    return TableAccessPolicy(start=policy.start, expiry=policy.expiry, permission=policy.permission)
