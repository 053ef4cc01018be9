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

from .audit.report import AuditReport, BuildReport, Damage, Finding
from .bag import PropertyBag
from .bulk import Bulk, BulkFailure, BulkReport
from .connection import Stats
from .convert import from_dict, to_dict
from .database import Database
from .entity import Entity
from .errors import (
    AccessDenied,
    Conflict,
    CursorError,
    DecodeError,
    EncodeError,
    EntityExists,
    EntityNotFound,
    LimitExceeded,
    ModelError,
    MultipleEntitiesFound,
    NotLoaded,
    NotSupported,
    OutcomeUnknown,
    PreconditionFailed,
    ReferenceNotFound,
    ScanRefused,
    TableNotFound,
    TableOrmError,
    TemplateError,
    Throttled,
    TransactionFailed,
    Unavailable,
    UniqueViolation,
    WrongKind,
)
from .explain import ExplainedRequest, Explanation
from .expressions import Expression, Field, PartitionKey, RowKey, SystemField, Timestamp
from .fields import Mapped, field
from .grants import Grant, GrantExplanation
from .indexes import Index, IndexOf
from .keys import Key
from .kinds import upgrade
from .lists import IndexList, ListOf
from .opening import connect
from .pages import EntityStream, Page
from .planner import Access
from .policies import StoredPolicy, TablePolicies
from .properties import Int32
from .protocol.edm import Edm
from .query import Query, Select
from .raw import RawSelect
from .related import Count, Embedded, Sum, TallyOf
from .retry import RetryPolicy
from .scope import Scope
from .transaction import Transaction
from .union import Union
from .writes.explain import WriteExplanation, WriteStep

__version__ = "0.1.0"

__all__ = [
    "Access",
    "AccessDenied",
    "AuditReport",
    "BuildReport",
    "Bulk",
    "BulkFailure",
    "BulkReport",
    "Conflict",
    "Count",
    "CursorError",
    "Damage",
    "Database",
    "DecodeError",
    "Edm",
    "Embedded",
    "EncodeError",
    "Entity",
    "EntityExists",
    "EntityNotFound",
    "EntityStream",
    "ExplainedRequest",
    "Explanation",
    "Expression",
    "Field",
    "Finding",
    "Grant",
    "GrantExplanation",
    "Index",
    "IndexList",
    "IndexOf",
    "Int32",
    "Key",
    "LimitExceeded",
    "ListOf",
    "Mapped",
    "ModelError",
    "MultipleEntitiesFound",
    "NotLoaded",
    "NotSupported",
    "OutcomeUnknown",
    "Page",
    "PartitionKey",
    "PreconditionFailed",
    "PropertyBag",
    "Query",
    "RawSelect",
    "ReferenceNotFound",
    "RetryPolicy",
    "RowKey",
    "ScanRefused",
    "Scope",
    "Select",
    "Stats",
    "StoredPolicy",
    "Sum",
    "SystemField",
    "TableNotFound",
    "TableOrmError",
    "TablePolicies",
    "TallyOf",
    "TemplateError",
    "Throttled",
    "Timestamp",
    "Transaction",
    "TransactionFailed",
    "Unavailable",
    "Union",
    "UniqueViolation",
    "WriteExplanation",
    "WriteStep",
    "WrongKind",
    "connect",
    "field",
    "from_dict",
    "to_dict",
    "upgrade",
]
