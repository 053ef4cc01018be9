"""
Who may do what: every operation with every set of permissions, within a range of keys, at its edges and outside, with
good tokens and with bad ones. What is expected stands here, from the reference; no code of ours decides it.

Source: REST, "Create a service SAS": permissions and key ranges of tables; "Set Table ACL".
"""

import datetime as dt
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import attrs
import pytest

from tableorm import connect
from tableorm.protocol.codes import Fault
from tableorm.protocol.sas import AccessPolicy, TableSas, sign_sas
from tableorm.protocol.shared_key import decode_key
from tableorm.stores import Bounds, Operation, Row, RowQuery, TableStore, Verb
from tableorm_local import serve
from tableorm_local.engine import Engine
from tableorm_local.server import DEVELOPMENT_KEY

Keys = tuple[str, str]

NEEDS: dict[str, set[str]] = {
    "get": {"r"},
    "query": {"r"},
    "insert": {"a"},
    "merge": {"u"},
    "replace": {"u"},
    "insert-or-merge": {"a", "u"},
    "insert-or-replace": {"a", "u"},
    "delete": {"d"},
}
"""What each operation on entities needs; a table's token allows nothing else."""
WRITES = tuple(name for name in NEEDS if name not in ("get", "query"))
NEVER = ("create-table", "delete-table", "list-tables")
SETS = ["".join(letter for bit, letter in enumerate("raud") if number >> bit & 1) for number in range(1, 16)]

# From the middle of one partition to the middle of another.
RANGE = {"spk": "n", "srk": "c", "epk": "p", "erk": "c"}
INSIDE: dict[Keys, bool] = {
    ("m", "z"): False,
    ("n", "b"): False,
    ("n", "c"): True,  # the first
    ("n", "z"): True,
    ("o", "a"): True,
    ("p", "a"): True,
    ("p", "c"): True,  # the last
    ("p", "d"): False,
    ("q", "a"): False,
}
"""Keys in order, and whether they are in the range."""
EDGES: list[Keys] = [("n", "b"), ("n", "c"), ("p", "c"), ("p", "d")]


def moment(days: int) -> str:
    return (dt.datetime.now(dt.UTC) + dt.timedelta(days=days)).strftime("%Y-%m-%dT%H:%M:%SZ")


def token(letters: str | None, **changes: str | None) -> str:
    given: dict[str, Any] = {"sv": "2019-02-02", "tn": "Tab", "se": moment(1), "sp": letters, **RANGE} | changes
    return sign_sas(TableSas(**given), "devstoreaccount1", decode_key(DEVELOPMENT_KEY))


BAD: dict[str, Callable[[str], str]] = {
    "expired": lambda letters: token(letters, se=moment(-1)),
    "not yet valid": lambda letters: token(letters, st=moment(1), se=moment(2)),
    "tampered: range": lambda letters: token(letters).replace("epk=p", "epk=z"),
    "tampered: permissions": lambda letters: token("r").replace("sp=r", f"sp={letters}") if letters != "r" else "sig=x",
    "tampered: signature": lambda letters: token(letters).replace("sig=", "sig=A"),
    "revoked policy": lambda letters: token(letters, si="gone"),
    "expiry in the policy too": lambda letters: token(letters, si="good"),
    "expired policy": lambda letters: token(letters, si="old", se=None),
    "of another table": lambda letters: token(letters, tn="Other"),
}


@attrs.frozen
class Place:
    """
    Where tokens are tried.

    Args:
        owner: The data, with all rights.
        tables: The tables as a token opens them; the function gets the token.
    """

    owner: Engine
    tables: Callable[[str], Awaitable[TableStore]]


def keep_unguarded(store: TableStore, *_: object) -> TableStore:
    """Return the store itself, in place of its guard."""
    return store


@pytest.fixture(params=["in process", "mapper over HTTP", "unguarded over HTTP"])
async def place(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Place]:
    """The engine in process, our server by `connect(url, sas=...)`, and by a client that refuses nothing itself."""
    path = tmp_path / "data.tables"
    if request.param == "unguarded over HTTP":
        monkeypatch.setattr("tableorm_azure.backend.GuardedStore", keep_unguarded)
    async with AsyncExitStack() as stack:
        owner = Engine(path)
        await owner.open()
        stack.push_async_callback(owner.close)
        for table in ("Tab", "Other"):
            await owner.create_table(table)
        policies = {"good": AccessPolicy(expiry=moment(1)), "old": AccessPolicy(expiry=moment(-1))}
        await owner.access.change_policies("Tab", lambda _: policies)
        for keys in INSIDE:
            await owner.write("Tab", Operation(Verb.INSERT, row_of(keys)))
        opened: dict[str, TableStore] = {}
        url = f"local:{path}"
        key: str | None = DEVELOPMENT_KEY
        if request.param != "in process":
            url, key = (await stack.enter_async_context(serve(path, port=0))).url, None

        async def tables(sas: str) -> TableStore:
            if sas not in opened:
                opened[sas] = (await stack.enter_async_context(connect(url, key=key, sas=sas))).store
            return opened[sas]

        yield Place(owner, tables)


def row_of(keys: Keys) -> Row:
    return {"PartitionKey": keys[0], "RowKey": keys[1], "A": 1}


def operation_of(name: str, keys: Keys) -> Operation:
    verb = Verb(name)
    row = {"PartitionKey": keys[0], "RowKey": keys[1]} if verb is Verb.DELETE else row_of(keys)
    return Operation(verb, row, "*" if name in ("merge", "replace", "delete") else None)


