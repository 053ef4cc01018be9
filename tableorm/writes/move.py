"""
Stage 1 of a move: an entity and its new key become two changes, the delete of one row and the insert of another.

Both go through the other stages as two operations of one transaction, which is why a move stays within one partition.
"""

from typing import Any

from ..errors import EncodeError, ModelError, NotLoaded, NotSupported
from ..models.entity import Entity
from ..models.key import Key
from ..models.property_bag import PropertyBag, bag_of_row
from .plan import Change, PlannedWrite
from .stages.change import delete_change, insert_change
from .stages.encode import is_partial
from .subject import forget_maintained, key_of

__all__ = ["move_changes"]


def move_changes(
    subject: Entity | PropertyBag, fields: dict[str, Any], pending: PlannedWrite | None = None
) -> tuple[Change, Change]:
    """
    Make the changes of a move: delete an entity's row under its ETag, and insert a copy with other key fields.

    Args:
        subject: The entity or bag.
        fields: The new key fields; of a bag its `row_key`.
        pending: The write of the same subject that a transaction holds already.

    Returns:
        The delete and the insert. The subject of the insert is what the entity is when both have succeeded.

    Raises:
        NotRead: It was never read nor written.
        NotLoaded: The row may have more than was read.
        TemplateError: A field is not a key field, or does not fit.
        ModelError: The subject is a bag, and something else than its `row_key` is given.
        NotSupported: The new key is in another partition or table.
        EncodeError: The new key is the old one, or none that the service takes.
    """
    delete = delete_change(subject, None, pending, "move")
    if is_partial(delete):
        raise NotLoaded(
            f"{delete}: its row may have properties that were not read, which would be lost; refresh() it first"
        )
    insert = insert_change(_moved(subject, fields), verb="move")
    if (insert.table, insert.partition_key) != (delete.table, delete.partition_key):
        new = Key(type(subject), insert.table, insert.partition_key, insert.row_key)
        what = "table" if insert.table != delete.table else "partition"
        raise NotSupported(
            f"{delete} to {new}: that is another {what}, which no transaction reaches, and moves of several steps are "
            f"not available yet; {_by_hand(subject, fields)}: readers find both in between, and if the old one has "
            "changed meanwhile, its delete fails and both are there"
        )
    if insert.row_key == delete.row_key:
        raise EncodeError(
            "is the key that it has already; give move() another, or save() what has changed",
            type(subject).__name__,
            "key",
            (delete.partition_key, delete.row_key),
        )
    return delete, insert


def _moved(subject: Entity | PropertyBag, fields: dict[str, Any]) -> Entity | PropertyBag:
    """A copy with the new key fields."""
    if not isinstance(subject, PropertyBag):
        schema, own = subject.__schema__, subject.__dict__
        schema.key({name: own[name] for name in schema.key_fields if name in own} | fields)  # refuses other fields
        moved = subject.evolve(**fields)
        forget_maintained(moved)  # nobody counts in a new key, and what it holds of others is filled in
        return moved
    given = {"table": subject.table, "partition_key": subject.partition_key, "row_key": subject.row_key}
    unknown = sorted(fields.keys() - given.keys())
    if unknown:
        raise ModelError(f"move of {key_of(subject)}: a bag has no key field {unknown[0]!r}; give row_key=...")
    key = PropertyBag.key(**{**given, **fields})
    row = {**subject.row, "PartitionKey": key.partition_key, "RowKey": key.row_key}
    return bag_of_row(key.table, row)


def _by_hand(subject: Entity | PropertyBag, fields: dict[str, Any]) -> str:
    if isinstance(subject, PropertyBag):
        return "insert() a bag with the same properties there, then delete() this one"
    given = ", ".join(f"{name}={value!r}" for name, value in fields.items())
    return f"insert(entity.evolve({given})), then delete(entity)"
