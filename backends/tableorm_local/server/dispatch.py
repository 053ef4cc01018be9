"""
Dispatch: the order in which a request is checked, and the operation that it is.

    account - preflight - version - authentication - authorization - verb and options - table - body - the operation

Source: the order of the service, so that a request with several faults is answered as there.
"""

import asyncio
import datetime as dt
from collections.abc import Awaitable, Callable, Mapping

import attrs

from tableorm.protocol.codes import Code, Fault
from tableorm.protocol.limits import check_table_name
from tableorm.protocol.rights import Rights, authorize, range_of
from tableorm.protocol.sas import Access, AccessPolicy

from ..engine import Engine
from .operations import entities, policies, service_properties, tables, transactions
from .security import cors
from .security.accounts import Accounts
from .security.authentication import Credentials, authenticate
from .wire.addressing import Kind, Place, resource_of
from .wire.calls import Answer, Call
from .wire.options import check_options, effective_verb, options_of, seconds_of

__all__ = ["Incoming", "Service"]


@attrs.frozen(kw_only=True)
class Incoming:
    """
    A request as it arrived.

    Args:
        id: The server's name of it.
        verb: As in the request line.
        methods: The values of `X-HTTP-Method`.
        place: Account and path.
        query: Percent-encoded, without `?`.
        headers: Names in any letter case.
        version: Of the service, that it asks for.
        scheme: `http` or `https`.
        address: Where the connection comes from.
        read_body: Reads all of it.
    """

    id: str
    verb: str
    methods: list[str]
    place: Place
    query: str = attrs.field(repr=False)
    headers: Mapping[str, str] = attrs.field(repr=False)
    version: str
    scheme: str
    address: str
    read_body: Callable[[], Awaitable[bytes]] = attrs.field(repr=False)


@attrs.frozen
class _Asked:
    """An authenticated request, with the data that it is about."""

    id: str
    engine: Engine
    call: Call
    rights: Rights


@attrs.frozen
class _Route:
    """
    An operation.

    Args:
        name: For logs and metrics.
        access: What it needs the right for; None for a transaction, whose parts need theirs.
        run: Does it.
        writes: Whether the secondary location refuses it.
        has_body: Whether its body is read.
    """

    name: str
    access: Access | None
    run: Callable[[_Asked], Awaitable[Answer]]
    writes: bool = False
    has_body: bool = False


async def _query(asked: _Asked) -> Answer:
    return await entities.query(asked.engine, asked.call, range_of(asked.rights))


async def _write(asked: _Asked) -> Answer:
    write = entities.read_write(asked.call)
    # An insert has its keys in the body.
    authorize(asked.rights, entities.access_of_write(asked.call), asked.call.resource.table, write.keys)
    return await entities.write(asked.engine, asked.call, write)


async def _transaction(asked: _Asked) -> Answer:
    return await transactions.run(asked.engine, asked.call, asked.rights, asked.id)


async def _statistics(asked: _Asked) -> Answer:
    return service_properties.statistics(asked.call, dt.datetime.now(dt.UTC))


def _read(name: str, access: Access, run: Callable[[_Asked], Awaitable[Answer]]) -> _Route:
    return _Route(name, access, run)


def _change(name: str, access: Access | None, run: Callable[[_Asked], Awaitable[Answer]]) -> _Route:
    return _Route(name, access, run, writes=True, has_body=not name.startswith("Delete"))


