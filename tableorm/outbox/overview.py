"""
What is left to do in a table: its committed decision rows, for people who look after workers.
"""

from collections.abc import AsyncGenerator, Sequence
from typing import Any, cast

import attrs
import msgspec

from ..connection.connection import Connection
from ..errors import DecodeError, NotSupported
from ..models.marker_rows import DECISION_HEAD, DECISION_KIND
from ..models.reserved import ENTITY_TYPE
from ..protocol.edm import Edm
from ..protocol.filters import Compare, Constant, Op
from ..protocol.redaction import REDACTED, without_secrets
from ..stores import Bounds, Row, RowQuery
from .bell import ring
from .decision import DECISION_ROWS, Decision, decision_of, delete_decision
from .doorbell import Begun, Doorbell


@attrs.frozen
class Pending:
    """
    A committed change with something left to do.

    Args:
        table: The table of its decision row.
        decision: What the decision row says; without work if it cannot be read.
        problem: Why it cannot be read; None if it can.
    """

    table: str
    decision: Decision
    problem: str | None = None

    def to_dict(self, *, whole: bool) -> dict[str, Any]:
        """
        Return what people are shown: with the rows that have to be made right, or without; of a workflow its next step,
        None for the first, and the arguments of that, without secrets. A workflow that has ended is left out.
        """
        decision = self.decision
        works: list[dict[str, Any]] = []
        for number, work in enumerate(decision.works):
            shown: dict[str, Any] = {"kind": work.kind, "row_key": work.row_key}
            if work.arguments is None:
                entries = {name: [each.to_json() for each in some] for name, some in work.entries.items()}
                works.append({**shown, "left": entries if whole else sorted(entries)})
            elif number not in decision.progress:
                works.append({**shown, "step": None, "arguments": _shown_text(work.arguments)})
            elif decision.progress[number][0] is not None:
                step, arguments = decision.progress[number]
                works.append({**shown, "step": step, "arguments": _without_secrets(arguments)})
        return {
            "table": self.table,
            "partition_key": decision.partition_key,
            "token": decision.token,
            "since": decision.timestamp,
            "works": works,
            "error": self.problem or decision.error,
            "tries": decision.tries,
        }


def _shown_text(text: str) -> Any:
    """Return the value of a text of JSON, or the text itself if it is none, without secrets."""
    try:
        return _without_secrets(msgspec.json.decode(text))
    except (msgspec.DecodeError, RecursionError):
        return _without_secrets(text)


def _without_secrets(value: Any, name: str = "") -> Any:
    """Return a value of JSON without what its texts say in secret, or what a name calls a secret."""
    if isinstance(value, dict):
        members = cast("dict[str, Any]", value)
        return {without_secrets(each): _without_secrets(member, each) for each, member in members.items()}
    if isinstance(value, list):
        return [_without_secrets(each, name) for each in cast("Sequence[Any]", value)]
    if not isinstance(value, str):
        return value
    head = f"{name}="
    found = without_secrets(head + value)
    return found.removeprefix(head) if found.startswith(head) else REDACTED


async def find_pending(
    db: Connection, table: str, partition_key: str | None = None, token: str | None = None
) -> AsyncGenerator[Pending]:
    """
    Find what is left to do in a table; without a PartitionKey the whole table is read.

    Raises:
        TableOrmError: The store refused it, or did not answer.
    """
    query = RowQuery(
        Bounds() if partition_key is None else Bounds.only(partition_key),
        DECISION_ROWS if token is None else Bounds.only(DECISION_HEAD + token),
        Compare(ENTITY_TYPE, Op.EQ, Constant(Edm.STRING, DECISION_KIND)),
    )
    async for row in db.read_rows(f"what is left to do in {table}", table, query, model=DECISION_KIND):
        pending = _pending_of(table, row)
        if pending.problem is not None or pending.decision.committed:
            yield pending


def _pending_of(table: str, row: Row) -> Pending:
    try:
        return Pending(table, decision_of(row))
    except (DecodeError, NotSupported) as error:
        token = row["RowKey"].removeprefix(DECISION_HEAD)
        unread = Decision(partition_key=row["PartitionKey"], token=token, etag=row.get("odata.etag"))
        return Pending(table, unread, str(error))


async def ring_again(db: Connection, pending: Pending) -> None:
    """
    Tell workers of a change again.

    Raises:
        NotSupported: Its decision row cannot be read.
        TableOrmError: The message could not be put.
    """
    decision = pending.decision
    if pending.problem is not None:
        raise NotSupported(f"workers cannot be told of a change that cannot be read: {pending.problem}")
    begun = Begun(table=pending.table, partition_key=decision.partition_key, token=decision.token)
    await ring(db, Doorbell(changes=(begun,), kinds=decision.kinds), delay_seconds=0)


async def drop_pending(db: Connection, pending: Pending) -> None:
    """Delete the decision row of a change. What it has left to do is then found by an audit alone."""
    await delete_decision(db, pending.table, pending.decision)
