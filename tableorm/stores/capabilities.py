"""
What a store can do, and what it leaves to its caller.
"""

import attrs

__all__ = ["Capabilities"]


@attrs.frozen
class Capabilities:
    """
    What a backend can do beyond the contract's core; `tableorm.testing` skips, and reports, what it cannot.

    Args:
        durable: Data outlives the process, and an acknowledged write survives its death.
        ordered: Rows come back sorted by PartitionKey, then RowKey.
        exact_limits: Every limit of the service on what is sent is enforced with the service's code.
        retries: The store itself repeats reads, and writes that surely had no effect, after transient faults, as SDKs
            do. Then the mapper repeats only writes whose outcome is in doubt.
        faithful: It keeps every other rule of the service too: an emulator compares values of two types in its own way,
            takes table names by letter case, has no negative zero, lets a merge bring a row beyond its limits, takes
            a backslash for a slash in the names of blobs, and puts what is not there under `if_match="*"`.
    """

    durable: bool = True
    ordered: bool = True
    exact_limits: bool = True
    retries: bool = False
    faithful: bool = True
