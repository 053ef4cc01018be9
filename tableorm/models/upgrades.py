"""
Upgrades: how a row of an old version becomes an entity of the current one.
"""

from collections.abc import Callable
from typing import Any

from msgspec import structs

from ..errors import Conflict, DecodeError, ModelError, shown
from ..protocol.codes import Code
from ..protocol.edm import ANNOTATION
from ..stores import Row, row_keys
from .entity import Entity
from .property_bag import PropertyBag, bag_of_row
from .reserved import ENTITY_TYPE, ENTITY_VERSION, FIRST_OF_SEVERAL, NOT_PROPERTIES, OPENED, PLACES
from .schema import Schema, Upgrade
from .state import set_state, state_of


def parse_version(schema: Schema, row: Row, stored: object) -> int:
    """
    Return the version that a row says it has.

    Raises:
        Conflict: It is the first of several rows, which did not fit together.
        DecodeError: It is the first of several rows, and the model has one; or what it says is not a number from 1.
    """
    text, keys = str(stored), row_keys(row)
    if _is_version(text) and int(text) >= 1:
        return int(text)
    problem = f"has the version {shown(stored)}, which is not a number from 1"
    if text.endswith(FIRST_OF_SEVERAL):
        if schema.split is not None:
            raise Conflict(
                f"{schema.name} {keys}: its rows did not match in any attempt to read them: others keep writing "
                "them, or another program has changed one of them; try again, and if no program writes, "
                "read the rows as property bags and repair them",
                Code.TORN_ROWS,
            )
        problem = (
            f"is the first of several rows, which only a wide model reads; declare class {schema.name}(..., wide=True)"
        )
    raise DecodeError(problem, schema.name, keys)


def upgrade_row(schema: Schema, version: int, table: str, row: Row) -> Any:
    """
    Return the entity of an old row, after each upgrade in turn. It remembers the keys and ETag that it was read with.

    Raises:
        DecodeError: An upgrade is missing, or its result does not fit the model.
    """
    keys = row_keys(row)
    bag = bag_of_row(table, {name: value for name, value in row.items() if name not in (OPENED, PLACES)})
    for number in range(version, schema.version):
        step = upgrade_step(schema, number)
        if step is None:
            raise DecodeError(
                f"has version {version} and the model {schema.version}, but nothing upgrades version {number}; write "
                f"@upgrade({schema.name}, from_version={number})",
                schema.name,
                keys,
            )
        try:
            bag = step(bag)
        except Exception as error:
            error.add_note(f"while {schema.name} {keys} of table {table} was upgraded from version {number}")
            raise
        if not isinstance(bag, PropertyBag):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ModelError(
                f"the upgrade of {schema.name} from version {number} must return the bag, got {shown(bag)}"
            )
    upgraded = dict(bag.row)
    for name in (ENTITY_TYPE, ENTITY_VERSION):
        upgraded.pop(name + ANNOTATION, None)
    upgraded |= {name: value for name, value in row.items() if name in NOT_PROPERTIES}
    upgraded |= schema.kind_properties
    entity = schema.decode(upgraded)
    set_state(entity, structs.replace(state_of(entity), upgraded=True))
    return entity


def upgrade_step(schema: Schema, version: int) -> Upgrade | None:
    """Return the function that upgrades a version, registered for the model or for a base of it; None without one."""
    for base in schema.model.__mro__:
        own = base.__dict__.get("__schema__")
        if isinstance(own, Schema) and version in own.upgrades:
            return own.upgrades[version]
    return None


def upgrade(model: type[Entity], from_version: int) -> Callable[[Upgrade], Upgrade]:
    """
    Register a function that turns entities of an old version into the next version.

        @upgrade(Employee, from_version=1)
        def split_name(bag: PropertyBag) -> PropertyBag:
            bag["First"], bag["Last"] = bag["Name"].split(" ", 1)
            return bag

    The function receives the stored properties as a bag and returns it, changed. It runs whenever an old entity is
    read; the result is saved with the entity's next write. For several versions, the functions run one after another.

    Args:
        model: The class, or an abstract base for all of its classes.
        from_version: The version that the function accepts; it returns the next one.

    Raises:
        ModelError: The version is not lower than the model's, or already has an upgrade.
    """
    schema = getattr(model, "__schema__", None)
    if not isinstance(schema, Schema):
        raise ModelError(f"@upgrade({model!r}, from_version={from_version!r}): {model!r} is not a model")

    def register(function: Upgrade) -> Upgrade:
        if type(from_version) is not int or from_version < 1:
            raise ModelError(
                f"@upgrade({schema.name}): from_version={from_version!r} is rejected: versions count from 1"
            )
        if not schema.abstract and from_version >= schema.version:
            raise ModelError(
                f"@upgrade({schema.name}, from_version={from_version}): the model's version is {schema.version}; raise "
                f"it to at least {from_version + 1}"
            )
        if from_version in schema.upgrades:
            raise ModelError(f"@upgrade({schema.name}, from_version={from_version}) exists already")
        schema.upgrades[from_version] = function
        return function

    return register


def stored_version(row: Row) -> int:
    """Return the version that a row says it has; 1 if it says none, 0 if that is not a number."""
    text = str(row.get(ENTITY_VERSION) or str(row.get(ENTITY_TYPE, "")).partition(":")[2] or 1)
    return int(text) if _is_version(text) else 0


def _is_version(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 10
