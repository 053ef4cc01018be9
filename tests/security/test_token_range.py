"""
A narrow token in hostile hands: whatever is asked with it, no row outside of its range is shown or changed.

Which rows are in the range is decided here, by the order of the keys' UTF-16 code units, and by no code of ours.
"""

import itertools
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import quote

import pytest

from tableorm.protocol.sas import TableSas, sign_sas
from tableorm.protocol.shared_key import decode_key
from tableorm.stores import Operation, Row, RowQuery, Verb
from tableorm_local.engine import Engine
from tableorm_local.server import DEVELOPMENT_ACCOUNT, DEVELOPMENT_KEY
from tests.local.server.client import Api
from tests.security.world import serve_file
from tests.torture import seeds

Keys = tuple[str, str]

# Characters that sort otherwise in UTF-16 than by code point, that filters and URLs quote, and a prefix of another key.
TEXTS = ("", "a", "aa", "a'", "b", " ", "%27", "é", "\ud7ff", "\ue000", "\uffff", "\U00010000", "a\uffff", "A")


def units(text: str) -> bytes:
    return text.encode("utf-16-be")


class Attack:
    """A token of a random range and random permissions, and the rows that it opens."""

    def __init__(self, random: Random) -> None:
        self.random = random
        start, end = sorted((self.keys(), self.keys()), key=lambda keys: (units(keys[0]), units(keys[1])))
        self.first = None if random.random() < 0.2 else start
        self.last = None if random.random() < 0.2 or end[1] == "" else end
        self.start_row = random.random() < 0.7
        self.end_row = random.random() < 0.7
        if self.last is not None and self.last[0] == "" and not self.end_row:
            self.last = None
        if self.first and self.last and self.first[0] == self.last[0] and not self.start_row:
            self.first = (self.first[0], "")
        self.letters = random.choice(("raud", "r", "rau", "ad", "d", "u"))

    def keys(self) -> Keys:
        return self.random.choice(TEXTS), self.random.choice(TEXTS)

    def holds(self, row: Row) -> bool:
        """Return whether a row of the table is in the range."""
        partition, key = units(row["PartitionKey"]), units(row["RowKey"])
        if self.first is not None:
            least = units(self.first[0]), units(self.first[1]) if self.start_row else b""
            if (partition, key) < least:
                return False
        if self.last is None:
            return True
        if not self.end_row:
            return partition <= units(self.last[0])
        return (partition, key) <= (units(self.last[0]), units(self.last[1]))

    @property
    def token(self) -> str:
        given: dict[str, Any] = {}
        if self.first is not None:
            given |= {"spk": self.first[0]} | ({"srk": self.first[1]} if self.start_row else {})
        if self.last is not None:
            given |= {"epk": self.last[0]} | ({"erk": self.last[1]} if self.end_row else {})
        sas = TableSas(sv="2019-02-02", tn="Tab", se="2099-01-01", sp=self.letters, **given)
        return sign_sas(sas, DEVELOPMENT_ACCOUNT, decode_key(DEVELOPMENT_KEY))


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[tuple[Engine, Api]]:
    """A file with its owner, and a client of its server."""
    async with serve_file(tmp_path / "data.tables") as world:
        yield world


async def fill(owner: Engine) -> None:
    for table in ("Tab", "Other"):
        await owner.create_table(table)
        for partition, key in itertools.product(TEXTS, TEXTS[::3]):
            await owner.write(table, Operation(Verb.INSERT, {"PartitionKey": partition, "RowKey": key, "A": 0}))


async def outside(owner: Engine, attack: Attack) -> list[Row]:
    """Return every row that the token must not touch, with its ETag."""
    rows = [row for row in (await owner.query("Tab", RowQuery())).rows if not attack.holds(row)]
    return rows + (await owner.query("Other", RowQuery())).rows


async def inside(owner: Engine, attack: Attack) -> list[Keys]:
    rows = (await owner.query("Tab", RowQuery())).rows
    return [(row["PartitionKey"], row["RowKey"]) for row in rows if attack.holds(row)]


def quoted(key: str) -> str:
    return quote(key.replace("'", "''"), safe="")


def address(table: str, keys: Keys) -> str:
    return f"/{table}(PartitionKey='{quoted(keys[0])}',RowKey='{quoted(keys[1])}')"


