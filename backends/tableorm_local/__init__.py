"""
The embedded backend of tableorm: `connect("local:./hr.tables")` and `connect("local::memory:")`. With
`serve`, clients in any language use the same data.
"""

from typing import TYPE_CHECKING

from .backend import LocalBackend
from .backup import back_up

if TYPE_CHECKING:
    from .server import Account, Limits, Server, serve

__all__ = ["Account", "Limits", "LocalBackend", "Server", "back_up", "serve"]

_SERVER_NAMES = frozenset({"Account", "Limits", "Server", "serve"})


def __getattr__(name: str) -> object:
    # A program that only opens a database does not wait for the import of an HTTP server.
    if name in _SERVER_NAMES:
        from . import server  # noqa: PLC0415

        return getattr(server, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
