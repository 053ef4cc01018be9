"""
Entity group transactions over HTTP: the frame, the answers, all or nothing.
"""

import json
from collections import Counter
from collections.abc import Generator
from typing import Any

import pytest

from tableorm.protocol.codes import STATUS, Code, Fault
from tableorm_local.engine import Engine
from tableorm_local.server.wire.addressing import Place, part_path
from tests.local.engine.turns import Turns
from tests.local.server.client import Api, Clock, Reply

Part = tuple[str, str, Any, dict[str, str]]
INVALID = "One of the request inputs is not valid: "


def part(verb: str, path: str, body: Any = None, **headers: str) -> Part:
    return verb, path, body, {name.replace("_", "-"): value for name, value in headers.items()}


def insert(row_key: str, partition_key: str = "p", /, **properties: Any) -> Part:
    return part("POST", "/Tab", {"PartitionKey": partition_key, "RowKey": row_key, **properties})


def one(row_key: str) -> str:
    return f"/Tab(PartitionKey='p',RowKey='{row_key}')"


def frame(api: Api, parts: list[Part], end: str = "\r\n") -> bytes:
    """The body of a transaction, as clients write it."""
    lines = ["--batch_a", "Content-Type: multipart/mixed; boundary=changeset_b", ""]
    for number, (verb, path, body, headers) in enumerate(parts):
        lines += ["--changeset_b", "Content-Type: application/http", "Content-Transfer-Encoding: binary"]
        lines += [f"Content-ID: {number}", "", f"{verb} {api.root}/devstoreaccount1{path} HTTP/1.1"]
        if body is not None:
            lines.append("Content-Type: application/json")
        lines += [f"{name}: {value}" for name, value in headers.items()]
        lines += ["", "" if body is None else json.dumps(body)]
    return end.join([*lines, "--changeset_b--", "--batch_a--", ""]).encode()


async def send(api: Api, body: bytes, kind: str = "multipart/mixed; boundary=batch_a") -> Reply:
    return await api("POST", "/$batch", body, Content_Type=kind)


async def transact(api: Api, *parts: Part) -> list[tuple[int, dict[str, str], Any]]:
    """Send it; status, headers and body of each answer, taken apart as strictly as clients do."""
    reply = await send(api, frame(api, list(parts)))
    assert reply.status == 202, reply.body
    return answers_in(reply)


def answers_in(reply: Reply) -> list[tuple[int, dict[str, str], Any]]:
    outer = reply.headers["Content-Type"].partition("boundary=")[2]
    text = reply.body.decode()
    assert text.startswith(f"--{outer}\r\n")
    assert text.endswith(f"--{outer}--\r\n")
    head, _, content = text.partition("\r\n\r\n")
    inner = head.partition("boundary=")[2]
    found: list[tuple[int, dict[str, str], Any]] = []
    if not inner:
        return found
    for piece in content.split(f"--{inner}")[1:-1]:
        part_head, request, rest = piece.split("\r\n\r\n", 2)
        assert "Content-Type: application/http" in part_head
        status, *headers = request.split("\r\n")
        assert status.startswith("HTTP/1.1 ")
        names = dict(line.split(": ", 1) for line in headers)
        found.append((int(status.split()[1]), names, json.loads(rest) if rest.strip() else None))
    return found


async def rows(api: Api) -> dict[str, Any]:
    return {row["RowKey"]: row.get("A") for row in (await api("GET", "/Tab()")).rows}


