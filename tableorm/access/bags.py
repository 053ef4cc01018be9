"""
Bags that are written in a scope: they must not be taken for what only models and their patterns write.
"""

from ..errors import ModelError
from ..models.kinds import entity_kind_of
from ..models.marker_rows import MARKER_HEADS, is_marker
from ..models.property_bag import PropertyBag
from ..models.reserved import MANIFEST, MOVE
from .known_rows import known_rows


def check_written_bag(bag: PropertyBag, where: str, *, merged: bool) -> None:
    """
    Refuse to write a bag of a model that rows are derived from: nothing checks whose rows the bag refers to, and an
    audit would derive them. Refuse one that says the kind of a model and has keys that the model cannot have: whoever
    reads entities of the model may meet it, by one of its keys, in the partitions of somebody else.

    Args:
        bag: The bag.
        where: Where it is rejected, for messages: "in the scope of tenant='acme'".
        merged: Whether but some of its properties are sent.

    Raises:
        ModelError: It has the kind of such a model, or of rows that are derived from it; or it has the key of one,
            and does not tell a kind; or it has the kind of another model, and not its keys; or it is a marker row,
            which tells others what to do.
    """
    if is_marker(bag.row) or bag.row_key.startswith(tuple(MARKER_HEADS)):
        raise ModelError(
            f"{bag!r} is rejected {where}: it is a marker row, which keeps the state of a change of several "
            "partitions, or a change feed; write the entity itself"
        )
    bound = next((name for name in (MANIFEST, MOVE) if name in bag.row), None)
    if bound is not None:
        raise ModelError(
            f"{bag!r} is rejected {where}: its property {bound!r} says what is derived from the row, which may be "
            "rows of others; write it through its model"
        )
    kind = entity_kind_of(bag.row)
    for rows in known_rows(bag.table):
        if not rows.own:
            continue
        of_kind = bool(kind) and kind == rows.kind
        has_keys = rows.parse(bag.partition_key, bag.row_key) is not None
        by_key = merged or not kind or rows.kind is None
        if rows.tracked and (of_kind or (by_key and has_keys)):
            raise ModelError(
                f"{bag!r} is rejected {where}: rows are derived from {rows.label}, which a bag cannot keep right, and "
                "which may be those of others; write it through its model"
            )
        if of_kind and not has_keys:
            raise ModelError(
                f"{bag!r} is rejected {where}: it says to be of {rows.label}, whose keys are {rows.partition.text!r} "
                f"and {rows.row.text!r}, and has other keys; write it through its model, or give it another kind"
            )