_ROUTES: dict[tuple[Kind, str, str], _Route] = {
    (Kind.SERVICE, "GET", "properties"): _read(
        "GetServiceProperties", Access.GET_PROPERTIES, lambda asked: service_properties.get_properties(asked.engine)
    ),
    (Kind.SERVICE, "PUT", "properties"): _change(
        "SetServiceProperties",
        Access.SET_PROPERTIES,
        lambda asked: service_properties.set_properties(asked.engine, asked.call),
    ),
    (Kind.SERVICE, "GET", "stats"): _read("GetServiceStats", Access.GET_STATISTICS, _statistics),
    (Kind.TABLES, "GET", ""): _read(
        "QueryTables", Access.LIST_TABLES, lambda asked: tables.list_tables(asked.engine, asked.call)
    ),
    (Kind.TABLES, "POST", ""): _change(
        "CreateTable", Access.CREATE_TABLE, lambda asked: tables.create(asked.engine, asked.call)
    ),
    (Kind.TABLE, "GET", ""): _read("GetTable", Access.LIST_TABLES, lambda asked: tables.get(asked.engine, asked.call)),
    (Kind.TABLE, "DELETE", ""): _change(
        "DeleteTable", Access.DELETE_TABLE, lambda asked: tables.delete(asked.engine, asked.call)
    ),
    (Kind.ENTITIES, "GET", "acl"): _read(
        "GetTableACL", Access.GET_POLICIES, lambda asked: policies.get_policies(asked.engine, asked.call)
    ),
    (Kind.ENTITIES, "PUT", "acl"): _change(
        "SetTableACL", Access.SET_POLICIES, lambda asked: policies.set_policies(asked.engine, asked.call)
    ),
    (Kind.ENTITIES, "GET", ""): _read("QueryEntities", Access.QUERY, _query),
    (Kind.ENTITIES, "POST", ""): _change("InsertEntity", Access.INSERT, _write),
    (Kind.ENTITY, "GET", ""): _read("QueryEntity", Access.QUERY, lambda asked: entities.get(asked.engine, asked.call)),
    (Kind.ENTITY, "PUT", ""): _change("UpdateEntity", Access.UPDATE, _write),
    (Kind.ENTITY, "PATCH", ""): _change("MergeEntity", Access.UPDATE, _write),
    (Kind.ENTITY, "MERGE", ""): _change("MergeEntity", Access.UPDATE, _write),
    (Kind.ENTITY, "DELETE", ""): _change("DeleteEntity", Access.DELETE, _write),
    (Kind.TRANSACTION, "POST", ""): _change("EntityGroupTransaction", None, _transaction),
}
_OF_TABLES = frozenset({Kind.ENTITIES, Kind.ENTITY, Kind.BELOW_TABLE})


class Service:
    """
    The Table service, whatever transports its requests.

    Args:
        accounts: Who may sign.
        engines: The data of each account, open.
        pages: How many pages of entities are put together at once.
    """

    def __init__(self, accounts: Accounts, engines: Mapping[str, Engine], *, pages: int) -> None:
        self.accounts = accounts
        self._engines = dict(engines)
        # A page may be megabytes, and much more while it is rows.
        self._pages = asyncio.Semaphore(pages)

    async def policy(self, account: str, table: str, name: str) -> AccessPolicy | None:
        """A stored access policy; None if there is none of that name, or no such table."""
        return await self._engines[account].access.policy(table, name)

    async def keys(self, account: str) -> tuple[bytes, ...]:
        """The key of the account's file: what who has it open signs tokens with."""
        return await self._engines[account].access.keys()

    async def cors_headers(self, place: Place, origin: str, verb: str) -> dict[str, str]:
        """What lets a page of `origin` read the answer."""
        return cors.headers_of(await service_properties.cors_rules(self._engines[place.account]), origin, verb)

    async def answer(self, incoming: Incoming, called: Callable[[str], None]) -> Answer:
        """
        Answer a request.

        Args:
            incoming: The request.
            called: Is told the name of the operation, as soon as it is known.

        Raises:
            Fault: It is refused.
        """
        engine = self._engines[incoming.place.account]
        if incoming.verb == "OPTIONS":
            called("Preflight")
            return cors.preflight(await service_properties.cors_rules(engine), incoming.headers)
        options = options_of(incoming.query)
        rights = await authenticate(_credentials(incoming, options), self.accounts, self)
        resource = resource_of(incoming.place.resource_path)
        verb = effective_verb(incoming.verb, incoming.methods)
        call = Call(verb, incoming.place, resource, options, incoming.headers)
        route = _route_of(call)
        called(route.name)
        if route.access is not None:
            keys = (resource.partition_key, resource.row_key) if resource.kind is Kind.ENTITY else None
            authorize(rights, route.access, resource.table, keys)
        if route.writes and incoming.place.secondary:
            raise Fault(Code.INSUFFICIENT_PERMISSIONS, "Write operations are not allowed.")
        check_options(call)
        asked = _Asked(incoming.id, engine, call, rights)
        in_time = asyncio.timeout(seconds_of(call))
        try:
            async with in_time:
                return await self._run(route, asked, incoming)
        except TimeoutError:
            if not in_time.expired():
                raise
            raise Fault(
                Code.OPERATION_TIMED_OUT,
                "Operation could not be completed within the permitted time, the timeout of the request.",
            ) from None

    async def _run(self, route: _Route, asked: _Asked, incoming: Incoming) -> Answer:
        call, engine = asked.call, asked.engine
        if call.resource.kind in _OF_TABLES:
            check_table_name(call.resource.table)
            if not await engine.has_table(call.resource.table):
                raise Fault(Code.TABLE_NOT_FOUND, "The table specified does not exist.")
        if route.has_body:
            call.body = await incoming.read_body()
        if route.run is _query:
            async with self._pages:
                return await route.run(asked)
        return await route.run(asked)


