"""
Dispatch: the order in which a request is checked, and the operation that answers it.

    account - version - preflight - authentication - verb - authorization - options - table - body - the operation

The first two are checked in `front.http`. Source: the order of the service, so that a request with several faults gets
the same answer as there.
"""

import asyncio
import functools
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import attrs

from tableorm.protocol.codes import Code, Fault
from tableorm.protocol.limits import check_table_name
from tableorm.protocol.rights import authorize
from tableorm.protocol.sas import Action

from ..engine import Engine
from .operations.entities import get_entity, query_entities, write_entity
from .operations.policies import get_policies, set_policies
from .operations.request import Request
from .operations.service_properties import get_properties, get_statistics, read_cors_rules, set_properties
from .operations.table_changes import TableChanges
from .operations.tables import create_table, delete_table, get_table, list_tables
from .operations.transactions import run_transaction
from .security import cors
from .security.accounts import Accounts
from .security.authentication import authenticate
from .wire.addressing import Kind, Place, resource_of
from .wire.calls import Answer, Call, Incoming, invalid_parameter
from .wire.options import check_options, effective_verb, seconds_of

Operation = Callable[[Request], Coroutine[Any, Any, Answer]]


@attrs.frozen
class _Route:
    """
    An operation and what is checked before it.

    Args:
        name: The service's name of the operation, for logs and metrics.
        access: The access that needs a right; None for a transaction, whose parts are authorized one by one.
        run: The operation.
        writes: Whether the secondary location refuses it. What writes has a body, unless it deletes.
    """

    name: str
    access: Action | None
    run: Operation
    writes: bool = False


_WRITES = True
_ROUTES: dict[tuple[Kind, str, str], _Route] = {
    (Kind.SERVICE, "GET", "properties"): _Route("GetServiceProperties", Action.GET_PROPERTIES, get_properties),
    (Kind.SERVICE, "PUT", "properties"): _Route("SetServiceProperties", Action.SET_PROPERTIES, set_properties, _WRITES),
    (Kind.SERVICE, "GET", "stats"): _Route("GetServiceStats", Action.GET_STATISTICS, get_statistics),
    (Kind.TABLES, "GET", ""): _Route("QueryTables", Action.LIST_TABLES, list_tables),
    (Kind.TABLES, "POST", ""): _Route("CreateTable", Action.CREATE_TABLE, create_table, _WRITES),
    (Kind.TABLE, "GET", ""): _Route("GetTable", Action.LIST_TABLES, get_table),
    (Kind.TABLE, "DELETE", ""): _Route("DeleteTable", Action.DELETE_TABLE, delete_table, _WRITES),
    (Kind.ENTITIES, "GET", "acl"): _Route("GetTableACL", Action.GET_POLICIES, get_policies),
    (Kind.ENTITIES, "PUT", "acl"): _Route("SetTableACL", Action.SET_POLICIES, set_policies, _WRITES),
    (Kind.ENTITIES, "GET", ""): _Route("QueryEntities", Action.QUERY, query_entities),
    (Kind.ENTITIES, "POST", ""): _Route("InsertEntity", Action.INSERT, write_entity, _WRITES),
    (Kind.ENTITY, "GET", ""): _Route("QueryEntity", Action.QUERY, get_entity),
    (Kind.ENTITY, "PUT", ""): _Route("UpdateEntity", Action.UPDATE, write_entity, _WRITES),
    (Kind.ENTITY, "PATCH", ""): _Route("MergeEntity", Action.UPDATE, write_entity, _WRITES),
    (Kind.ENTITY, "MERGE", ""): _Route("MergeEntity", Action.UPDATE, write_entity, _WRITES),
    (Kind.ENTITY, "DELETE", ""): _Route("DeleteEntity", Action.DELETE, write_entity, _WRITES),
    (Kind.TRANSACTION, "POST", ""): _Route("EntityGroupTransaction", None, run_transaction, _WRITES),
}
# How many transactions are read and written at once. One that was read takes ten times the memory of its body.
_TRANSACTIONS = 16

_NEEDS_TABLE = frozenset({Kind.ENTITIES, Kind.ENTITY, Kind.BELOW_TABLE})


