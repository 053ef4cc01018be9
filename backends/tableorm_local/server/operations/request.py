"""
The argument of every operation: an authenticated request, with the data of its account.
"""

import attrs

from tableorm.protocol.rights import Rights

from ...engine import Engine
from ..wire.calls import Call

__all__ = ["Request"]


@attrs.frozen(kw_only=True)
class Request:
    """
    An authenticated request.

    Args:
        id: The name that the server gave it, `x-ms-request-id`.
        engine: The data of the account.
        call: What the client asks for.
        rights: What the client may do.
    """

    id: str
    engine: Engine
    call: Call
    rights: Rights
