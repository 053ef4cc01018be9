"""
Reservations: rows by which a value is unique across partitions.

A reservation tells which entity claims a value, and the token of the change that claims it; the manifest of the entity
has the same token. It is made before the change commits. Whoever wants a value that is reserved, and finds that the
owner does not hold it, makes the decision row of the other claim void, so that it can never commit, looks again, and
only then takes the reservation over. A reservation is given up by its token, never by its owner, who may have claimed
the value anew meanwhile.

A transaction can hand a value over from one entity to another one of its partition. It keeps the reservation until it
has committed, and then the reservation gets the new owner and token. Until that is done, the decision row of the
transaction tells who else may hold the value. A value is handed on only under the token that its reservation has, so
that there is never more than one such step to look for.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

import msgspec

from ..connection.connection import Connection
from ..connection.races import Attempts
from ..connection.rows import delete_as_read, read_row, write_as_read
from ..models.kinds import entry_name_of
from ..models.manifest import PlacedEntry, ReservedEntry, manifest_of
from ..models.reserved import COPIED_VERSION, COPY_OF, ENTITY_TYPE
from ..models.schema import Schema
from ..stores import Operation, Row, RowAddress, Verb, unstamped
from .decision import is_token, read_decisions, settle_decision
from .doorbell import Begun


class Held(NamedTuple):
    """
    Says that a value is not free.

    Args:
        stored: The row that reserves it, or is where that belongs.
        holder: The entity that holds it; None if the row is no reservation of the model, or may not be looked into.
    """

    stored: Row
    holder: RowAddress | None


async def reserve(
    db: Connection,
    entry: ReservedEntry,
    row: Row,
    *,
    schema: Schema,
    given_up: Collection[str],
    givers: Collection[str],
    label: str,
) -> Held | None:
    """
    Reserve a value, before the change commits that claims it, unless that change hands the value over.

    Args:
        db: Where the rows are.
        entry: The claim.
        row: The reservation.
        schema: The model of the entity.
        given_up: The tokens under which entities hold the value that give it up by the same change.
        givers: RowKeys of the entities of the same change that may give it up; others do not, whatever is said of them.
        label: The index, for messages and counters.

    Returns:
        None if the change may claim the value; otherwise why it may not.

    Raises:
        LostRace: Others have written the reservation again and again.
        TableOrmError: The store refused it, or did not answer; or a manifest or decision row cannot be read.
    """
    inserts = not given_up
    async for _ in _attempts(db, entry):
        if inserts and await _write(db, entry, Operation(Verb.INSERT, row), label):
            return None
        stored = await _read(db, entry, label)
        if stored is None:
            inserts = True
            continue
        found = owner_and_token(stored)
        if (
            found is None
            or found[0].table.lower() != schema.table_name().lower()
            or entry_name_of(stored) != entry_name_of(row)
        ):
            return Held(stored, None)
        owner, token = found
        if token == entry.token or (token in given_up and owner.row_key in givers):
            return None  # the reply to an earlier attempt was lost; or the reservation is handed over
        if not db.boundary.holds_row(schema, owner):
            return Held(stored, None)
        holder = await find_holder(db, entry.place, [owner]) or await find_last_holder(db, entry.place, owner, token)
        if holder is None:
            if await _write(db, entry, Operation(Verb.REPLACE, row, stored["odata.etag"]), label):
                return None
        elif holder[1].token not in given_up or holder[0].row_key not in givers:
            return Held(stored, holder[0])
        else:  # the reservation still has the claim before that of the holder
            await _write(db, entry, _replacement(stored, holder[0], holder[1].token), label)
    raise AssertionError


async def find_holder(
    db: Connection, value: PlacedEntry, owners: Iterable[RowAddress]
) -> tuple[RowAddress, ReservedEntry] | None:
    """
    Return who holds a value, and by which claim; None if nobody does.

    Args:
        db: Where the rows are.
        value: Where the reservation of the value is.
        owners: Who may hold it.

    Raises:
        DecodeError: The manifest of an owner is damaged.
    """
    for owner in owners:
        row = await read_row(db, owner)
        for held in manifest_of(row).values():
            if isinstance(held, ReservedEntry) and held.place == value:
                return owner, held
    return None


async def find_last_holder(
    db: Connection, value: PlacedEntry, owner: RowAddress, token: str
) -> tuple[RowAddress, ReservedEntry] | None:
    """
    Return who holds a value after its claim was made void if it had not committed: if nobody does, then nobody will
    before the reservation is written, which was read before.

    Args:
        db: Where the rows are.
        value: Where the reservation of the value is.
        owner: The entity that the reservation names.
        token: The token that it has.

    Raises:
        NotSupported: A newer program has written a decision row of the partition.
        DecodeError: A decision row of the partition, or a manifest, is damaged.
        TableOrmError: The store refused it, or did not answer.
    """
    await settle_decision(db, owner.table, owner.partition_key, token)
    found = await find_holder(db, value, [owner])
    if found is not None:
        return found
    decisions = await read_decisions(db, owner.table, owner.partition_key)
    heirs = [
        owner.beside(work.row_key)
        for decision in decisions
        for work in decision.works
        for entries in work.entries.values()
        if any(isinstance(each, ReservedEntry) and each.place == value for each in entries)
    ]
    return await find_holder(db, value, dict.fromkeys(heirs))


async def release(db: Connection, owner: RowAddress, entry: ReservedEntry, label: str) -> None:
    """
    Delete the reservation of a claim that was given up, or never committed. Raises TableOrmError.

    Args:
        db: Where the rows are.
        owner: The entity that has claimed the value.
        entry: The claim.
        label: The index, for messages and counters.
    """
    await _vacate(db, entry.place, owner, entry.token, label, over=True)


async def settle_reservations(
    db: Connection,
    source: RowAddress,
    kind: str,
    name: str,
    entries: Sequence[ReservedEntry],
    token: str,
    *,
    label: str,
    own: bool,
) -> None:
    """
    Do what a change has left to do with reservations: those of values that the entity gave up are deleted, those of
    values that it got from another one, or claimed anew, get its claim. It may be done twice, and at the same time.

    Whoever may insert a decision row can name any claim in it, also one whose change has not committed yet. So what a
    decision row says was given up is made void first.

    Args:
        db: Where the rows are.
        source: The entity.
        kind: Its kind with its version, as stored.
        name: Name of the index.
        entries: What the change gave up, and what it claimed.
        token: The token of the change.
        label: The index, for messages and counters.
        own: Whether this program has just committed the change, and need not believe its decision row.

    Raises:
        TableOrmError: The store refused it, or did not answer; or a row cannot be read.
    """
    claim = next((each for each in entries if each.token == token), None)
    for each in entries:
        if each == claim or not is_token(each.token):
            continue  # no reservation has such a token
        if not own:
            await settle_decision(db, source.table, source.partition_key, each.token)
        if claim is not None and each.place == claim.place:
            head, colon, version = kind.partition(":")
            await _hand_over(db, source, f"{head}#{name}{colon}{version}", each, claim, label)
        elif own or not await _has_entry(db, source, each.place):
            await release(db, source, each, label)


async def _hand_over(
    db: Connection, source: RowAddress, kind: str, old: ReservedEntry, claim: ReservedEntry, label: str
) -> None:
    """Give the reservation of a claim that was given up to the one that took its place; delete it if that is over."""
    async for _ in _attempts(db, claim):
        stored = await _read(db, claim, label)
        found = owner_and_token(stored)
        if stored is None or found is None or found[1] != old.token:
            return
        owner = found[0]
        if (owner.table.lower(), owner.partition_key) != (source.table.lower(), source.partition_key):
            return  # what the manifest said was not so
        holds = await find_holder(db, claim.place, [source]) == (source, claim)
        if (owner.row_key != source.row_key or not holds) and await _has_entry(db, owner, claim.place):
            return  # the claim that was given up is made up: it is that of an entity which has the value still
        stored[ENTITY_TYPE] = kind
        operation = _replacement(stored, source, claim.token) if holds else delete_as_read(stored)
        if not await _write(db, claim, operation, label):
            continue
        if holds and await find_holder(db, claim.place, [source]) is None:
            await _vacate(db, claim.place, source, claim.token)  # it was given up meanwhile
        return


async def abandon(db: Connection, change: Begun) -> None:
    """
    Give back what a change has reserved that was made void. It may have been completed long ago, and then keeps it.

    Raises:
        TableOrmError: The store refused it, or did not answer; or a row cannot be read.
    """
    for claim in change.claims:
        owner = RowAddress(change.table, change.partition_key, claim.row_key)
        await _vacate(db, claim.place, owner, change.token)


async def vacate(db: Connection, owner: RowAddress, name: str, value: PlacedEntry) -> None:
    """
    Delete what is reserved for an entity that does not hold the value, and can never get it by that claim.

    Args:
        db: Where the rows are.
        owner: The entity.
        name: Name of the index.
        value: Where the reservation is.

    Raises:
        TableOrmError: The store refused it, or did not answer; or a row cannot be read.
    """
    stored = await _read(db, value, "")
    found = owner_and_token(stored)
    if stored is not None and found is not None and entry_name_of(stored) == name:
        await _vacate(db, value, owner, found[1])


async def _vacate(
    db: Connection, value: PlacedEntry, owner: RowAddress, token: str, label: str = "", *, over: bool = False
) -> None:
    """Delete the reservation of a claim of an entity if nobody holds the value, or if the claim is known to be over."""
    async for _ in _attempts(db, value):
        stored = await _read(db, value, label)
        found = owner_and_token(stored)
        if stored is None or found is None or not found[0].is_same(owner) or found[1] != token:
            return
        holder = not over and (
            await _has_entry(db, owner, value) or await find_last_holder(db, value, owner, token) is not None
        )
        if holder or await _write(db, value, delete_as_read(stored), label):
            return


def owner_and_token(stored: Row | None) -> tuple[RowAddress, str] | None:
    """Return whom a reservation is for, and the token of the claim; None if there is none, or the row is not one."""
    row = stored or {}
    token, owner = row.get(COPIED_VERSION), row.get(COPY_OF)
    if not isinstance(token, str) or not is_token(token) or not isinstance(owner, str):
        return None
    try:
        return RowAddress.from_json(owner), token
    except msgspec.DecodeError:
        return None


def _attempts(db: Connection, value: PlacedEntry) -> Attempts:
    """Return the attempts to write a reservation."""
    row = f"({value.partition_key!r}, {value.row_key!r}) of table {value.table}"
    return Attempts(db, races=f"others wrote the row {row}, which reserves a value, first")


async def _has_entry(db: Connection, owner: RowAddress, place: PlacedEntry) -> bool:
    """Return whether an entity says that the row at a place is its own: it reserves a value, or is an index entry."""
    manifest = manifest_of(await read_row(db, owner))
    entries = [each for each in manifest.values() if isinstance(each, PlacedEntry)]
    return any(PlacedEntry(each.partition_key, each.row_key, each.table) == place for each in entries)


def _replacement(stored: Row, owner: RowAddress, token: str) -> Operation:
    claimed = {COPY_OF: owner.to_json(), COPIED_VERSION: token}
    return Operation(Verb.REPLACE, {**unstamped(stored), **claimed}, stored["odata.etag"])


async def _read(db: Connection, value: PlacedEntry, label: str) -> Row | None:
    return await read_row(db, RowAddress.of(value), name=label)


async def _write(db: Connection, value: PlacedEntry, operation: Operation, label: str) -> bool:
    """Write a reservation. Return False if it is not as it was read, or nobody knows whether it was written."""
    return await write_as_read(db, value.table, [operation], name=label, what="the row that reserves a value")
