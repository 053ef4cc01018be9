"""
The whole contract of a `TableStore`.
"""

from .points import ConditionalWriteContract, MergeContract, PointContract, TypesContract
from .queries import FilterContract, PagingContract, QueryContract
from .tables import TableLifecycleContract
from .times import ConcurrencyContract, DurabilityContract, TimestampContract
from .transactions import LimitsContract, TransactionContract

__all__ = ["TableStoreContract"]


class TableStoreContract(
    TableLifecycleContract,
    PointContract,
    ConditionalWriteContract,
    MergeContract,
    TypesContract,
    QueryContract,
    FilterContract,
    PagingContract,
    TransactionContract,
    LimitsContract,
    TimestampContract,
    DurabilityContract,
    ConcurrencyContract,
):
    """
    All parts of the contract. Override the fixture `store`, and for a durable backend `reopen`.
    """