def spelled(attack: Attack, table: str, keys: Keys) -> str:
    """Return the address of a row as a client might spell it, to be taken for another one."""
    partition, row = quoted(keys[0]), quoted(keys[1])
    own = quoted(attack.first[0]) if attack.first is not None else "a"
    return attack.random.choice(
        [
            address(table, keys),
            f"/{table}(RowKey='{row}',PartitionKey='{partition}')",
            f"/{table}(PartitionKey='{own}',PartitionKey='{partition}',RowKey='{row}')",
            f"/{table}(PartitionKey='{own}',RowKey='a')/../{table}(PartitionKey='{partition}',RowKey='{row}')",
            f"/Tab/..{address('Other', keys)}",
            f"//{table}(PartitionKey='{partition}',RowKey='{row}')",
            f"/{table}%28PartitionKey='{partition}',RowKey='{row}'%29",
            f"/{table}(PartitionKey=%27{partition}%27,RowKey=%27{row}%27)",
            f"/{table}(PartitionKey='{quote(partition, safe='')}',RowKey='{row}')",
        ]
    )


def batch(attack: Attack, parts: list[str]) -> bytes:
    lines = ["--a", "Content-Type: multipart/mixed; boundary=b", ""]
    for part in parts:
        verb = attack.random.choice(("PUT", "MERGE", "PATCH"))
        lines += [
            "--b",
            "Content-Type: application/http",
            "",
            f"{verb} {part} HTTP/1.1",
            "Content-Type: application/json",
        ]
        lines += ["", '{"A":3}']
    return "\r\n".join([*lines, "--b--", "--a--"]).encode()


async def send(api: Api, attack: Attack) -> list[Row]:
    """Send a request at random, well formed or not; return the rows that the answer shows."""
    random, keys = attack.random, attack.keys()
    table = random.choice(("Tab", "Tab", "tab", "Other"))
    one = spelled(attack, table, keys)
    match random.randrange(5):
        case 0:
            reply = await api("GET", one, query=attack.token, scheme=None)
        case 1:
            verb = random.choice(("PUT", "MERGE", "DELETE", "POST"))
            other = dict(zip(("PartitionKey", "RowKey"), attack.keys(), strict=True))
            given = random.choice(({}, {"If-Match": "*"}, {"X-HTTP-Method": "MERGE"}))
            where = one if verb != "POST" else f"/{table}"
            await api(verb, where, {**other, "A": 3}, query=attack.token, headers=given, scheme=None)
            return []
        case 2:
            parts = [
                f"http://x/{api.account}{spelled(attack, table, (keys[0], key))}" for key in random.sample(TEXTS, 2)
            ]
            kind = {"Content-Type": "multipart/mixed; boundary=a"}
            await api("POST", "/$batch", batch(attack, parts), query=attack.token, headers=kind, scheme=None)
            return []
        case 3:
            text = f"PartitionKey {random.choice(('eq', 'ge', 'le', 'ne'))} '{quoted(keys[0])}'"
            places = [
                f"$filter={text.replace(' ', '%20')}",
                "$top=3",
                f"NextPartitionKey={quoted(keys[0])}",
                "$select=A",
            ]
            query = "&".join([*random.sample(places, random.randrange(4)), attack.token])
            reply = await api("GET", f"/{table}()", query=query, headers={"Accept": "application/json"}, scheme=None)
        case _:
            reply = await api("GET", f"/{table}", query=attack.token, scheme=None)
    if reply.status != 200:
        return []
    answer = reply.json
    rows: list[Row] = answer.get("value", [answer])
    return [row for row in rows if "PartitionKey" in row]


@seeds(1, 150)
async def test_over_http(world: tuple[Engine, Api], seed: int) -> None:
    """Plain requests by a token, also such as spell an address oddly, or name a key in the URL and another below it."""
    attack, (owner, api) = Attack(Random(seed)), world
    await fill(owner)
    before = await outside(owner, attack)
    for _ in range(60):
        shown = await send(api, attack)
        assert all(attack.holds(row) for row in shown), attack.token
    assert await outside(owner, attack) == before, attack.token

    everything = await api("GET", "/Tab", query=attack.token, scheme=None)
    if "r" in attack.letters:
        assert [(row["PartitionKey"], row["RowKey"]) for row in everything.rows] == await inside(owner, attack)
    else:
        assert everything.status == 403
