"""
A stub of Cosmos DB's Table API: what it does otherwise than Azure Storage, over the store in plain dictionaries.

Rows come in no order, also inside of a partition and from page to page; a merge is a POST that says so; a request that
comes too often is answered 429 with a wait in milliseconds. It is no Cosmos DB: nothing here was compared with one.
"""

import json
import random
import re
from collections.abc import Coroutine
from typing import Any, TypeVar
from urllib.parse import parse_qs, unquote, urlsplit

from tableorm.protocol.codes import STATUS, Code, Fault
from tableorm.protocol.filter_text import parse_filter
from tableorm.stores import Operation, Row, RowQuery, Verb
from tableorm.testing import MemoryStore
from tests.azure.stub import Answer, Request, batch_answer, error_answer

URL = "http://stub.table.cosmos.azure.com"

T = TypeVar("T")

_JSON = {"Content-Type": "application/json;odata=minimalmetadata"}
_KEYS = re.compile(r"/(\w+)\(PartitionKey='((?:[^']|'')*)',RowKey='((?:[^']|'')*)'\)", re.DOTALL)
_PART = re.compile(rb"\r\n\r\n((?:POST|PUT|DELETE|PATCH) .*?)(?=\r\n--changeset)", re.DOTALL)


class CosmosStub:
    """
    Answers requests; give `answer` to a `Stub` as its handler.

    Args:
        seed: Of the shuffling.
        throttle: Of how many requests one is rejected for its rate; 0 for none.
    """

    def __init__(self, seed: int = 0, throttle: int = 0) -> None:
        self._store = MemoryStore()
        self._chance, self._throttle, self._count = random.Random(seed), throttle, 0

    def answer(self, request: Request) -> Answer:
        """The answer to one request."""
        self._count += 1
        if self._throttle and self._count % self._throttle == 0:
            return error_answer(429, Code.TOO_MANY_REQUESTS, "Request rate is large.", x_ms_retry_after_ms="1")
        try:
            return self._answer(request.method, request.target, request.headers, request.body)
        except Fault as fault:
            text = fault.message if fault.index is None else f"{fault.index}:{fault.message}"
            return error_answer(STATUS[Code(fault.code)], fault.code, text)

    def _answer(self, method: str, target: str, headers: dict[str, str], body: bytes) -> Answer:
        parts = urlsplit(target)
        path, options = unquote(parts.path), parse_qs(parts.query, keep_blank_values=True)
        given = {name: values[0] for name, values in options.items()}
        if path.startswith("/Tables"):
            return self._tables(method, path, body)
        if path == "/$batch":
            return self._batch(body)
        found = _KEYS.fullmatch(path)
        if method == "GET":
            if found is None:
                return self._page(path.strip("/()"), given)
            table, *keys = (text.replace("''", "'") for text in found.groups())
            select = tuple(given["$select"].split(",")) if "$select" in given else None
            row = _now(self._store.get(table, keys[0], keys[1], select))
            return Answer(200, _JSON, json.dumps(row).encode())
        table, operation = _operation(method, path, headers, body)
        tag = _now(self._store.write(table, operation))
        return Answer(204, {} if tag is None else {"ETag": tag})

    def _tables(self, method: str, path: str, body: bytes) -> Answer:
        if method == "GET":
            names = [{"TableName": name} for name in _now(self._store.list_tables())]
            return Answer(200, _JSON, json.dumps({"value": names}).encode())
        if method == "POST":
            name = json.loads(body)["TableName"]
            _now(self._store.create_table(name))
            return Answer(201, _JSON, json.dumps({"TableName": name}).encode())
        _now(self._store.delete_table(path[len("/Tables('") : -len("')")]))
        return Answer(204)

    def _page(self, table: str, given: dict[str, str]) -> Answer:
        where = parse_filter(given["$filter"]) if given.get("$filter") else None
        select = tuple(given["$select"].split(",")) if "$select" in given else None
        rows: list[Row] = []
        token: str | None = None
        while True:
            page = _now(self._store.query(table, RowQuery(where=where, select=select), 1000, token))
            rows, token = rows + page.rows, page.continuation
            if token is None:
                break
        # Another order than that of the keys, and the same for the pages of one query.
        seed = given.get("NextPartitionKey", "").partition("-")[0] or str(self._chance.random())
        random.Random(seed).shuffle(rows)
        start = int(given.get("NextPartitionKey", "").partition("-")[2] or 0)
        end = start + int(given.get("$top", "1000"))
        more = {"x-ms-continuation-NextPartitionKey": f"{seed}-{end}"} if end < len(rows) else {}
        return Answer(200, {**_JSON, **more}, json.dumps({"value": rows[start:end]}).encode())

    def _batch(self, body: bytes) -> Answer:
        operations: list[Operation] = []
        table = ""
        found: list[bytes] = _PART.findall(body)
        for part in found:
            head, _, content = part.partition(b"\r\n\r\n")
            text: str = head.decode()
            line, *lines = text.split("\r\n")
            method, target, _ = line.split(" ")
            headers = {name.lower(): value for name, _, value in (each.partition(": ") for each in lines)}
            table, operation = _operation(method, unquote(urlsplit(target).path), headers, content)
            operations.append(operation)
        try:
            tags = _now(self._store.transact(table, operations))
        except Fault as fault:
            text = fault.message if fault.index is None else f"{fault.index}:{fault.message}"
            return batch_answer(error_answer(STATUS[Code(fault.code)], fault.code, text))
        return batch_answer(*(Answer(204, {} if tag is None else {"ETag": tag}) for tag in tags))


def _operation(method: str, path: str, headers: dict[str, str], body: bytes) -> tuple[str, Operation]:
    found = _KEYS.fullmatch(path)
    if_match = headers.get("if-match")
    if found is None:
        return path.strip("/"), Operation(Verb.INSERT, _row(body))
    table, partition_key, row_key = (text.replace("''", "'") for text in found.groups())
    if method == "DELETE":
        return table, Operation(Verb.DELETE, {"PartitionKey": partition_key, "RowKey": row_key}, if_match)
    if method == "PUT":
        return table, Operation(Verb.INSERT_OR_REPLACE if if_match is None else Verb.REPLACE, _row(body), if_match)
    if method == "POST" and headers.get("x-http-method") == "MERGE":
        return table, Operation(Verb.INSERT_OR_MERGE if if_match is None else Verb.MERGE, _row(body), if_match)
    raise Fault(Code.METHOD_NOT_ALLOWED, f"{method} is not for a row.")


def _row(body: bytes) -> Row:
    row: Row = json.loads(body)
    return {name: value for name, value in row.items() if value != "Edm.Double" or isinstance(row[name[:-11]], str)}


def _now(call: Coroutine[Any, Any, T]) -> T:
    """What a coroutine returns that waits for nothing but its turn, as the store in dictionaries does."""
    while True:
        try:
            call.send(None)
        except StopIteration as stop:
            result: T = stop.value
            return result
