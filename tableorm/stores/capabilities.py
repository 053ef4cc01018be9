"""
What a store can do, and what it leaves to its caller.
"""

import attrs


@attrs.frozen(kw_only=True)
class Capabilities:
    """
    What a backend can do beyond the contract's core. `tableorm.testing` skips the tests of what it cannot do, and says
    so.

    Args:
        durable: Data outlives the process, and an acknowledged write survives its death.
        ordered: Rows come back sorted by PartitionKey, then RowKey.
        exact_limits: Every limit of the service on what is sent is enforced with the service's code.
        retries: The store itself repeats reads, and writes that surely had no effect, after transient faults, as SDKs
            do. Then the mapper repeats only writes whose outcome is in doubt.
        faithful: The store keeps every other rule of the service too. An emulator is not faithful: it compares values
            of two types in its own way, distinguishes table names by letter case, has no negative zero, lets a merge
            bring a row beyond its limits, takes a backslash for a slash in the names of blobs, and with `if_match="*"`
            puts a blob that does not exist yet.
    """

    durable: bool = True
    ordered: bool = True
    exact_limits: bool = True
    retries: bool = False
    faithful: bool = True
