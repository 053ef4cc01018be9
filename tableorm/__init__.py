"""
tableorm: the async object mapper for Azure Table Storage and the Cosmos DB Table API.

    class Employee(Entity, table="Directory", partition_key="{department}", row_key="empid_{id:06d}"):
        department: Mapped[str]
        id: Mapped[int]
        name: Mapped[str]

    async with connect("local:./hr.tables") as db:
        await db.create_tables(Employee)
        await db.insert(Employee(department="Sales", id=10, name="Ken"))
        ken = await db.get(Employee, department="Sales", id=10)
"""

from .bag import PropertyBag
from .connection import Stats
from .convert import from_dict, to_dict
from .database import Database
from .entity import Entity
from .errors import (
    AccessDenied,
    Conflict,
    DecodeError,
    EncodeError,
    EntityExists,
    EntityNotFound,
    LimitExceeded,
    ModelError,
    NotLoaded,
    NotSupported,
    PreconditionFailed,
    ScanRefused,
    TableNotFound,
    TableOrmError,
    TemplateError,
    TransactionFailed,
    Unavailable,
    WrongKind,
)
from .expressions import Expression, Field
from .fields import Mapped, field
from .keys import Key
from .kinds import upgrade
from .opening import connect
from .properties import Int32
from .protocol.edm import Edm
from .query import Select
from .transaction import Transaction

__version__ = "0.1.0"

__all__ = [
    "AccessDenied",
    "Conflict",
    "Database",
    "DecodeError",
    "Edm",
    "EncodeError",
    "Entity",
    "EntityExists",
    "EntityNotFound",
    "Expression",
    "Field",
    "Int32",
    "Key",
    "LimitExceeded",
    "Mapped",
    "ModelError",
    "NotLoaded",
    "NotSupported",
    "PreconditionFailed",
    "PropertyBag",
    "ScanRefused",
    "Select",
    "Stats",
    "TableNotFound",
    "TableOrmError",
    "TemplateError",
    "Transaction",
    "TransactionFailed",
    "Unavailable",
    "WrongKind",
    "connect",
    "field",
    "from_dict",
    "to_dict",
    "upgrade",
]
