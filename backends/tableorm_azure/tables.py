"""
Tables of an account as a `TableStore`: azure-data-tables makes and deletes tables; requests for rows are our own.
"""

import binascii
import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from azure.data.tables.aio import TableServiceClient

from tableorm.errors import shown
from tableorm.protocol.codes import Code, Fault
from tableorm.protocol.filters import to_odata
from tableorm.protocol.limits import check_cosmos_names, check_filter, check_key, check_table_name
from tableorm.stores import (
    METHODS,
    Capabilities,
    Operation,
    Row,
    RowPage,
    RowQuery,
    Verb,
    check_if_match,
    check_page_limit,
    check_transaction,
    check_transaction_size,
    with_index,
)

from .batch import Request, content_type_of, read_etags, write_batch
from .codec import decode_page, decode_row, encode_body, in_ascii
from .faults import body_of, fault_of_response, translated
from .lists import list_names
from .pipeline import Pipeline

# The characters that yarl does not encode in a path, so that the signed path is the path that is sent. Not "+", which
# some read as a space.
_SAFE_IN_PATH = "!$&'()*,;=:@-._~"
_SAFE_IN_QUERY = "!'()*,:@-._~/"

_NEXT_PARTITION, _NEXT_ROW = "x-ms-continuation-NextPartitionKey", "x-ms-continuation-NextRowKey"

_JSON = {"Content-Type": "application/json"}
_NO_CONTENT = {**_JSON, "Prefer": "return-no-content"}


