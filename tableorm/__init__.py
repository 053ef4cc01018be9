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

What you call, each with a help of its own, as in `help(tableorm.Database)`:

    open          connect -> Database; Database.scope -> Scope
    models        Entity, Mapped, field, series, encrypted, Blob, Int32, Key, PropertyBag, upgrade
    derived rows  Index, IndexList, Count, Sum, Embedded, Feed
    relations     one, many, CachedEntities
    queries       Database.select -> Select, Database.select_raw -> RawSelect; PartitionKey, RowKey, Timestamp
    writes        Database.insert, save, upsert, delete ...; Database.transaction -> Transaction, Database.bulk -> Bulk
    background    Database.worker -> Worker; Workflow, workflow, BlobArchive, DatabaseArchive
    web           to_dict, from_dict, Partial, WithoutKey, http_status, http_message
    encryption    Encryption, KeyRing
    re-keys       MovedFrom
    errors        TableOrmError is the base of all; `help(tableorm.errors)` lists them as a tree

Everything else is what these return, or a base that several of them share.
"""

from .access.grant import Grant, GrantExplanation
from .access.policies import StoredPolicy, TablePolicies
from .audit.report import AuditReport, BuildReport, Damage, Finding
from .connection.index_states import IndexState
from .connection.observe import Observation
from .connection.requests import ObservedRequest
from .connection.stats import Counts, Stats
from .database.connect import connect
from .database.database import Database, Scope
from .database.http_answers import http_message, http_status
from .database.periods import DroppedPeriods
from .derived.aggregate.aggregate import Aggregate, AggregateOf, Count, Sum
from .derived.embed.embed import Embedded
from .derived.feed.feed import Feed
from .derived.index.index import Index
from .derived.index_list.index_list import IndexList, ListOf
from .errors import (
    AccessDenied,
    AccountNotFound,
    Conflict,
    CursorError,
    DecodeError,
    EncodeError,
    EncryptionError,
    EntityExists,
    EntityNotFound,
    GoingBack,
    InputFault,
    InvalidInput,
    LimitExceeded,
    LostRace,
    MalformedETag,
    ModelError,
    MultipleEntitiesFound,
    NotLoaded,
    NotRead,
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
from .expressions import Comparable, Expression, Field, PartitionKey, RowKey, SystemField, Timestamp
from .jobs.ranges import RangeReport
from .jobs.report import RangeProgress, RunReport
from .models.convert import from_dict, to_dict
from .models.derivation import Derivation, DerivationOf, IndexOf
from .models.entity import Entity
from .models.fields import Mapped, encrypted, field
from .models.key import Key, Storable
from .models.partial import Partial, WithoutKey
from .models.property_bag import PropertyBag
from .models.upgrades import upgrade
from .outbox.worker import Outcome, Worker
from .outbox.workflow import Workflow, workflow
from .protocol.edm import Edm
from .queries.changes import ChangedEntity, ChangeStream, CommittedChange
from .queries.description import QueryDescription, Relation
from .queries.explain import ExplainedRequest, Explanation
from .queries.misfits import MisfitPolicy
from .queries.pages import EntityStream, Page
from .queries.planning.plan import Access
from .queries.query import Query
from .queries.raw import RawSelect
from .queries.select import Select
from .queries.sweep_report import SweepReport
from .queries.union import Union
from .rekey.moved_from import MovedFrom
from .relations.cache import CachedEntities
from .relations.declarations import many, one
from .relations.load import LoadExplanation
from .relations.relation import ManyOf, OneOf
from .shapes.blob import Blob, BlobField
from .shapes.encrypted import Encryption
from .shapes.key_ring import KeyRing, KeyWrapper
from .shapes.series import Series, SeriesField, Slots, series
from .stores import RetryPolicy, utc_now
from .transfer.report import TransferReport
from .types import Int32
from .writes.archive_copy import BlobArchive, DatabaseArchive
from .writes.bulk.bulk import Bulk
from .writes.bulk.report import BulkFailed, BulkFailure, BulkReport
from .writes.explain import WriteExplanation, WriteStep
from .writes.transaction import Transaction

__version__ = "0.1.0"

__all__ = [
    "Access",
    "AccessDenied",
    "AccountNotFound",
    "Aggregate",
    "AggregateOf",
    "AuditReport",
    "Blob",
    "BlobArchive",
    "BlobField",
    "BuildReport",
    "Bulk",
    "BulkFailed",
    "BulkFailure",
    "BulkReport",
    "CachedEntities",
    "ChangeStream",
    "ChangedEntity",
    "CommittedChange",
    "Comparable",
    "Conflict",
    "Count",
    "Counts",
    "CursorError",
    "Damage",
    "Database",
    "DatabaseArchive",
    "DecodeError",
    "Derivation",
    "DerivationOf",
    "DroppedPeriods",
    "Edm",
    "Embedded",
    "EncodeError",
    "Encryption",
    "EncryptionError",
    "Entity",
    "EntityExists",
    "EntityNotFound",
    "EntityStream",
    "ExplainedRequest",
    "Explanation",
    "Expression",
    "Feed",
    "Field",
    "Finding",
    "GoingBack",
    "Grant",
    "GrantExplanation",
    "Index",
    "IndexList",
    "IndexOf",
    "IndexState",
    "InputFault",
    "Int32",
    "InvalidInput",
    "Key",
    "KeyRing",
    "KeyWrapper",
    "LimitExceeded",
    "ListOf",
    "LoadExplanation",
    "LostRace",
    "MalformedETag",
    "ManyOf",
    "Mapped",
    "MisfitPolicy",
    "ModelError",
    "MovedFrom",
    "MultipleEntitiesFound",
    "NotLoaded",
    "NotRead",
    "NotSupported",
    "Observation",
    "ObservedRequest",
    "OneOf",
    "Outcome",
    "OutcomeUnknown",
    "Page",
    "Partial",
    "PartitionKey",
    "PreconditionFailed",
    "PropertyBag",
    "Query",
    "QueryDescription",
    "RangeProgress",
    "RangeReport",
    "RawSelect",
    "ReferenceNotFound",
    "Relation",
    "RetryPolicy",
    "RowKey",
    "RunReport",
    "ScanRefused",
    "Scope",
    "Select",
    "Series",
    "SeriesField",
    "Slots",
    "Stats",
    "Storable",
    "StoredPolicy",
    "Sum",
    "SweepReport",
    "SystemField",
    "TableNotFound",
    "TableOrmError",
    "TablePolicies",
    "TemplateError",
    "Throttled",
    "Timestamp",
    "Transaction",
    "TransactionFailed",
    "TransferReport",
    "Unavailable",
    "Union",
    "UniqueViolation",
    "WithoutKey",
    "Worker",
    "Workflow",
    "WriteExplanation",
    "WriteStep",
    "WrongKind",
    "connect",
    "encrypted",
    "field",
    "from_dict",
    "http_message",
    "http_status",
    "many",
    "one",
    "series",
    "to_dict",
    "upgrade",
    "utc_now",
    "workflow",
]
