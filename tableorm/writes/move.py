"""
Stage 1 of a move: an entity and its new key become two changes, the delete of one row and the insert of another.

Within a partition both go through the other stages as two operations of one transaction. To another partition or table
they go in several requests, see `tableorm.writes.relocation`.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

from msgspec import structs

from ..errors import EncodeError, EntityExists, EntityNotFound, ModelError, NotLoaded, NotSupported
from ..models.entity import Entity, copy_unknown
from ..models.json_values import new_entity
from ..models.key import Key
from ..models.marker_rows import MoveMark, MoveState, forward_row, kept_row, mark_of, stays
from ..models.property_bag import PropertyBag, bag_of_row
from ..models.reserved import MOVE
from ..models.schema import Schema
from ..models.state import state_of
from ..outbox.doorbell import MoveCommand
from ..protocol.codes import Code
from ..stores import Operation, Row, RowAddress, Verb
from .plan import UPSERTS, Change, Mode, PlannedWrite
from .stages.change import delete_change, guard_change, insert_change, rewrite_change
from .stages.encode import encode_surely, is_partial
from .subject import forget_maintained, key_of


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
        if isinstance(subject, Entity):
            check_movable(subject.__schema__)
        what = "table" if insert.table != delete.table else "partition"
        raise NotSupported(
            f"{delete} to {new}: a transaction cannot move a row to another {what}; use `await db.move(...)` of an "
            "entity, which takes several requests"
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
        return entity_at_target(subject, schema, fields)
    given = {"table": subject.table, "partition_key": subject.partition_key, "row_key": subject.row_key}
    unknown = sorted(fields.keys() - given.keys())
    if unknown:
        raise ModelError(f"move of {key_of(subject)}: a bag has no key field {unknown[0]!r}; give row_key=...")
    key = PropertyBag.key(**{**given, **fields})
    row = {**subject.row, "PartitionKey": key.partition_key, "RowKey": key.row_key}
    return bag_of_row(key.table, row)


def leaves_partition(entity: Entity, fields: dict[str, Any]) -> bool:
    """Return whether an entity that was read gets a key in another partition by these fields. Raises TemplateError."""
    schema, keys = entity.__schema__, state_of(entity).keys
    own = {name: value for name, value in entity.__dict__.items() if name in schema.key_fields}
    return keys is not None and schema.key(own | fields).partition_key != keys[0]


def check_movable(schema: Schema) -> None:
    """
    Refuse to move entities of a model, or to its table, where the rows of a move could not be told or kept right.

    Raises:
        NotSupported: Its rows have no kind or no write tokens, or it declares what cannot be moved.
    """
    name = schema.name
    if schema.home is not None:
        schema.home.check_movable()
    if any(stage is not schema.keyed for stage in schema.stages):
        raise NotSupported(
            f"{name} cannot be moved to another partition: it has row stages, and the rows of a move are not sealed; "
            "delete the entity and insert it at its new key"
        )
    if schema.periods is not None:
        raise NotSupported(
            f"{name} cannot be moved to another partition or period: it has a table for each period; delete the entity "
            "and insert it at its new key"
        )
    if schema.kind is None or callable(schema.discriminator):
        raise NotSupported(
            f"{name} cannot be moved to or from another partition: a row there that is not an entity yet could be read "
            "as one; give the model a kind and discriminator='property', 'row_key' or 'partition_key'"
        )
    if not schema.tracked:
        raise NotSupported(
            f"{name} cannot be moved to or from another partition: its rows may be written without being read, which "
            f"would overwrite what a move leaves there; declare class {name}(..., tracked=True)"
        )
    for each in schema.derived.values():
        if not each.movable:
            raise NotSupported(
                f"{name} cannot be moved to or from another partition: {each.label} would be wrong meanwhile; only "
                "Index, IndexList, Count and Sum move along, and no unique Index in other partitions; delete the "
                "entity and insert it at its new key"
            )


def entity_at_target(entity: Entity, target: Schema, fields: Mapping[str, Any]) -> Entity:
    """
    Return a copy of an entity with other key fields, or an entity of another model with its fields.

    Args:
        entity: The entity.
        target: The model of the copy.
        fields: The fields that are given anew.

    Raises:
        ModelError: The other model lacks a field of the entity, or has one that nobody gives.
    """
    schema = entity.__schema__
    if target is schema:
        copy = entity.evolve(**fields)
        forget_maintained(copy)  # nobody counts in a new key, and what it holds of others is filled in
        return copy
    values = {name: value for name, value in entity.__dict__.items() if name in schema.fields} | dict(fields)
    missing = [name for name in values if name not in target.fields]
    if missing:
        raise ModelError(
            f"{schema.name} cannot be archived as {target.name}, which has no field {missing[0]!r}: its value would be "
            f"lost; declare the field in {target.name}"
        )
    sealed = [name for name in values if name in schema.fields and schema.fields[name].encrypted]
    bare = next((name for name in sealed if not target.fields[name].encrypted), None)
    if bare is not None:
        raise ModelError(
            f"{schema.name} cannot be archived as {target.name}, in which {bare!r} is not encrypted; declare it there "
            "by encrypted()"
        )
    maintained = {info.name for info in target.maintained}
    made: Entity = new_entity(target, {name: value for name, value in values.items() if name not in maintained})
    copy_unknown(entity, made)
    return made


def command_to_move(entity: Entity, row: Row, moved: Entity, names: Iterable[str], move: str) -> MoveCommand:
    """
    Return the command to move an entity.

    Args:
        entity: The entity as it is stored.
        row: Its row.
        moved: The entity as it will be.
        names: Names of the fields that were given for that.
        move: The id of the move.
    """
    source, target = entity.__schema__, moved.__schema__
    partition_key, row_key = target.make_keys(moved.__dict__)
    return MoveCommand(
        move=move,
        kind=source.versioned_kind,
        source=RowAddress.of_row(source.table_name(), row),
        etag=row["odata.etag"],
        to_kind=target.versioned_kind,
        target=RowAddress(target.table_name(), partition_key, row_key),
        fields={name: target.encode_some(moved.__dict__, (target.fields[name],)) for name in names},
    )


def given_fields(target: Schema, stored: Mapping[str, Row]) -> dict[str, Any]:
    """
    Return the values of fields that a message has.

    Raises:
        NotSupported: This program does not know one of them.
    """
    values: dict[str, Any] = {}
    for name, row in stored.items():
        info = target.fields.get(name)
        if info is None:
            raise NotSupported(f"a move gives {target.name} the field {name!r}, which this program does not declare")
        values[name] = info.read(row)
    return values


def leaving_mark(command: MoveCommand) -> MoveMark:
    """Return the mark of a row that a command is about. It says all of the command that others must not make up."""
    return MoveMark(
        state=MoveState.LEAVING,
        move=command.move,
        other=command.target,
        to_kind=command.to_kind,
        fields=command.fields,
    )


def marking_write(entity: Entity, command: MoveCommand, token: str) -> PlannedWrite:
    """
    Return the write that marks the row of an entity that a command is about, and changes nothing else.

    Args:
        entity: The entity.
        command: The command.
        token: The write token. It is not the id of the move, which is that of the write that commits the move.
    """
    return encode_surely(guard_change(entity), token).with_members({MOVE: leaving_mark(command).to_text()})


def tentative_mark(command: MoveCommand) -> MoveMark:
    """Return the mark of the tentative row that a command makes."""
    return MoveMark(state=MoveState.TENTATIVE, move=command.move, other=command.source, etag=command.etag)


def tentative_write(change: Change, mark: MoveMark, token: str) -> PlannedWrite:
    """Return the write of the tentative row of a move, of the change that writes the entity at its key."""
    return encode_surely(structs.replace(change, mark=mark), token)


def leaving_write(entity: Entity, row: Row, target: RowAddress, move: str, *, stays: bool = False) -> PlannedWrite:
    """
    Return the write that makes a forward of a row, with what the delete of its entity does to other rows.

    Args:
        entity: The entity.
        row: Its row.
        target: Where it is afterwards.
        move: The id of the move.
        stays: Whether the forward keeps what the row has, and stays, as in a re-key.
    """
    write, etag = encode_surely(delete_change(entity, verb="move")), row["odata.etag"]
    mark = MoveMark(state=MoveState.FORWARD, move=move, other=target, etag=etag if stays else None, stays=stays)
    make = kept_row if stays else forward_row
    operation = Operation(Verb.REPLACE, make(entity.__schema__, row, mark), etag)
    return structs.replace(write, operation=operation, token=move, weight=None)


def without_mark(write: PlannedWrite) -> PlannedWrite:
    """Return the write that leaves no mark in the row, where it would merge into that."""
    operation, after = write.operation, write.after
    if operation.verb is not Verb.MERGE or write.change.mode is Mode.GUARD or after is None or write.partial:
        return write
    row = {name: value for name, value in after.items() if name != MOVE}
    return structs.replace(
        write, operation=Operation(Verb.REPLACE, row, operation.if_match), after=row.copy(), weight=None
    )


def is_leaving(row: Row, command: MoveCommand) -> bool:
    """
    Return whether a row is the version that a command is about, and its mark says so. Whoever may put a message, and
    may not change the row, moves nothing.
    """
    return row["odata.etag"] == command.etag and mark_of(row) == leaving_mark(command)


def confirming_write(entity: Entity, mark: MoveMark) -> PlannedWrite:
    """Return the write that makes the row of the entity of a tentative one: for what is derived from it, an insert."""
    write = encode_surely(rewrite_change(entity, "move", mark), mark.move)
    # What the entity has was read, and goes back as it came: refused here, the move would never be completed.
    operation = structs.replace(write.operation, canonical=True)
    return structs.replace(write, operation=operation, change=structs.replace(write.change, before=None, stored=None))


def clearing_write(entity: Entity) -> PlannedWrite:
    """Return the write that removes the mark of a row."""
    change = rewrite_change(entity, "move")
    assert change.stored is not None
    row = {name: value for name, value in change.stored.row.items() if name != MOVE}
    stored = structs.replace(change.stored, row=row)
    return encode_surely(structs.replace(change, before=stored, stored=stored))


# Where a row says that an entity is being moved


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
