"""
The embedded backend of tableorm: `connect("local:./hr.tables")` and `connect("local::memory:")`; and
`serve`, which lets clients in any language use the same data.
"""

from typing import TYPE_CHECKING

from .backend import LocalBackend

if TYPE_CHECKING:
    from .server import Account, Limits, Server, serve

__all__ = ["Account", "Limits", "LocalBackend", "Server", "serve"]

_OF_SERVER = frozenset({"Account", "Limits", "Server", "serve"})


def __getattr__(name: str) -> object:
    # Whoever only opens a database does not wait for the import of an HTTP server.
    if name in _OF_SERVER:
        from . import server  # noqa: PLC0415

        return getattr(server, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
