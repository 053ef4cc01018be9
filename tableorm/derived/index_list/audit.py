"""
What an audit checks of an index list: that each entity is in its list, once, and that a list has nothing else.

Each key in a row of a list claims what its entity claims, so that one wrong key in a list of very many makes only that
one a candidate. A row that was divided claims its two halves, so that neither of them is where no reader would look.
"""

from collections.abc import Iterable, Mapping

from ...audit.check import WRONG, Check, IsCandidate, Phase
from ...audit.context import AuditContext, EntitySnapshot, Problem, kind_of
from ...audit.report import Damage
from ...errors import shown
from ...models.reserved import ENTITY_TYPE
from ...stores import Row
from .repair import claim_address, is_row_key, list_key_of, read_keys, split_address, verify_keys, verify_shape
from .rows import SEPARATOR, bits_of, is_divided
from .schema import ListSchema

__all__ = ["ListCheck"]


class ListCheck(Check):
    """
    The check of an index list.

    Args:
        context: The rows of the table.
        index: The index list of one model.
    """

    row_phases = frozenset({Phase.BEFORE, Phase.AFTER})

    def __init__(self, context: AuditContext, index: ListSchema) -> None:
        super().__init__(context, index.schema, index.name)
        self._index = index

    def owns(self, kind: str) -> bool:
        """Return whether it is the kind of the list's rows."""
        return kind == self._index.kind

    def claims(self, snapshot: EntitySnapshot) -> Iterable[tuple[str, int]]:
        """Claim the entity's key in its list; WRONG where the manifest names another list, or none."""
        row_key, due = snapshot.row["RowKey"], snapshot.expected.get(self.name)
        if snapshot.manifest.get(self.name) != due:
            yield row_key, WRONG
        key = list_key_of(due)
        if key is not None:
            address = claim_address(key, row_key)
            yield address, hash((self._index.kind, address))

    def row_claims(self, row: Row) -> Iterable[tuple[str, int]]:
        """Claim the keys of a row, its halves if it was divided, and that it is a half of another row; or WRONG."""
        if not is_row_key(self._index, row["RowKey"]):
            yield row["RowKey"], WRONG
            return
        (list_key, bits), number = split_address(row), hash(row[ENTITY_TYPE])
        divided, keys = is_divided(row), read_keys(row)
        if keys is None or (divided and keys):
            yield row["RowKey"], WRONG
        for key in keys or ():
            right = not divided and bits_of(key, len(bits)) == bits
            address = claim_address(list_key, key)
            yield address, hash((row[ENTITY_TYPE], address)) + (0 if right else WRONG)
        if divided:
            yield row["RowKey"], -2 * number
        if bits:
            yield row["RowKey"][:-1], number

    def addresses(self, snapshot: EntitySnapshot, found: Mapping[str, Row | None]) -> set[str]:
        """Return the rows from the first of a list to the one where the key belongs: of its list, and the one noted."""
        wanted: set[str] = set()
        for entries in (snapshot.expected, snapshot.manifest):
            key = list_key_of(entries.get(self.name))
            if key is not None:
                wanted |= _path_to_key(key, snapshot.row["RowKey"], found)
        return wanted

    def compare(self, snapshot: EntitySnapshot, found: Mapping[str, Row | None]) -> Iterable[Problem]:
        """Compare the entity with its list; a row that is damaged is verified by itself."""
        problem = self._compare(snapshot, found)
        return () if problem is None else (problem,)

    def _compare(self, snapshot: EntitySnapshot, found: Mapping[str, Row | None]) -> Problem | None:
        name, row_key = self.name, snapshot.row["RowKey"]
        noted, due = snapshot.manifest.get(name), snapshot.expected.get(name)
        key, noted_key = list_key_of(due), list_key_of(noted)
        address = None if key is None else _last_address(key, row_key, found)
        row = None if address is None else found.get(address)
        if row is not None and row.get(ENTITY_TYPE) != self._index.kind:
            text = f"a row of kind {kind_of(row)!r} is at {address!r}, where the list belongs"
            return Problem(Damage.BLOCKED, name, address, text, rebuilt=False)
        keys: set[str] | None = set() if row is None else read_keys(row)
        if key is not None and keys is not None and row_key not in keys:
            return Problem(Damage.MISSING, name, address, f"it is not in the list {key!r}")
        if noted == due:
            return None
        if noted_key is not None and noted_key != key and _is_listed(noted_key, row_key, found):
            text = f"it is still in the list {noted_key!r}, and belongs into another, or into none"
            return Problem(Damage.ORPHAN, name, _last_address(noted_key, row_key, found), text)
        named = "does not say so" if noted is None else f"says {shown(noted.to_json())}"
        where = "belongs into no list" if key is None else f"is in the list {key!r}"
        return Problem(Damage.MANIFEST, name, address, f"it {where}, and its manifest {named}")

    async def verify_row(self, partition_key: str, row_key: str, phase: Phase, is_candidate: IsCandidate) -> None:
        """Verify first whether a row can be read and is found; later whether it has keys that do not belong there."""
        if phase is Phase.BEFORE:
            await verify_shape(self.context, self._index, partition_key, row_key)
        else:
            await verify_keys(self.context, self._index, partition_key, row_key, is_candidate)


def _path_to_key(list_key: str, row_key: str, found: Mapping[str, Row | None]) -> set[str]:
    """Return the RowKeys of the rows on the way to where a key belongs, as far as the rows are known."""
    last = _last_address(list_key, row_key, found)
    first = len(list_key) + len(SEPARATOR)
    return {last[:end] for end in range(first, len(last) + 1)}


def _last_address(list_key: str, row_key: str, found: Mapping[str, Row | None]) -> str:
    """Return the RowKey of the last row on the way to where a key belongs, as far as the rows are known."""
    address = list_key + SEPARATOR
    bits = bits_of(row_key, 256)
    while is_divided(found.get(address)) and bits:
        address, bits = address + bits[0], bits[1:]
    return address


def _is_listed(list_key: str, row_key: str, found: Mapping[str, Row | None]) -> bool:
    row = found.get(_last_address(list_key, row_key, found))
    return row is not None and row_key in (read_keys(row) or ())
