"""
Operations on tables: list, get, create, delete.
"""

from collections.abc import Callable, Generator

from tableorm.protocol.codes import Code, Fault
from tableorm.protocol.filters import And, Compare, Filter, Not, Or, matcher
from tableorm.protocol.limits import check_table_name
from tableorm.stores import Row

from ..wire.addressing import table_path
from ..wire.answers import answer_created
from ..wire.bodies import encode_table, encode_tables, read_object
from ..wire.calls import Answer, invalid_input
from ..wire.continuations import first_table, table_continuation
from ..wire.options import check_json_body, level_of, read_filter, top_of
from .request import Request


async def list_tables(request: Request) -> Answer:
    """Answer a page of tables, in the order of their names without regard to case."""
    level, limit = level_of(request), top_of(request)
    where = await request.engine.take_turns(read_filter(request))
    start = first_table(request.options)
    if not limit:
        names = list[str]()
    elif where is None:
        names = await request.engine.list_tables(start, limit + 1)
    else:
        names = await _find_names(request, start, where, limit)
    headers = table_continuation(names[limit].lower()) if len(names) > limit else {}
    body = encode_tables(names[:limit], request.place, level)
    return Answer(200, headers=headers, body=body, content_type=level.content_type)


async def _find_names(request: Request, start: str, where: Filter, limit: int) -> list[str]:
    """Return the names that satisfy a filter, at most one more than `limit`, as that one starts the next page."""
    test, found = _make_test(where), list[str]()
    while len(found) <= limit:
        names = await request.engine.list_tables(start, _NAMES_AT_ONCE)
        found += await request.engine.take_turns(_pass(names, test))
        if len(names) < _NAMES_AT_ONCE:
            break
        start = f"{names[-1].lower()}0"  # no name is between the two
    return found[: limit + 1]


def _pass(names: list[str], test: Callable[[Row], bool]) -> Generator[None, None, list[str]]:
    found = list[str]()
    for name in names:
        if test({"TableName": name}):
            found.append(name)
        yield
    return found


_NAMES_AT_ONCE = 1_000


def _make_test(where: Filter) -> Callable[[Row], bool]:
    """Return the test whether a table satisfies a filter."""
    nodes = [where]
    for node in nodes:
        match node:
            case Compare(name) if name != "TableName":
                raise invalid_input(f"tables have no property {name[:80]!r}, only TableName.")
            case Compare():
                pass
            case Not(term):
                nodes.append(term)
            case And(terms) | Or(terms):
                nodes += terms
    return matcher(where)


async def get_table(request: Request) -> Answer:
    """Answer one table. One that does not satisfy `$filter` does not exist."""
    level = level_of(request)
    check_table_name(request.resource.table)
    where = await request.engine.take_turns(read_filter(request))
    folded = request.resource.table.lower()
    test = None if where is None else _make_test(where)
    for name in await request.engine.list_tables(folded, 1):
        if name.lower() == folded and (test is None or test({"TableName": name})):
            return Answer(200, body=encode_table(name, request.place, level), content_type=level.content_type)
    raise Fault(Code.RESOURCE_NOT_FOUND, "The specified resource does not exist.")


async def create_table(request: Request) -> Answer:
    """Create a table."""
    check_json_body(request)
    level = level_of(request)
    name = read_object(request.body).get("TableName")
    if name is None:
        raise Fault(
            Code.PROPERTIES_NEED_VALUE,
            "The values are not specified for all properties in the entity. TableName is missing.",
        )
    if not isinstance(name, str):
        raise invalid_input("TableName is not text.")
    await request.engine.create_table(name)
    return answer_created(request, table_path(name), lambda: encode_table(name, request.place, level))


async def delete_table(request: Request) -> Answer:
    """Delete a table with its entities and its policies."""
    await request.engine.delete_table(request.resource.table)
    return Answer(204)