async def do(tables: TableStore, name: str, keys: Keys, *, transaction: bool = False) -> Any:
    """Do an operation as it was named."""
    match name:
        case "get":
            return await tables.get("Tab", *keys)
        case "query":
            return (await tables.query("Tab", RowQuery(Bounds.only(keys[0])))).rows
        case "create-table":
            return await tables.create_table("Third")
        case "delete-table":
            return await tables.delete_table("Other")
        case "list-tables":
            return await tables.list_tables()
        case _:
            operation = operation_of(name, keys)
            return await (tables.transact("Tab", [operation]) if transaction else tables.write("Tab", operation))


async def code_of(tables: TableStore, name: str, keys: Keys, *, transaction: bool = False) -> str | None:
    """The code that an operation is rejected with; None if it is done."""
    try:
        await do(tables, name, keys, transaction=transaction)
    except Fault as fault:
        return fault.code
    return None


async def state(owner: Engine) -> list[Row]:
    return (await owner.query("Tab", RowQuery())).rows


async def prepare(owner: Engine, name: str, keys: Keys) -> None:
    """Let there be such a row, or not, so that nothing but a missing right can refuse the operation."""
    if name == "insert":
        await owner.write("Tab", operation_of("insert-or-replace", keys))
        await owner.write("Tab", operation_of("delete", keys))
    else:
        await owner.write("Tab", operation_of("insert-or-replace", keys))


def why_not(name: str, letters: str, keys: Keys) -> set[str]:
    """
    The codes that a refusal may have, as the reference says: of the right that is missing, or of the range that was
    left; none if the operation is allowed. A query is never rejected for its range; it shows less.
    """
    lacking = set[str]() if NEEDS[name] <= set(letters) else {"AuthorizationPermissionMismatch"}
    return lacking | (set() if INSIDE[keys] or name == "query" else {"AuthorizationFailure"})


@pytest.mark.one_of(3)
async def test_good_tokens(place: Place) -> None:
    """Each operation is done exactly where the permissions suffice and the row is in the range."""
    for letters in SETS:
        tables, before = await place.tables(token(letters)), await state(place.owner)
        for name in NEVER:
            assert await code_of(tables, name, ("o", "a")) == "AuthorizationFailure"
        tried = [(name, keys, False) for name in NEEDS for keys in INSIDE]
        tried += [(name, keys, True) for name in WRITES for keys in EDGES]
        for name, keys, tx in tried:
            if refused := why_not(name, letters, keys):
                assert await code_of(tables, name, keys, transaction=tx) in refused, (letters, name, keys, tx)
        assert await state(place.owner) == before
        for name, keys, tx in tried:
            if name != "query" and not why_not(name, letters, keys):
                await prepare(place.owner, name, keys)
                assert await code_of(tables, name, keys, transaction=tx) is None, (letters, name, keys, tx)
        for keys in INSIDE:
            await prepare(place.owner, "get", keys)
        if "r" in letters:
            for partition in "mnopq":
                found = await do(tables, "query", (partition, ""))
                expected = [keys for keys, inside in INSIDE.items() if inside and keys[0] == partition]
                assert [(row["PartitionKey"], row["RowKey"]) for row in found] == expected
            everything = (await tables.query("Tab", RowQuery())).rows
            assert [(row["PartitionKey"], row["RowKey"]) for row in everything] == [k for k in INSIDE if INSIDE[k]]


@pytest.mark.one_of(5)
@pytest.mark.parametrize("how", BAD)
async def test_bad_tokens(place: Place, how: str) -> None:
    """A token that is not good opens nothing, whatever its permissions, and nothing changes."""
    before = await state(place.owner)
    for letters in (SETS[0], SETS[-1]):
        tables = await place.tables(BAD[how](letters))
        for name in (*NEEDS, *NEVER):
            for keys in (("n", "c"), ("q", "a")):
                for tx in (False, True) if name in WRITES else (False,):
                    code = await code_of(tables, name, keys, transaction=tx)
                    expected = {"AuthenticationFailed", "AuthorizationFailure", "AuthorizationPermissionMismatch"}
                    assert code in expected, (letters, name, keys, tx)

    assert await state(place.owner) == before


@pytest.mark.one_of(3)
async def test_policies_supply_what_tokens_lack(place: Place) -> None:
    """Permissions and expiry may stand in the policy; changing it changes the token, removing it ends it."""
    tables = await place.tables(token(None, si="live", se=None))
    at: Keys = ("o", "a")
    for letters in SETS:
        policy = AccessPolicy(expiry=moment(1), permission=letters)
        await place.owner.access.change_policies("Tab", lambda _, policy=policy: {"live": policy})  # type: ignore[misc]
        for name in NEEDS:
            await prepare(place.owner, name, at)
            expected = "AuthorizationPermissionMismatch" if why_not(name, letters, at) else None
            assert await code_of(tables, name, at) == expected, (letters, name)
            assert (await code_of(tables, name, ("q", "a")) is None) is (name == "query" and "r" in letters)
    await place.owner.access.change_policies("Tab", lambda _: {})
    for name in NEEDS:
        assert await code_of(tables, name, at) == "AuthenticationFailed"


async def test_a_transaction_is_refused_for_one_operation(place: Place) -> None:
    """One operation without its right, or outside, and none is done."""
    before = await state(place.owner)
    tables = await place.tables(token("au"))
    for name, keys in (("delete", ("n", "z")), ("merge", ("n", "b"))):
        operations = [operation_of("insert", ("n", "d")), operation_of(name, keys)]
        with pytest.raises(Fault, match="Authorization"):
            await tables.transact("Tab", operations)

    assert await state(place.owner) == before
