"""
The table server: the Table service's REST protocol on the embedded engine, for clients in any language.

    serving      makes a server of a file and an address, starts it and stops it
    front        HTTP, limits, the access log and metrics
    dispatch     the order of checks, and the operation that answers a request
    operations   one function for each operation, from a request to its answer
    security     accounts, signatures and CORS
    wire         what is read from requests and written to answers
"""

from .front.limits import Limits
from .security.accounts import DEVELOPMENT_ACCOUNT, DEVELOPMENT_KEY, Account
from .serving import Server, serve

__all__ = ["DEVELOPMENT_ACCOUNT", "DEVELOPMENT_KEY", "Account", "Limits", "Server", "serve"]
