"""
Part of stage 5: entities that an effect changes, and that have to be written in full for it.

That which keeps a count is made where it is missing, if the count says so. One of an older version is upgraded, as by
any first write: else the upgrade would later run over what was added. Both are writes of entities as the user's are, in
the same transaction, so that whatever is derived from these is right too.
"""

from typing import Any

from msgspec import structs

from ..kinds import Kinds
from ..stores import Row
from .change import insert_change, rebuild_change
from .effects import Patch
from .encode import encode
from .plan import PlannedWrite

__all__ = ["written_beside"]


def written_beside(patch: Patch, stored: Row | None, token: str) -> PlannedWrite | None:
    """
    The write of the entity that a patch is of; None if the patch is enough.

    Args:
        patch: What changes.
        stored: The entity's row; None if there is none.
        token: The write token of the transaction.

    Raises:
        WrongKind: The row is of another kind.
        DecodeError: The row does not fit its model.
        TableOrmError: What an insert of the entity raises of its values.
    """
    if stored is None:
        if patch.create is None:
            return None
        write = encode(insert_change(patch.create()), 0, token)
    else:
        found = patch.model_of(stored)
        if found is None or found[1] >= found[0].version:
            return None
        entity: Any = Kinds.of([found[0].model]).load(stored.copy())
        write = encode(rebuild_change(entity, ()), 0, token)
    return None if write is None else structs.replace(write, index=patch.origin.index)
