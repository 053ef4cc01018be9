"""
The contract of backends, and what every backend shares.
"""

from .address import RowAddress, row_keys, unstamped
from .backend import Backend
from .blobs import BlobInfo, BlobPage, BlobStore, BlobStream
from .capabilities import Capabilities
from .checks import (
    CONDITIONAL,
    MERGES,
    access_of,
    check_if_match,
    check_page_limit,
    check_transaction,
    check_transaction_size,
    clean_row,
    encode_row,
    project,
    with_index,
)
from .clock import CLOCK, Clock, utc_now
from .guarded import (
    AccessControl,
    GuardedStore,
    Policies,
    Signer,
    Supplier,
    Tokens,
    narrowed,
    rights_of,
)
from .layers import LISTS_OF_PLACES, LayerBeside, StoreLayer, StoreRequest
from .prefixed import PrefixedBackend
from .queues import Message, MessageId, QueueStore
from .retry import RetryBudget, RetryPolicy, pause_after, single_try
from .tables import METHODS, Bounds, Operation, Row, RowPage, RowQuery, TableStore, Verb
from .traffic import CURRENT, Traffic, Transfer, note_bytes, note_repetition

__all__ = [
    "CLOCK",
    "CONDITIONAL",
    "CURRENT",
    "LISTS_OF_PLACES",
    "MERGES",
    "METHODS",
    "AccessControl",
    "Backend",
    "BlobInfo",
    "BlobPage",
    "BlobStore",
    "BlobStream",
    "Bounds",
    "Capabilities",
    "Clock",
    "GuardedStore",
    "LayerBeside",
    "Message",
    "MessageId",
    "Operation",
    "Policies",
    "PrefixedBackend",
    "QueueStore",
    "RetryBudget",
    "RetryPolicy",
    "Row",
    "RowAddress",
    "RowPage",
    "RowQuery",
    "Signer",
    "StoreLayer",
    "StoreRequest",
    "Supplier",
    "TableStore",
    "Tokens",
    "Traffic",
    "Transfer",
    "Verb",
    "access_of",
    "check_if_match",
    "check_page_limit",
    "check_transaction",
    "check_transaction_size",
    "clean_row",
    "encode_row",
    "narrowed",
    "note_bytes",
    "note_repetition",
    "pause_after",
    "project",
    "rights_of",
    "row_keys",
    "single_try",
    "unstamped",
    "utc_now",
    "with_index",
]
