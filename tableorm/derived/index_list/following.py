"""
Lists that follow their entities, in rows or in blobs, and how they are made right.

Who makes a list right reads it, then the entity, and writes the list under the ETag that it was read with. The list
holds the write token of the version that was put there: an entity that is put into it again has another token, so that
whoever acts for an older version fails at that ETag. Then the entity is read again, because it may have changed
meanwhile.

All writers of a list meet there. So those of one program write for several entities at a time.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

import attrs

from ...connection.connection import Connection
from ...connection.races import ATTEMPTS, Attempts
from ...connection.rows import is_place, read_row
from ...connection.tasks import Batcher, map_together
from ...errors import EntityExists, LostRace, TableOrmError
from ...models.manifest import PlacedListEntry
from ...models.marker_rows import is_marker
from ...models.write_tokens import newest_token
from ...protocol.codes import Code
from ...stores import Row, RowAddress

P = TypeVar("P")


@attrs.frozen(eq=False)
class _Correction:
    """An entity of which a list has to say what the entity says, and what tells from its row whether it is listed."""

    source: RowAddress
    is_due: Callable[[Row], bool]

    def version_in(self, primary: Row | None) -> str | None:
        """Return the write token to be listed; None if the entity is not listed. Raises what `is_due` raises."""
        if primary is None or is_marker(primary) or not self.is_due(primary):
            return None
        return newest_token(primary)


@attrs.frozen
class FollowingList(Generic[P]):
    """
    A list in an open database. It is read and written in parts, each of which has an ETag.

    Args:
        db: The database.
        place: The list.
    """

    db: Connection
    place: PlacedListEntry

    async def find_parts(self, sources: Sequence[RowAddress]) -> dict[RowAddress, P]:
        """
        Return the part of the list that each entity belongs into, as it is read now; each part is one object.

        Raises:
            TableOrmError: The list is damaged, or the store did not answer.
        """
        raise NotImplementedError

    async def correct_part(self, part: P, wanted: Mapping[RowAddress, str | None]) -> bool:
        """
        Write a part, unless it is right.

        Args:
            part: The part.
            wanted: The write tokens of entities; None for those that are not in the list.

        Returns:
            Whether it is right now. Otherwise somebody else has written it, or the entities have other parts now.

        Raises:
            EntityExists: A row of another kind is where the part belongs.
            TableOrmError: The part is damaged, or the store refused.
        """
        raise NotImplementedError

    async def correct(self, source: RowAddress, name: str, is_due: Callable[[Row], bool]) -> None:
        """
        Make the list say of an entity what the entity says. Nothing happens if it is not a list of the declaration.

        Tasks that do so for one list at the same time share the requests for it.

        Args:
            source: The row of the entity.
            name: Name of the declaration.
            is_due: Says whether the entity belongs into the list, from its row. Otherwise it is taken out, and nothing
                that does not name it is written: the place may be one that somebody has made up.

        Raises:
            LostRace: Others have written the entity or the list again and again.
            TableOrmError: The list is damaged, or the store did not answer, or `is_due` has raised it.
        """
        if self.place.kind.partition("#")[2] == name:
            await _BATCHER.call(self, _Correction(source, is_due))


async def _correct_together(which: FollowingList[Any], corrections: Sequence[_Correction]) -> list[Exception | None]:
    """Make a list say of some entities what these say, and return what went wrong with each."""
    errors = dict[_Correction, Exception]()
    left = corrections
    async for _ in Attempts(which.db):
        left = await _try_to_correct(which, left, errors)
        if not left:
            break
    for each in left:
        errors[each] = LostRace(
            f"{which.place.kind}: others wrote the entity {each.source} or its list {which.place.list_key!r} first, "
            f"{ATTEMPTS} times in a row; try it again",
            Code.CONDITION_NOT_SATISFIED,
        )
    return [errors.get(each) for each in corrections]


_BATCHER = Batcher(_correct_together, 100)


async def _try_to_correct(
    which: FollowingList[P], corrections: Sequence[_Correction], errors: dict[_Correction, Exception]
) -> list[_Correction]:
    """Note what goes wrong with a correction, and return those that have to be tried again after a lost race."""
    # The list first: what the entities say is then newer than the ETags of its parts.
    parts = await which.find_parts([each.source for each in corrections])
    primaries = await _read_entities(which, corrections, errors)
    versions = dict[_Correction, str | None]()
    for each in corrections:
        if each not in errors:
            try:
                versions[each] = each.version_in(primaries[each.source])
            except Exception as error:  # noqa: BLE001 - whatever a function of a model raises
                errors[each] = error
    again, written = list[_Correction](), list[_Correction]()
    for part in {id(part): part for part in parts.values()}.values():
        here = [each for each in versions if parts[each.source] is part]
        try:
            done = not here or await which.correct_part(part, {each.source: versions[each] for each in here})
        except TableOrmError as error:
            # A row of another kind is in the way of those alone that come into the list.
            concerned = [each for each in here if versions[each] is not None or not isinstance(error, EntityExists)]
            errors.update(dict.fromkeys(concerned, error))
        else:
            (written if done else again).extend(here)
    now = await _read_entities(which, written, errors)
    for each in written:
        if each not in errors and _etag_of(now[each.source]) != _etag_of(primaries[each.source]):
            again.append(each)
    return again


async def _read_entities(
    which: FollowingList[Any], corrections: Sequence[_Correction], errors: dict[_Correction, Exception]
) -> dict[RowAddress, Row | None]:
    """Read the entities of corrections, each once. Where that fails, the error is noted."""
    found = dict[RowAddress, Row | None]()

    async def read(source: RowAddress) -> None:
        try:
            row = await read_row(which.db, source, name=which.place.kind) if is_place(source) else None
            found[source] = row
        except TableOrmError as error:
            errors.update((each, error) for each in corrections if each.source == source)

    await map_together(read, list(dict.fromkeys(each.source for each in corrections)))
    return found


def _etag_of(row: Row | None) -> str | None:
    return None if row is None else row["odata.etag"]
