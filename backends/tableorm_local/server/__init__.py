"""
The table server: the Table service's REST protocol on the embedded engine, for clients in any language.

    serving    from a file and an address to a running server
    http       connections; what is too large, too slow or too much
    dispatch   the order of checks, and which operation it is
    auth       who signed, and what that allows
    entities, tables, transactions, policies, services      the operations
    addressing, options, bodies, multipart, xml, answers    what is read from requests and written to answers
"""

from .front.limits import Limits
from .security.accounts import DEVELOPMENT_ACCOUNT, DEVELOPMENT_KEY, Account
from .serving import Server, serve

__all__ = ["DEVELOPMENT_ACCOUNT", "DEVELOPMENT_KEY", "Account", "Limits", "Server", "serve"]
