"""
The commands `tableorm query` and `tableorm get`, which read entities, or rows without a model.
"""

from argparse import Namespace
from collections.abc import AsyncIterator
from typing import Any

from .. import to_dict
from ..database.database import Database
from ..errors import ModelError, ScanRefused, near
from ..explorer.views import explain
from ..models.derivation import IndexOf
from ..models.entity import Entity, schema_of
from ..models.json_values import to_json as plain
from ..models.property_bag import PropertyBag
from ..queries.query import Query
from ..stores import RowAddress
from .arguments import DATABASE, OwnCommand, count, flag, open_existing, option, parse_target
from .conditions import parse_fields, parse_syntax, parse_where
from .output import emit
from .tabular import NAMES, TITLES, list_values, print_rows


async def _query(args: Namespace) -> int:
    r"""
    `tableorm query URL TABLE|MODULE:MODEL` prints the entities of a model, or the rows of a table, that satisfy a
    condition. It never reads a whole table unless `--all` allows that.

    Examples:
        tableorm query local:./hr.tables Directory --top 10
        tableorm query local:./hr.tables hr.models:Employee \
            --where "department == 'Sales' and age > 30"
        tableorm query local:./hr.tables hr.models:Employee \
            --only name,age --all --csv
    """
    if args.csv and args.json:
        args.parser.error("--csv and --json cannot be combined; choose one")
    model = _model_of(args.target)
    async with open_existing(args) as db:
        query = _make_query(db, args, model)
        # The first rows of a table are no scan; those of a model may be behind many of others.
        if args.all or (model is None and not args.where and args.top is not None):
            query = query.allow_scan()
        if args.explain:
            _explain(query, args, model)
            return 0
        columns = args.only or ([] if model is None else [*schema_of(model).fields])
        keys = ("PartitionKey", "RowKey") if model is None else schema_of(model).key_fields
        try:
            await print_rows(args, _read(query, args.only), columns, keys)
        except ScanRefused:
            if model is None:  # if there is no such table, that matters more
                await db.select_raw(args.target).limit(1).allow_scan().all()
            raise
    return 0


async def _get(args: Namespace) -> int:
    r"""
    `tableorm get URL MODULE:MODEL FIELD=VALUE ...` prints the entity with a key, or that a unique index has; of a TABLE
    the row with a PartitionKey and a RowKey.

    Examples:
        tableorm get local:./hr.tables hr.models:Employee department=Sales id=7
        tableorm get local:./hr.tables Directory \
            PartitionKey=Sales RowKey=empid_000007
    """
    target, model = args.target, _model_of(args.target)
    async with open_existing(args) as db:
        if model is None:
            keys = parse_fields({"PartitionKey": str, "RowKey": str}, args.fields)
            if missing := {"PartitionKey", "RowKey"} - keys.keys():
                raise ModelError(f"{min(missing)} is missing; give PartitionKey=VALUE and RowKey=VALUE")
            found: Any = await db.get(PropertyBag.key(target, keys["PartitionKey"], keys["RowKey"]))
        else:
            types = {name: info.type.annotation for name, info in schema_of(model).fields.items()}
            found = await db.get(target, **parse_fields(types, args.fields))
    values = values_of(found)
    emit(args, values, *list_values([*values], values.values()), styles=NAMES, wrap=True)
    return 0


def _explain(query: Query[Any], args: Namespace, model: type[Entity] | None) -> None:
    """Print the plan of a query, whether it needs `--all`, and as what its conditions were read."""
    plan, refused = explain(query)
    values, lines = plan.to_dict() | {"refused": refused}, str(plan).splitlines()
    if args.where:
        languages = {"OData" if model is None else parse_syntax(each)[1] for each in args.where}
        values["where"] = " and ".join(sorted(languages))
        lines.append(f"  --where: read as {values['where']}")
    if refused:
        lines.append("  refused without --all")
    emit(args, values, *lines, styles=TITLES, wrap=True)


def values_of(found: Entity | PropertyBag) -> dict[str, Any]:
    """Return the fields of an entity, or the properties of a row with its keys, as JSON has them."""
    if isinstance(found, Entity):
        return to_dict(found, "json")
    return RowAddress.of(found).keys | {name: plain(value) for name, value in found.items()}


def _model_of(target: str | type[Entity] | IndexOf[Any]) -> type[Entity] | None:
    """Return the model whose entities are read; None if it is a table."""
    if isinstance(target, str):
        return None
    return target.model if isinstance(target, IndexOf) else target


def _make_query(db: Database, args: Namespace, model: type[Entity] | None) -> Query[Any]:
    query: Any
    conditions: list[Any] = args.where
    if model is None:
        query = db.select_raw(args.target)
    else:
        query = db.select(args.target)
        fields = schema_of(model).fields
        for name in args.only:
            if name not in fields:
                known = near(name, fields, "field")
                raise ModelError(f"--only {name!r} is rejected: {model.__name__} has no such field; {known}")
        if args.only:
            query = query.only(*(getattr(model, name) for name in args.only))
        conditions = [parse_where(each, model) for each in conditions]
    for condition in conditions:
        query = query.where(condition)
    found: Query[Any] = query if args.top is None else query.limit(args.top)
    return found


async def _read(query: Query[Any], only: list[str]) -> AsyncIterator[dict[str, Any]]:
    async for found in query:
        values = values_of(found)
        yield {name: values.get(name) for name in only} if only else values


def _parse_names(text: str) -> list[str]:
    return [*filter(None, text.split(","))]


_TARGET = option("target", metavar="TABLE|MODULE:MODEL", type=parse_target, help="what to read")

QUERY = OwnCommand(
    "read entities or rows by a condition",
    _query,
    *DATABASE,
    _TARGET,
    option(
        "--where",
        metavar="CONDITION",
        action="append",
        default=[],
        help='on the fields of a model: "age > 30 and city == \'Oslo\'"; or an OData filter: "age gt 30"; if '
        "given several times, all must hold",
    ),
    option(
        "--only",
        metavar="FIELD,...",
        action="extend",
        default=[],
        type=_parse_names,
        help="print only these fields",
    ),
    count("--top", "read at most N"),
    flag("--all", "allow a query that has to read the whole table"),
    flag("--explain", "print what would be sent, without sending it"),
    flag("--csv", "print CSV"),
)
GET = OwnCommand(
    "read one entity or row by its key",
    _get,
    *DATABASE,
    _TARGET,
    option("fields", metavar="FIELD=VALUE", nargs="+", help="the fields of the key"),
)
