"""
Writes that meet a marker row under their key: there is no entity, or it is somewhere else.
"""

from typing import NoReturn

from ..errors import EntityExists, EntityNotFound
from ..models.marker_rows import mark_of
from ..protocol.codes import Code
from ..stores import Row
from .plan import UPSERTS, Change
from .relocation import stays


def refuse_marker(change: Change, row: Row) -> NoReturn:
    """
    Refuse a change of the entity of a key that has a marker row.

    Raises:
        EntityExists: The change is an upsert, which could insert an entity there.
        EntityNotFound: It is another change.
    """
    if change.mode in UPSERTS:
        raise marker_error(change, row)
    mark = mark_of(row)
    if mark is not None and mark.state.has_left:
        raise EntityNotFound(f"{change}: the entity was moved to {mark.other}", Code.RESOURCE_NOT_FOUND)
    raise EntityNotFound(f"{change}: table {change.table} has no such row", Code.RESOURCE_NOT_FOUND)


def marker_error(change: Change, row: Row) -> EntityExists:
    """Return the error of a write that would insert an entity where there is a marker row."""
    problem = "an entity is being moved to or from that key; try again when the move has ended"
    if stays(row):
        problem += "; if no re-key of the table is under way, delete the row, which is no entity"
    return EntityExists(f"{change}: {problem}", Code.ENTITY_EXISTS, change.subject)
