"""
The charset that a server names does not decide what the client reads: XML that hides its entities, or takes long.
"""

import codecs
from collections.abc import Awaitable, Callable

import pytest

from tableorm import Database, TableOrmError
from tests.azure.stub import Answer
from tests.security.world import client_of, gzipped, memory_below

CALLS: dict[str, Callable[[Database], Awaitable[object]]] = {
    "tables": lambda db: db.tables(),
    "queues": lambda db: db.queues.list_queues(),
    "blobs": lambda db: db.blobs.delete("container", "name"),
}
ENTITIES = f'<!DOCTYPE q [<!ENTITY a "{"x" * 280}">]><Error><Code>{"&a;" * 130_000}</Code><Message>m</Message></Error>'
BODIES = {
    "utf-16-le": ENTITIES.encode("utf-16-le"),
    "utf-16-be": ENTITIES.encode("utf-16-be"),
    "utf-7": ENTITIES.replace("<!", "+ADwAIQ-").replace("&", "+ACY-").encode(),
}


@pytest.mark.one_of(3)
@pytest.mark.parametrize("named", [True, False], ids=["named", "not named"])
@pytest.mark.parametrize("charset", list(BODIES))
@pytest.mark.parametrize("what", list(CALLS))
async def test_entities_that_a_charset_hides_are_not_expanded(what: str, charset: str, *, named: bool) -> None:
    """A refusal of some hundred bytes in gzip that is not in UTF-8, whether it says so or not, stays small."""
    kind = f"application/xml; charset={charset}" if named else "application/xml"
    headers = {"Content-Type": kind, "Content-Encoding": "gzip"}
    async with client_of(Answer(400, headers, gzipped(BODIES[charset]))) as (db, _):
        with memory_below(20_000_000), pytest.raises(TableOrmError):
            await CALLS[what](db)


@pytest.mark.parametrize("kind", ["application/json", "application/xml", "text/html"])
@pytest.mark.parametrize("what", list(CALLS))
async def test_an_answer_is_not_decoded_by_the_codec_that_it_names(what: str, kind: str) -> None:
    """Python's codec `punycode` takes time with the square of the length: the client looks up no such name."""
    asked = list[str]()

    def find(name: str) -> codecs.CodecInfo | None:
        asked.append(name)
        return None

    codecs.register(find)
    try:
        answer = Answer(400, {"Content-Type": f"{kind}; charset={what}-{kind[-3:]}"}, b"b-a9")
        async with client_of(answer) as (db, _):
            with pytest.raises(TableOrmError):
                await CALLS[what](db)
    finally:
        codecs.unregister(find)
    assert not asked
