"""
Operations on tables: list, get, create, delete.
"""

from collections.abc import Callable

from tableorm.protocol.codes import Code, Fault
from tableorm.protocol.filters import And, Compare, Filter, Not, Or, matcher
from tableorm.protocol.limits import check_table_name
from tableorm.stores import Row, TableStore

from ..wire.addressing import table_path
from ..wire.bodies import read_object, write_table, write_tables
from ..wire.calls import Answer, Call
from ..wire.continuations import Continuation
from ..wire.options import check_json_body, filter_of, level_of, prefers_content, top_of

__all__ = ["create", "delete", "get", "list_tables"]


async def list_tables(store: TableStore, call: Call) -> Answer:
    """A page of tables, in the order of their names without regard to case."""
    level, limit, where = level_of(call), top_of(call), filter_of(call)
    start = Continuation.of_tables(call.options)
    test = None if where is None else _test_of(where)
    names = [
        name
        for name in await store.list_tables()
        if (start is None or name.lower() >= start) and (test is None or test({"TableName": name}))
    ]
    headers = Continuation.table_headers(names[limit].lower()) if len(names) > limit else {}
    return Answer(200, headers, write_tables(names[:limit], call.place, level), level.content_type)


def _test_of(where: Filter) -> Callable[[Row], bool]:
    nodes = [where]
    for node in nodes:
        match node:
            case Compare(name) if name != "TableName":
                raise Fault(
                    Code.INVALID_INPUT,
                    f"One of the request inputs is not valid: tables have no property {name[:80]!r}, only TableName.",
                )
            case Compare():
                pass
            case Not(term):
                nodes.append(term)
            case And(terms) | Or(terms):
                nodes += terms
    return matcher(where)


async def get(store: TableStore, call: Call) -> Answer:
    """One table."""
    level = level_of(call)
    check_table_name(call.resource.table)
    folded = call.resource.table.lower()
    for name in await store.list_tables():
        if name.lower() == folded:
            return Answer(200, {}, write_table(name, call.place, level), level.content_type)
    raise Fault(Code.RESOURCE_NOT_FOUND, "The specified resource does not exist.")


async def create(store: TableStore, call: Call) -> Answer:
    """Create a table."""
    check_json_body(call)
    level, content = level_of(call), prefers_content(call)
    name = read_object(call.body).get("TableName")
    if name is None:
        raise Fault(
            Code.PROPERTIES_NEED_VALUE,
            "The values are not specified for all properties in the entity. TableName is missing.",
        )
    if not isinstance(name, str):
        raise Fault(Code.INVALID_INPUT, "One of the request inputs is not valid: TableName is not text.")
    await store.create_table(name)
    url = f"{call.place.root}/{table_path(name)}"
    headers = {"Location": url}
    if content is not None:
        headers["Preference-Applied"] = "return-content" if content else "return-no-content"
    if content is False:
        return Answer(204, headers | {"DataServiceId": url})
    return Answer(201, headers, write_table(name, call.place, level), level.content_type)


async def delete(store: TableStore, call: Call) -> Answer:
    """Delete a table with its entities and its policies."""
    check_table_name(call.resource.table)
    await store.delete_table(call.resource.table)
    return Answer(204)
