"""
A hint for who finds nothing in a partition, since its rows have no kind: those that other programs have written.
"""

from weakref import WeakSet

from ..connection.logger import make_logger
from ..models.kinds import KindSet
from ..models.reserved import ENTITY_TYPE
from ..protocol.codes import Fault
from ..stores import RowPage, RowQuery
from .execution import QueryExecution
from .explain import WITHOUT_KIND
from .planning.plan import Range

_LOG = make_logger("tableorm.queries")
_FEW = 10
_looked = WeakSet[KindSet]()


async def hint_at_rows_without_kind(run: QueryExecution, request: Range) -> None:
    """
    Log a warning if a query that has found nothing in a partition would find rows without the condition on kinds. A
    database that was opened with `echo` or `slow` looks once for each model, and only after a query that has no other
    condition on properties.
    """
    target, query = run.plan.target, request.query
    kinds = target.kinds
    if kinds.filter is None or not query.partition.point or query.where != kinds.filter or kinds in _looked:
        return
    if len(run.plan.requests) > 1 or any(schema.primary is not None for schema in kinds.schemas):
        return
    _looked.add(kinds)
    store, _ = run.db.sending("query", run.name, work=run.work)
    look = RowQuery(query.partition, query.row, select=("PartitionKey", "RowKey", ENTITY_TYPE))
    try:
        page = await store.query(target.table, look, _FEW)
    except Fault:
        page = RowPage([], None)
    row = next((row for row in page.rows if row.get(ENTITY_TYPE) is None), None)
    if row is not None:
        keys = row["PartitionKey"], row["RowKey"]
        shown = run.name, target.table, keys, WITHOUT_KIND
        _LOG.warning("query of %s found nothing in a partition of table %s, whose row %s has no kind: %s", *shown)
