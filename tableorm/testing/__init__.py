"""
The contract of stores as tests. Subclass it in a backend's own test suite, and override nothing but fixtures.

    class TestMyTables(TableStoreContract):
        @pytest.fixture
        async def store(self) -> AsyncIterator[TableStore]:
            async with MyBackend(...) as backend:
                yield backend.tables

The tests are coroutines for pytest-asyncio in its mode "auto". Tests of what a store's `capabilities` leave out are
skipped, with a reason that starts with "capability"; `pytest -rs` lists them.
"""

from pathlib import Path

try:
    import pytest
    import pytest_asyncio as pytest_asyncio
except ImportError as error:
    raise ImportError(
        f"tableorm.testing needs pytest and pytest-asyncio ({error}); install them: pip install pytest pytest-asyncio"
    ) from error

# Pytest rewrites the assertions of these modules, so that they explain themselves. This must precede their import.
pytest.register_assert_rewrite(*(f"{__name__}.{path.stem}" for path in Path(__file__).parent.glob("[!_]*.py")))

from .blob_appends import AppendContract  # noqa: E402
from .blobs import (  # noqa: E402
    BlobContract,
    BlobDurabilityContract,
    BlobLifecycleContract,
    BlobLimitsContract,
    BlobStoreContract,
    ReopenBlobs,
)
from .memory import MemoryStore  # noqa: E402
from .points import ConditionalWriteContract, MergeContract, PointContract, TypesContract  # noqa: E402
from .queries import FilterContract, PagingContract, QueryContract  # noqa: E402
from .queues import (  # noqa: E402
    MessageContract,
    QueueDurabilityContract,
    QueueLifecycleContract,
    QueueLimitsContract,
    QueueStoreContract,
    ReopenQueues,
)
from .tables import TableLifecycleContract, TableStoreContract  # noqa: E402
from .times import ConcurrencyContract, DurabilityContract, Reopen, TimestampContract  # noqa: E402
from .transactions import LimitsContract, TransactionContract  # noqa: E402

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
    "FilterContract",
    "LimitsContract",
    "MemoryStore",
    "MergeContract",
    "MessageContract",
    "PagingContract",
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
]