async def test_every_operation(api: Api) -> None:
    """All six operations in one transaction, in order, each answered with its ETag and Content-ID."""
    for name in "abcd":
        await api("POST", "/Tab", {"PartitionKey": "p", "RowKey": name, "A": 0})

    answers = await transact(
        api,
        insert("new", A=1),
        part("PUT", one("a"), {"A": 1}, If_Match="*"),
        part("PATCH", one("b"), {"A": 1}, If_Match="*"),
        part("POST", one("c"), {"A": 1}, If_Match="*", X_HTTP_Method="MERGE"),
        part("DELETE", one("d"), If_Match="*"),
        part("PUT", one("e"), {"A": 1}),
        part("POST", "/Tab", {"PartitionKey": "p", "RowKey": "g", "A": 1}, Prefer="return-no-content"),
    )

    assert [status for status, _, _ in answers] == [201, 204, 204, 204, 204, 204, 204]
    assert [headers["Content-ID"] for _, headers, _ in answers] == [str(number) for number in range(7)]
    assert answers[0][2]["A"] == 1
    assert answers[6][1]["Preference-Applied"] == "return-no-content"
    assert ["ETag" in headers for _, headers, _ in answers] == [True] * 4 + [False] + [True] * 2
    assert await rows(api) == {"a": 1, "b": 1, "c": 1, "e": 1, "g": 1, "new": 1}
    assert (await api("GET", one("a"))).etag == answers[1][1]["ETag"]


async def test_rules_come_before_operations(api: Api) -> None:
    """Partitions and duplicates are checked before what is wrong with an operation by itself."""
    for bad in (insert("0", Big="x" * 32769), part("POST", "/Tab", [1]), insert("0", Wrong=[1])):
        ((_, headers, body),) = await transact(api, bad, insert("1"), insert("1"))
        assert (headers["x-ms-error-code"], headers["Content-ID"]) == ("InvalidDuplicateRow", "2")
        assert body["odata.error"]["message"]["value"].startswith("2:The batch request contains RowKey '1' twice")


async def test_counts(api: Api) -> None:
    """None is answered with no parts, 100 are done, 101 are rejected."""
    assert await transact(api) == []
    assert len(await transact(api, *(insert(f"{n:03}") for n in range(100)))) == 100

    ((status, headers, body),) = await transact(api, *(insert(f"x{n:03}") for n in range(101)))
    assert (status, headers["x-ms-error-code"], headers["Content-ID"]) == (400, "InvalidInput", "100")
    problem = "100:One of the request inputs is not valid: 100 operations are allowed at most.\n"
    assert body["odata.error"]["message"]["value"].startswith(problem)
    assert len(await rows(api)) == 100


