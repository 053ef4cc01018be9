"""
Faults that many requests get, in the service's words.
"""

from tableorm.protocol.codes import Code, Fault

__all__ = ["internal_error", "invalid_input", "invalid_parameter"]


def invalid_input(why: str, index: int | None = None, *, name: str | None = None) -> Fault:
    """Return the fault for input that is not valid, perhaps of operation `index` or of the property `name`."""
    return Fault(Code.INVALID_INPUT, f"One of the request inputs is not valid: {why}", index, name)


def invalid_parameter(why: str) -> Fault:
    """Return the fault for a parameter of the query that is not valid."""
    return Fault(
        Code.INVALID_QUERY_PARAMETER,
        f"Value for one of the query parameters specified in the request URI is invalid: {why}.",
    )


def internal_error() -> Fault:
    """Return the fault for an error of the server itself."""
    return Fault(Code.INTERNAL_ERROR, "Server encountered an internal error. Please try again after some time.")