class AzureTables:
    """
    The tables of one account.

    Args:
        url: Their endpoint.
        pipeline: Sends the requests for rows.
        service: The SDK's client of the same endpoint, over the same connections.
        capabilities: The capabilities of the service.
        cosmos: Whether it is Cosmos DB's, where a merge is a POST, and some names of properties are reserved.
        emulated: Whether it is an emulator, which may damage text beyond ASCII.
    """

    def __init__(
        self,
        url: str,
        pipeline: Pipeline,
        service: TableServiceClient,
        capabilities: Capabilities,
        *,
        cosmos: bool = False,
        emulated: bool = False,
    ) -> None:
        self._url, self._pipeline, self.capabilities = url, pipeline, capabilities
        self._service: Any = service  # its own types are incomplete
        self._cosmos, self._ascii = cosmos, emulated

    def __repr__(self) -> str:
        return f"<AzureTables {self._url}>"

    # Tables

    async def create_table(self, table: str) -> None:
        """See `TableStore`."""
        check_table_name(table)
        with translated(write=True):
            await self._service.create_table(table)

    async def delete_table(self, table: str) -> None:
        """See `TableStore`."""
        check_table_name(table)

        def check_status(response: Any) -> None:
            # The SDK raises no error for a table that does not exist.
            http = response.http_response
            if http.status_code == 404:
                raise fault_of_response(404, http.headers, body_of(http), write=True)

        with translated(write=True):
            await self._service.delete_table(table, raw_response_hook=check_status)

    async def list_tables(self) -> list[str]:
        """See `TableStore`."""
        with translated(write=False):
            return sorted(await list_names(self._service.list_tables()), key=str.lower)

    # Rows

    async def get(self, table: str, partition_key: str, row_key: str, select: tuple[str, ...] | None = None) -> Row:
        """See `TableStore`."""
        check_table_name(table)
        url = self._row_url(table, check_key("PartitionKey", partition_key), check_key("RowKey", row_key))
        response = await self._pipeline.send("GET", url if select is None else f"{url}?{_select_option(select)}")
        row = decode_row(response.content, select)
        for name, key in (("PartitionKey", partition_key), ("RowKey", row_key)):
            if row.get(name, None if select is None else key) != key:
                raise Fault(
                    Code.INTERNAL_ERROR,
                    f"The answer is another row than was asked for: its {name} is {shown(row.get(name))}, not {key!r}.",
                )
        return row

    async def query(self, table: str, query: RowQuery, limit: int = 1000, continuation: str | None = None) -> RowPage:
        """See `TableStore`."""
        check_page_limit(limit)
        check_table_name(table)
        options = [f"$top={limit}"]
        where = query.filter
        if where is not None:
            check_filter(where)
            options.append(f"$filter={quote(to_odata(where), safe=_SAFE_IN_QUERY)}")
        if query.select is not None:
            options.append(_select_option(query.select))
        if continuation is not None:
            partition_key, row_key = _read_token(continuation)
            options.append(f"NextPartitionKey={quote(partition_key, safe='')}")
            if row_key is not None:
                options.append(f"NextRowKey={quote(row_key, safe='')}")
        response = await self._pipeline.send("GET", f"{self._url}/{table}()?{'&'.join(options)}")
        headers = response.headers
        # Tested with `in`: azure-core returns None for an empty value, which some servers send for the empty key.
        token: str | None = None
        if _NEXT_PARTITION in headers:
            following_row = (headers.get(_NEXT_ROW) or "") if _NEXT_ROW in headers else None
            token = _write_token(headers.get(_NEXT_PARTITION) or "", following_row)
            if token == continuation:
                raise Fault(Code.INTERNAL_ERROR, "The answer goes on where it began, so the query would never end.")
        return RowPage(decode_page(response.content, query.select), token)

    async def write(self, table: str, operation: Operation) -> str | None:
        """See `TableStore`."""
        check_table_name(table)
        for name in ("PartitionKey", "RowKey"):
            check_key(name, operation.row.get(name))
        method, url, headers, body = self._make_request(table, operation)
        response = await self._pipeline.send(method, url, headers, body)
        return None if operation.verb is Verb.DELETE else _require_etag(response.headers.get("ETag"))

    async def transact(self, table: str, operations: Sequence[Operation]) -> list[str | None]:
        """See `TableStore`."""
        check_table_name(table)
        check_transaction(operations)
        requests: list[Request] = []
        size = 0
        for index, operation in enumerate(operations):
            try:
                request = self._make_request(table, operation)
            except Fault as fault:
                raise with_index(fault, index) from None
            requests.append(request)
            size += len(request[3] or b"")
            check_transaction_size(size)
        boundary, body = write_batch(requests)
        check_transaction_size(len(body))
        response = await self._pipeline.send(
            "POST", f"{self._url}/$batch", {"Content-Type": content_type_of(boundary)}, body
        )
        tags = read_etags(response.content, len(operations))
        return [
            None if operation.verb is Verb.DELETE else _require_etag(tag)
            for operation, tag in zip(operations, tags, strict=True)
        ]

    def _make_request(self, table: str, operation: Operation) -> Request:
        """Return the request of an operation whose table and keys are checked."""
        verb, row = operation.verb, operation.row
        partition_key: str = row["PartitionKey"]
        row_key: str = row["RowKey"]
        if_match = check_if_match(verb, operation.if_match)
        if verb is Verb.DELETE:
            return "DELETE", self._row_url(table, partition_key, row_key), {"If-Match": if_match or "*"}, None
        body = encode_body(operation)
        if self._cosmos:
            check_cosmos_names(row)
        if self._ascii:
            body = in_ascii(body)
        if verb is Verb.INSERT:
            return "POST", f"{self._url}/{table}", _NO_CONTENT, body
        headers = _JSON if if_match is None else {**_JSON, "If-Match": if_match}
        method = METHODS[verb]
        if self._cosmos and method == "PATCH":
            method, headers = "POST", {**headers, "X-HTTP-Method": "MERGE"}
        return method, self._row_url(table, partition_key, row_key), headers, body

    def _row_url(self, table: str, partition_key: str, row_key: str) -> str:
        return f"{self._url}/{table}(PartitionKey='{_quote_key(partition_key)}',RowKey='{_quote_key(row_key)}')"


def _quote_key(key: str) -> str:
    """Return a key in the form that it has between the quotes of a URL."""
    return quote(key.replace("'", "''"), safe=_SAFE_IN_PATH)


def _select_option(names: tuple[str, ...]) -> str:
    # The ETag always comes, so a query for nothing else asks for the shortest property that each row has.
    return f"$select={quote(','.join(names) or 'RowKey', safe=_SAFE_IN_QUERY)}"


def _require_etag(tag: str | None) -> str:
    if tag is None:
        raise Fault(Code.INTERNAL_ERROR, "The answer to a write has no ETag.", doubt=True)
    return tag


# A continuation holds the values of the service's headers in one text, which can be stored and put into a URL.


def _write_token(partition_key: str, row_key: str | None) -> str:
    return urlsafe_b64encode(json.dumps([partition_key, row_key]).encode()).decode("ascii")


def _read_token(token: str) -> tuple[str, str | None]:
    try:
        found: object = json.loads(urlsafe_b64decode(token.encode("ascii")))
    except (ValueError, binascii.Error):
        found = None
    match found:
        case [str() as partition_key, (str() | None) as row_key]:
            return partition_key, row_key
        case _:
            raise Fault(
                Code.INVALID_INPUT, f"The continuation {token[:40]!r} is not one that a page of this store returned."
            )
