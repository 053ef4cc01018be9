"""
The argument of every operation: an authenticated request, with the data of its account.
"""

import attrs

from tableorm.protocol.rights import Rights

from ...engine import Engine
from ..wire.calls import Call


@attrs.frozen(kw_only=True)
class Request(Call):
    """
    A call of an authenticated client.

    Args:
        id: The name that the server gave it, `x-ms-request-id`.
        engine: The data of the account.
        rights: What the client may do.
    """

    id: str
    engine: Engine
    rights: Rights