@pytest.mark.parametrize(("step", "together"), [(0.0, 100), (0.0006, 2)])
async def test_a_transaction_is_done_in_slices_of_time(
    api: Api, monkeypatch: pytest.MonkeyPatch, step: float, together: int
) -> None:
    """While its operations are split, read and answered, others get turns after each millisecond."""
    turns, found, take_turns = Turns(), Counter[tuple[str, int]](), Engine.take_turns

    async def count(engine: Engine, steps: Generator[None, None, Any]) -> Any:
        def pass_on() -> Generator[None, None, Any]:
            while True:
                try:
                    next(steps)
                except StopIteration as end:
                    return end.value
                found[str(getattr(steps, "__name__", "")), turns.count] += 1
                yield

        return await take_turns(engine, pass_on())

    monkeypatch.setattr("tableorm_local.engine.engine.time", Clock(step))
    monkeypatch.setattr(Engine, "take_turns", count)
    assert len(await transact(api, *(insert(f"{n:03}") for n in range(100)))) == 100
    await turns.stop()
    for steps in ("read", "_read_steps", "_answer_steps"):
        assert [number for (name, _), number in found.items() if name == steps] == [together] * (100 // together)


@pytest.mark.parametrize("table", ["a//", "Tab//", "Tab/x", "1table", "my_table", "tables"])
async def test_tables_that_cannot_be(api: Api, table: str) -> None:
    """A name that no table can have is InvalidResourceName, also where it looks like a path, so that SDKs say why."""
    for verb, path in (("POST", f"/{table}"), ("PUT", f"/{table}(PartitionKey='p',RowKey='r')")):
        ((status, headers, body),) = await transact(api, insert("0"), part(verb, path, {}))
        assert (status, headers["x-ms-error-code"]) == (400, "InvalidResourceName")
        message = body["odata.error"]["message"]["value"]
        assert message.startswith("1:The specified resource name contains invalid characters")
    assert await rows(api) == {}


async def test_a_query_by_itself(api: Api) -> None:
    """A transaction may be a single query, outside of a change set."""
    await api("POST", "/Tab", {"PartitionKey": "p", "RowKey": "r", "A": 7})

    async def ask(request: str) -> Reply:
        text = f"--batch_a\r\nContent-Type: application/http\r\n\r\n{request} HTTP/1.1\r\n\r\n\r\n--batch_a--"
        reply = await send(api, text.encode())
        assert reply.status == 202
        return reply

    body = (await ask(f"GET {api.root}/devstoreaccount1{one('r')}")).body
    assert b"HTTP/1.1 200 OK\r\n" in body
    assert b'"A":7' in body

    for request, line, said in (
        (f"GET {one('x')}", "404 Not Found", "0:The specified resource does not exist."),
        (
            "GET /Tab()",
            "400 Bad Request",
            f"0:{INVALID}outside of a change set only the query of one entity is allowed.",
        ),
        (
            f"DELETE {one('r')}",
            "400 Bad Request",
            f"0:{INVALID}outside of a change set only the query of one entity is allowed.",
        ),
        (f"GET {one('r').replace('Tab', 'a-b')}", "400 Bad Request", "0:The specified resource name contains invalid"),
        (f"GET {one('r')}?$orderby=A", "501 Not Implemented", "0:The requested operation is not implemented on the"),
    ):
        text = (await ask(request)).body.decode()
        assert f"HTTP/1.1 {line}\r\n" in text
        assert f'"value":"{said}' in text


@pytest.mark.parametrize("code", [Code.SERVER_BUSY, Code.INTERNAL_ERROR, Code.REQUEST_BODY_TOO_LARGE])
async def test_a_fault_of_the_server_is_that_of_the_whole(
    api: Api, monkeypatch: pytest.MonkeyPatch, code: Code
) -> None:
    """Whoever is told so tries all of it again: no operation is to blame, nor the query that there is instead."""

    async def fail(*_: object) -> None:
        raise Fault(code, "not now")

    monkeypatch.setattr(Engine, "transact", fail)
    monkeypatch.setattr(Engine, "get", fail)
    query = f"--batch_a\r\nContent-Type: application/http\r\n\r\nGET {one('r')} HTTP/1.1\r\n\r\n\r\n--batch_a--"
    for body in (frame(api, [insert("0")]), query.encode()):
        reply = await send(api, body)
        assert (reply.status, reply.code, reply.said) == (STATUS[code], code, "not now")


@pytest.mark.parametrize("end", ["\r\n", "\n"])
@pytest.mark.parametrize(
    "kind",
    [
        "multipart/mixed; boundary=batch_a",
        "multipart/mixed;boundary=batch_a",
        'multipart/mixed; boundary="batch_a"',
        "Multipart/Mixed; charset=utf-8; boundary=batch_a",
        "multipart/mixed; boundary=batch_a; charset=utf-8",
        'multipart/mixed; charset="utf-8"; boundary=batch_a',
        'multipart/mixed; note="; boundary=b \\"quoted\\""; Boundary = batch_a',
    ],
)
async def test_spellings_of_the_frame(api: Api, end: str, kind: str) -> None:
    """The boundary may be quoted and stand anywhere, lines may end in LF; text like a boundary is no boundary."""
    body = frame(api, [insert("x", A="--changeset_b--"), part("DELETE", one("y"), If_Match="*")], end)

    ((status, _, _),) = answers_in(await send(api, body, kind))
    assert status == 404
    inner = kind.replace("batch_a", "changeset_b").encode()
    body = frame(api, [insert("x", A="--changeset_b--")], end).replace(b"multipart/mixed; boundary=changeset_b", inner)
    ((status, _, _),) = answers_in(await send(api, body, kind))
    assert status == 201


async def test_hosts_and_paths_of_parts(api: Api) -> None:
    """A part's URL may name another host, have parameters, or be a path."""
    row = {"PartitionKey": "p", "A": 1}
    parts = [
        "POST https://elsewhere.example:99/devstoreaccount1/Tab?$format=application/json;odata=fullmetadata",
        "POST /devstoreaccount1/Tab",
        "POST /Tab",
    ]
    lines = ["--a", "Content-Type: multipart/mixed; boundary=b", ""]
    for number, request in enumerate(parts):
        lines += ["--b", "Content-Type: application/http", "", f"{request} HTTP/1.1", "Host: x", ""]
        lines.append(json.dumps({**row, "RowKey": str(number)}))

    reply = await send(api, "\r\n".join([*lines, "--b--", "--a--"]).encode(), "multipart/mixed; boundary=a")
    answers = answers_in(reply)
    assert [status for status, _, _ in answers] == [201, 201, 201]
    assert "odata.editLink" in answers[0][2]


HEAD = b"--batch_a\r\nContent-Type: multipart/mixed; boundary=changeset_b\r\n\r\n"
PART = b"--changeset_b\r\nContent-Type: application/http\r\n\r\n"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"nothing",
        b"--batch_a",
        b"--batch_a\r\n",
        HEAD,
        HEAD + PART,
        HEAD + PART + b"POST /Tab HTTP/1.1\r\n\r\n{}",
        HEAD + PART + b"POST /Tab HTTP/1.1\r\n\r\n{}\r\n--changeset_b--",
        HEAD + PART + b"POST /Tab\r\n\r\n{}\r\n--changeset_b--\r\n--batch_a--",
        HEAD + PART + b"POST /Tab HTTP/1.1\r\nno header\r\n\r\n{}\r\n--changeset_b--\r\n--batch_a--",
        HEAD + PART + b"POST /Tab HTTP/1.1\r\n: b\r\n\r\n{}\r\n--changeset_b--\r\n--batch_a--",
        HEAD + b"--changeset_b\r\n\r\nPOST /Tab HTTP/1.1\r\n\r\n{}\r\n--changeset_b--\r\n--batch_a--",
        HEAD + b"--changeset_b--\r\n" + HEAD + b"--changeset_b--\r\n--batch_a--",
        HEAD + PART + b"POST /Tab\xff HTTP/1.1\r\n\r\n{}\r\n--changeset_b--\r\n--batch_a--",
        HEAD + PART + b"POST /Tab HTTP/1.1\r\nA: \xff\r\n\r\n{}\r\n--changeset_b--\r\n--batch_a--",
        b"--batch_a\r\nContent-Type: text/plain\r\n\r\nx\r\n--batch_a--",
        b"--batch_a\r\n" + b"A: b\r\n" * 100 + b"\r\n\r\n--batch_a--",
        b"--batch_a\r\n" + b"A" * 70_000 + b"\r\n--batch_a--",
    ],
)
async def test_frames_that_are_broken(api: Api, body: bytes) -> None:
    """A frame that is malformed or cut short is rejected outright."""
    reply = await send(api, body)

    assert (reply.status, reply.code) == (400, "InvalidInput")


@pytest.mark.parametrize(
    "kind",
    [
        *("multipart/mixed", "application/json", "multipart/mixed; boundary=", "text/plain"),
        *('multipart/mixed; x="; boundary=batch_a', 'multipart/mixed; boundary="batch_a', "x; boundary=batch_a"),
    ],
)
async def test_other_content_types(api: Api, kind: str) -> None:
    """Without a boundary it is no transaction."""
    reply = await send(api, frame(api, []), kind)

    assert (reply.status, reply.code) == (415, "MediaTypeNotSupported")


@pytest.mark.parametrize("url", ["http://[::1/Tab", "http://a]b/Tab"])
def test_a_part_whose_url_cannot_be_read_is_refused(url: str) -> None:
    """It is no URL, so that nobody knows which table is meant."""
    place = Place(account="a", secondary=False, path="/a/$batch", resource_path="/$batch", root="http://h/a")

    with pytest.raises(Fault) as caught:
        part_path(place, url)
    assert caught.value.code == Code.INVALID_URI
