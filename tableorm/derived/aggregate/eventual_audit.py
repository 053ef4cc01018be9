"""
What an audit checks of counts and sums across partitions, beside what entities say that they add.

A subtotal is verified as a total in its own partition is, and so is a total by the rows beside it. Then each subtotal
is compared with what its total has of it.
"""

from collections.abc import Hashable

from ...audit.check import WRONG, Check, Claims, IsCandidate, Phase
from ...audit.context import AuditContext
from ...audit.report import Damage
from ...connection.races import Attempts
from ...errors import DecodeError, TableOrmError
from ...models.manifest import SubtotalEntry, share_address
from ...models.marker_rows import SHARE_KIND, SUBTOTAL_KIND
from ...models.write_tokens import new_token
from ...outbox.decision import read_decisions
from ...stores import Row, RowAddress
from .audit import aggregate_of, claim_on, verify_lone_subtotal
from .schema import AggregateSchema, CountRow, count_row_of


class _CountCheck(Check):
    """The check of the rows of counts of a table, of one kind."""

    row_phases = frozenset({Phase.AFTER})

    @property
    def identity(self) -> Hashable:
        """Equal for all counts of a table."""
        return type(self), None

    def row_claims(self, row: Row) -> Claims:
        """Claim the value, and that the row must be looked at."""
        always = (f"\n\n{row['RowKey']}", -WRONG)
        try:
            number = count_row_of(row)
        except DecodeError:
            return (always,)
        if number.kind == SUBTOTAL_KIND:
            return (always, claim_on(row["RowKey"], number.field[0], number.value))
        aggregate = aggregate_of(self.context, number)
        if aggregate is None:
            return (always,)
        name = aggregate.property_of(number.field[0])
        return (always, claim_on(number.field[1], str(name), -number.value))

    async def verify_row(self, address: RowAddress, phase: Phase, is_candidate: IsCandidate) -> None:
        """Verify a row by itself, and repair it."""
        async for _ in Attempts(self.context.db):
            row = await self.context.read(address)
            if row is None:
                return
            try:
                number = count_row_of(row)
            except DecodeError as error:
                self.record(address, Damage.FOREIGN, str(error))
                return
            aggregate = aggregate_of(self.context, number)
            if aggregate is None or await self._verify(address, number, aggregate, is_candidate):
                return
        self.context.counts.leave()

    async def _verify(
        self, address: RowAddress, number: CountRow, aggregate: AggregateSchema, is_candidate: IsCandidate
    ) -> bool:
        """Verify what a row says. Return False if another writer has written meanwhile: look again."""
        raise NotImplementedError

    async def _copy(self, aggregate: AggregateSchema, subtotal: RowAddress, holder: RowAddress) -> str | None:
        """When repairing, copy a subtotal to its total. Return why that failed, or None."""
        try:
            if self.context.repair:
                await aggregate.copy(self.context.db, holder, subtotal)
        except TableOrmError as error:
            return f"{type(error).__name__}: {error}"
        return None


class SubtotalCheck(_CountCheck):
    """The check of the subtotals of a table: each is what entities add, and its total has it."""

    row_kinds = frozenset({SUBTOTAL_KIND})

    async def _verify(
        self, address: RowAddress, number: CountRow, aggregate: AggregateSchema, is_candidate: IsCandidate
    ) -> bool:
        claimed, _ = claim_on(address.row_key, number.field[0], number.value)
        if is_candidate(claimed) and not await verify_lone_subtotal(self.context, address, number):
            return False
        context = self.context
        row = await context.read(share_address(number.of, address))
        has = CountRow(SHARE_KIND, address, ()) if row is None else count_row_of(row)
        if has.value == number.value or await self._is_under_way(address):
            return True
        # With a number that is newer in any case it is copied.
        newer = number.operation(address, number.value, max(number.number, has.number) + 1, new_token())
        if not await context.settle(address, number.row, [newer]):
            return False
        text = f"the subtotal is {number.value}, and {number.field[0]} of {number.of} has {has.value} of it"
        refused = await self._copy(aggregate, address, number.of)
        self.record(address, Damage.STALE, text, refused=refused)
        return True

    async def _is_under_way(self, address: RowAddress) -> bool:
        decisions = await read_decisions(self.context.db, address.table, address.partition_key)
        named = (e for each in decisions for work in each.works for some in work.entries.values() for e in some)
        return any(isinstance(entry, SubtotalEntry) and entry.row_key == address.row_key for entry in named)


class ShareCheck(_CountCheck):
    """The check of the rows beside totals: the subtotal that each is a copy of is there."""

    row_kinds = frozenset({SHARE_KIND})

    async def _verify(
        self, address: RowAddress, number: CountRow, aggregate: AggregateSchema, is_candidate: IsCandidate
    ) -> bool:
        context, holder = self.context, address.beside(number.field[1])
        due = SubtotalEntry.of(holder, number.field[0], 0).row_key
        if share_address(holder, number.of) != address or number.of.row_key != due:
            text = f"it says that it is of {number.of}, but it has another key: it's forged"
            self.record(address, Damage.FOREIGN, text)
            return True
        if number.value == 0 or number.of.table not in _counted_tables(context):
            return True  # of a table that this program does not know others tell
        if await context.read(number.of) is not None:
            return True
        text = f"{number.field[0]} of {holder} has {number.value} of the subtotal {number.of}, which does not exist"
        refused = None
        if context.repair:
            # With the next number it counts as newer. If entities add to it, their table's audit says so.
            empty = CountRow(SUBTOTAL_KIND, holder, number.field[:1])
            made = empty.operation(number.of, 0, number.number + 1, new_token())
            if not await context.send([made], number.of.table):
                return False
            refused = await self._copy(aggregate, number.of, holder)
        elif not await context.settle(address, number.row):
            return False
        self.record(address, Damage.ORPHAN, text, refused=refused)
        return True


def _counted_tables(context: AuditContext) -> set[str]:
    """Return the tables of the models that are counted across partitions."""
    return {
        s.table_name() for s in context.all_schemas if any(e.deferred for e in s.derived_as(AggregateSchema).values())
    }