class Service:
    """
    The Table service, whatever transports its requests.

    Args:
        accounts: Who may sign requests.
        engines: The data of each account, open.
        pages: How many pages of entities may be built at once.
        file_tokens: Whether tokens are good that are signed with the key of an account's file.
    """

    def __init__(self, accounts: Accounts, engines: Mapping[str, Engine], *, pages: int, file_tokens: bool) -> None:
        self.accounts = accounts
        self._file_tokens = file_tokens
        self._engines = dict(engines)
        # A page may have megabytes, and needs much more while it is rows.
        self._pages, self._transactions = asyncio.Semaphore(pages), asyncio.Semaphore(_TRANSACTIONS)
        self._table_changes = TableChanges()

    async def cors_headers(self, place: Place, origin: str, verb: str) -> dict[str, str]:
        """Return the headers that let a page of `origin` read the answer."""
        return cors.headers_of(await read_cors_rules(self._engines[place.account]), origin, verb)

    async def answer(self, incoming: Incoming, on_route: Callable[[str], None]) -> Answer:
        """
        Answer a request.

        Args:
            incoming: The request.
            on_route: Called with the name of the operation, as soon as that is known.

        Raises:
            Fault: The request is rejected.
        """
        engine = self._engines[incoming.place.account]
        if incoming.verb == "OPTIONS":
            on_route("Preflight")
            return cors.answer_preflight(await read_cors_rules(engine), incoming.headers)
        signing_keys = self.accounts.keys(incoming.place.account)
        rights = await authenticate(incoming, signing_keys, engine.access, file_tokens=self._file_tokens)
        resource = resource_of(incoming.place.resource_path)
        request = Request(
            id=incoming.id,
            engine=engine,
            rights=rights,
            verb=effective_verb(incoming.verb, incoming.headers),
            place=incoming.place,
            resource=resource,
            options=incoming.options,
            headers=incoming.headers,
        )
        route = _find_route(request)
        on_route(route.name)
        if route.access is not None:
            keys = (resource.partition_key, resource.row_key) if resource.kind is Kind.ENTITY else None
            authorize(rights, route.access, resource.table, keys)
        if route.writes and incoming.place.secondary:
            raise Fault(Code.INSUFFICIENT_PERMISSIONS, "Write operations are not allowed.")
        check_options(request)
        time_limit = asyncio.timeout(seconds_of(request))
        try:
            async with time_limit:
                return await self._run(route, request, incoming)
        except TimeoutError:
            if not time_limit.expired():
                raise
            raise Fault(
                Code.OPERATION_TIMED_OUT,
                "Operation could not be completed within the permitted time, the timeout of the request.",
            ) from None

    async def _run(self, route: _Route, request: Request, incoming: Incoming) -> Answer:
        resource = request.resource
        if resource.kind in _NEEDS_TABLE:
            check_table_name(resource.table)
            if not await request.engine.has_table(resource.table):
                raise Fault(Code.TABLE_NOT_FOUND, "The table specified does not exist.")
        if route.writes and request.verb != "DELETE":
            request = attrs.evolve(request, body=await incoming.read_body())
        if route.run is run_transaction:
            async with self._transactions:
                return await route.run(request)
        if route.run in (create_table, delete_table):
            return await self._table_changes.run(request.engine, functools.partial(route.run, request))
        if route.run is query_entities:
            async with self._pages:
                return await route.run(request)
        return await route.run(request)


def _find_route(call: Call) -> _Route:
    """
    Find the operation that a request means.

    Raises:
        Fault: MethodNotAllowed, InvalidQueryParameterValue, InvalidUri.
    """
    comp = call.options.get("comp", "")
    verb = "GET" if call.verb == "HEAD" else call.verb
    kind = call.resource.kind
    if kind in _NEEDS_TABLE and call.options.get("restype") == "service":
        # SDKs make a hint of the code and the text.
        raise invalid_parameter("restype, as a table has no service; give the account's URL")
    if kind is Kind.BELOW_TABLE:
        return _Route("Unknown", Action.QUERY, _refuse_below_table)
    route = _ROUTES.get((kind, verb, comp))
    if route is None:
        return _refuse_route(kind, verb, comp)
    if kind is Kind.SERVICE and call.options.get("restype") != "service":
        raise invalid_parameter("restype")
    if route.access is Action.UPDATE and "If-Match" not in call.headers:
        return attrs.evolve(route, name=f"InsertOr{route.name}".replace("Update", "Replace"), access=Action.UPSERT)
    return route


def _refuse_route(kind: Kind, verb: str, comp: str) -> _Route:
    if any(kind is known and comp == other for known, _, other in _ROUTES):
        raise Fault(Code.METHOD_NOT_ALLOWED, f"The resource doesn't support the specified HTTP verb: {verb[:20]}.")
    if not comp:  # everything but the service has some operation without it
        raise Fault(Code.INVALID_URI, "The requested URI does not represent any resource on the server.")
    if kind is Kind.ENTITIES:
        # A missing table is the first thing to tell: clients make a hint of that.
        return _Route("Unknown", Action.QUERY, _refuse_parameter)
    raise invalid_parameter("comp")


async def _refuse_parameter(request: Request) -> Answer:
    raise invalid_parameter(f"comp {request.options.get('comp', '')[:40]!r}")


async def _refuse_below_table(request: Request) -> Answer:
    """Refuse what clients ask for that were given a table's URL as the account's; they make a hint of the answer."""
    verb, rest = request.verb, request.resource.rest
    if verb == "POST" and rest in ("Tables", "Tables()"):
        raise Fault(Code.PROPERTIES_NEED_VALUE, "The values are not specified for all properties in the entity.")
    if verb == "POST" and rest == "$batch":
        raise Fault(Code.MEDIA_TYPE_NOT_SUPPORTED, "None of the provided media types are supported.")
    if verb == "DELETE":
        raise Fault(
            Code.INVALID_INPUT,
            "Bad Request - Error in query syntax. The number of keys specified in the URI does not match number of key "
            "properties for the resource.",
        )
    raise Fault(Code.INVALID_INPUT, "Bad Request - Error in query syntax. A table has no such resource.")
