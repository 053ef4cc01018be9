"""
Tests with tableorm: what tests of programs use, and the contract of stores as tests, for authors of backends.

Tests of programs get most of it as fixtures of the pytest plugin, `tableorm.testing.plugin`.

The contract is subclassed in a backend's own test suite, which overrides nothing but fixtures:

    class TestMyTables(TableStoreContract):
        @pytest.fixture
        async def store(self) -> AsyncIterator[TableStore]:
            async with MyBackend(...) as backend:
                yield backend.tables

Its tests are coroutines for pytest-asyncio in its mode "auto". Tests of what a store's `capabilities` leave out are
skipped, with a reason that starts with "capability"; `pytest -rs` lists them.
"""

from pathlib import Path

try:
    import pytest
except ImportError as error:
    raise ImportError(
        f"tableorm.testing needs pytest ({error}); install it: pip install pytest pytest-asyncio"
    ) from error

# Pytest rewrites the assertions of these modules, so that they explain themselves. This must precede their import.
_CONTRACT = Path(__file__).parent / "contract"
pytest.register_assert_rewrite(*(f"{__name__}.contract.{path.stem}" for path in _CONTRACT.glob("[!_]*.py")))

from .contract.blob_appends import AppendContract  # noqa: E402
from .contract.blobs import (  # noqa: E402
    BlobContract,
    BlobDurabilityContract,
    BlobLifecycleContract,
    BlobLimitsContract,
    BlobStoreContract,
    ReopenBlobs,
)
from .contract.memory import MemoryStore  # noqa: E402
from .contract.points import ConditionalWriteContract, MergeContract, PointContract, TypesContract  # noqa: E402
from .contract.queries import FilterContract, PagingContract, QueryContract  # noqa: E402
from .contract.queues import (  # noqa: E402
    MessageContract,
    QueueDurabilityContract,
    QueueLifecycleContract,
    QueueLimitsContract,
    QueueStoreContract,
    ReopenQueues,
    Wait,
)
from .contract.tables import TableLifecycleContract, TableStoreContract  # noqa: E402
from .contract.times import ConcurrencyContract, DurabilityContract, Reopen, TimestampContract  # noqa: E402
from .contract.transactions import LimitsContract, TransactionContract  # noqa: E402
from .databases import temporary_database  # noqa: E402
from .faults import Faults, PlannedFault  # noqa: E402
from .requests import assert_requests  # noqa: E402

__all__ = [
    "AppendContract",
    "BlobContract",
    "BlobDurabilityContract",
    "BlobLifecycleContract",
    "BlobLimitsContract",
    "BlobStoreContract",
    "ConcurrencyContract",
    "ConditionalWriteContract",
    "DurabilityContract",
    "Faults",
    "FilterContract",
    "LimitsContract",
    "MemoryStore",
    "MergeContract",
    "MessageContract",
    "PagingContract",
    "PlannedFault",
    "PointContract",
    "QueryContract",
    "QueueDurabilityContract",
    "QueueLifecycleContract",
    "QueueLimitsContract",
    "QueueStoreContract",
    "Reopen",
    "ReopenBlobs",
    "ReopenQueues",
    "TableLifecycleContract",
    "TableStoreContract",
    "TimestampContract",
    "TransactionContract",
    "TypesContract",
    "Wait",
    "assert_requests",
    "temporary_database",
]
