"""
Queries over HTTP: filters, selection, order, paging, and which keys a filter makes the server visit.
"""

from typing import Any
from urllib.parse import quote

import pytest

from tests.local.server.client import NO_METADATA, Api, Reply


async def fill(api: Api, count: int, **properties: Any) -> None:
    for number in range(count):
        row = {"PartitionKey": f"p{number % 3}", "RowKey": f"{number:04d}", "N": number, **properties}
        assert (await api("POST", "/Tab", row, Prefer="return-no-content")).status == 204


async def ask(api: Api, where: str, more: str = "") -> Reply:
    return await api("GET", "/Tab()", query=f"$filter={quote(where)}{more}")


async def test_empty_filter(api: Api) -> None:
    """An empty filter is none."""
    await fill(api, 2)

    assert len((await api("GET", "/Tab()", query="$filter=")).rows) == 2
    assert len((await api("GET", "/Tab", query="$filter=%20&$select=&$top=")).rows) == 2


async def test_plus_is_a_space_in_a_query(api: Api) -> None:
    """Query parameters are form-encoded."""
    await fill(api, 3)

    reply = await api("GET", "/Tab()", query="$filter=N+eq+1&$select=N")
    assert [row["N"] for row in reply.rows] == [1]


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("$top=x", "InvalidInput"),
        ("$select=" + ",".join(f"A{n}" for n in range(256)), "InvalidInput"),
        ("$orderby=N", "NotImplemented"),
        ("$skip=1", "NotImplemented"),
        ("$top=1&$top=2", "InvalidQueryParameterValue"),
        ("$filter=%ff", "InvalidQueryParameterValue"),
        ("timeout=x", "InvalidQueryParameterValue"),
        ("timeout=9999999999", "InvalidQueryParameterValue"),
        ("timeout=%C2%B2", "InvalidQueryParameterValue"),
        ("NextPartitionKey=x", "InvalidInput"),
        ("NextPartitionKey=1!3!AAA&NextRowKey=", "InvalidInput"),
        ("comp=what", "InvalidQueryParameterValue"),
        ("timeout=30&$top=1000&sv=1&unknown=2", "InvalidHeaderValue"),
    ],
)
async def test_options_that_are_refused(api: Api, query: str, code: str) -> None:
    """What the service does not have, or cannot read, is rejected and not ignored."""
    reply = await api("GET", "/Tab()", query=query)

    assert (reply.status, reply.code) == (501 if code == "NotImplemented" else 400, code)


async def test_a_page_of_no_rows(api: Api) -> None:
    """`$top=0` gives neither rows nor a continuation, which would lead to the same page for ever."""
    await fill(api, 2)

    for path, query in (("/Tab()", ""), ("/Tab()", "&$filter=N"), ("/Tables", ""), ("/Tables", "&$filter=true")):
        reply = await api("GET", path, query=f"$top=0{query}")
        assert (reply.status, reply.rows) == (200, [])
        assert not [name for name in reply.headers if "continuation" in name.lower()]
    for path, query in (("/Tab()", "&$filter=N%20eq"), ("/Tables", "&NextTableName=x")):
        assert (await api("GET", path, query=f"$top=0{query}")).code == "InvalidInput"
    assert (await api("GET", "/None()", query="$top=0")).code == "TableNotFound"


@pytest.mark.parametrize(
    ("where", "names"),
    [("true", ["Other", "Tab"]), ("false", []), ("not true", []), ("TableName eq 'Tab' and true", ["Tab"])],
)
async def test_true_and_false_on_tables(api: Api, where: str, names: list[str]) -> None:
    """They are conditions on tables too: .NET's health checks ask for the tables that satisfy `false`."""
    await api("POST", "/Tables", {"TableName": "Other"})

    reply = await api("GET", "/Tables", query=f"$filter={quote(where)}")
    assert [row["TableName"] for row in reply.rows] == names


@pytest.mark.parametrize(
    ("where", "status", "code"),
    [
        ("N eq 0", 200, ""),
        ("true", 200, ""),
        ("N eq 0 and PartitionKey eq 'p0'", 200, ""),
        ("N eq 1", 404, "ResourceNotFound"),
        ("false", 404, "ResourceNotFound"),
        ("not (Missing eq 1)", 404, "ResourceNotFound"),
        ("RowKey eq 'other'", 404, "ResourceNotFound"),
        ("N eq", 400, "InvalidInput"),
        ("startswith(RowKey,'a')", 501, "NotImplemented"),
    ],
)
async def test_a_filter_on_a_read_by_keys(api: Api, where: str, status: int, code: str) -> None:
    """An entity that does not satisfy the filter is not found, by itself and in a transaction."""
    await fill(api, 1)
    path, query = "/Tab(PartitionKey='p0',RowKey='0000')", f"$select=N,M&$filter={quote(where)}"

    reply = await api("GET", path, query=query, Accept=NO_METADATA)
    assert (reply.status, "" if reply.status == 200 else reply.code) == (status, code)
    if status == 200:
        assert reply.json == {"N": 0, "M": None}
        assert reply.etag == (await api("GET", path)).etag
    body = f"--b\r\nContent-Type: application/http\r\n\r\nGET {path}?{query} HTTP/1.1\r\n\r\n\r\n--b--".encode()
    batch = await api("POST", "/$batch", body, Content_Type="multipart/mixed; boundary=b")
    assert f"HTTP/1.1 {status} ".encode() in batch.body


@pytest.mark.parametrize(
    ("where", "status"),
    [("true", 200), ("TableName ge 'T'", 200), ("false", 404), ("TableName eq 'X'", 404), ("N", 400)],
)
async def test_a_filter_on_a_table_by_name(api: Api, where: str, status: int) -> None:
    """A table that does not satisfy the filter is not found."""
    assert (await api("GET", "/Tables('Tab')", query=f"$filter={quote(where)}")).status == status


async def test_a_date_in_a_filter_that_no_row_can_have(api: Api) -> None:
    """It has the code of a value out of range."""
    reply = await ask(api, "T ge datetime'0001-01-01T00:00:00Z'")

    assert (reply.status, reply.code) == (400, "OutOfRangeInput")
