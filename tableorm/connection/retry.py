"""
Repetitions of reads, around a store that does not repeat them itself.

Writes are repeated in `tableorm.writes.stages.lost_replies`, because after a
lost reply somebody has to find out what happened.
"""

from collections.abc import Callable
from typing import Any

from ..protocol.codes import Code, Fault
from ..stores import RetryBudget, RetryPolicy, StoreLayer, StoreRequest, TableStore

_DONE = {"create_table": Code.TABLE_EXISTS, "delete_table": Code.RESOURCE_NOT_FOUND}
"""What says that a change of tables was done before."""


class RetryingStore(StoreLayer):
    """
    Repeats reads, and changes of tables, after transient faults. Writes of rows are sent once: whoever sends one finds
    out what a lost reply left.

    Args:
        store: The store itself.
        policy: How often.
        failed: Called after every fault.
        repeated: Called before every repetition.
    """

    def __init__(
        self,
        store: TableStore,
        policy: RetryPolicy,
        failed: Callable[[Fault], None],
        repeated: Callable[[], None],
    ) -> None:
        super().__init__(store)
        self._policy, self._failed, self._repeated = policy, failed, repeated

    async def send(self, request: StoreRequest) -> Any:
        """See `StoreLayer`. A table counts as created or deleted if an earlier request without a reply may have."""
        if request.method in ("write", "transact"):
            return await request.sent_to(self.below)
        budget, done, doubt = RetryBudget(self._policy), _DONE.get(request.method), False
        while True:
            try:
                return await request.sent_to(self.below)
            except Fault as fault:
                if doubt and fault.code == done:
                    return None
                doubt = doubt or fault.doubt
                self._failed(fault)
                if not fault.transient or not await budget.another(fault):
                    raise
            self._repeated()