def _credentials(incoming: Incoming, options: Mapping[str, str]) -> Credentials:
    return Credentials(
        verb=incoming.verb,
        place=incoming.place,
        headers=incoming.headers,
        options=options,
        query=incoming.query,
        version=incoming.version,
        scheme=incoming.scheme,
        address=incoming.address,
        now=dt.datetime.now(dt.UTC),
    )


def _route_of(call: Call) -> _Route:
    """
    The operation.

    Raises:
        Fault: MethodNotAllowed, InvalidQueryParameterValue, InvalidUri.
    """
    comp = call.options.get("comp", "")
    verb = "GET" if call.verb == "HEAD" else call.verb
    kind = call.resource.kind
    if kind is Kind.BELOW_TABLE:
        return _Route("Unknown", Access.QUERY, _refuse_below_table)
    route = _ROUTES.get((kind, verb, comp))
    if route is None:
        return _no_route(kind, verb, comp)
    if kind is Kind.SERVICE and call.options.get("restype") != "service":
        raise _bad_parameter("restype")
    if route.access is Access.UPDATE and "If-Match" not in call.headers:
        return attrs.evolve(route, name=f"InsertOr{route.name}".replace("Update", "Replace"), access=Access.UPSERT)
    return route


def _no_route(kind: Kind, verb: str, comp: str) -> _Route:
    if any(kind is known and comp == other for known, _, other in _ROUTES):
        raise Fault(Code.METHOD_NOT_ALLOWED, f"The resource doesn't support the specified HTTP verb: {verb[:20]}.")
    if kind is Kind.SERVICE and not comp:
        raise Fault(Code.INVALID_URI, "The requested URI does not represent any resource on the server.")
    if kind is Kind.ENTITIES:
        # Whether there is the table is told first: clients make a hint of it.
        return _Route("Unknown", Access.QUERY, _refuse_parameter)
    raise _bad_parameter("comp")


def _bad_parameter(name: str) -> Fault:
    return Fault(
        Code.INVALID_QUERY_PARAMETER,
        f"Value for one of the query parameters specified in the request URI is invalid: {name}.",
    )


async def _refuse_parameter(asked: _Asked) -> Answer:
    raise _bad_parameter(f"comp {asked.call.options.get('comp', '')[:40]!r}")


async def _refuse_below_table(asked: _Asked) -> Answer:
    """Clients that were given a table's URL as that of the account ask for these; they make a hint of the answer."""
    verb, rest = asked.call.verb, asked.call.resource.rest
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
