"""
Write tokens: nobody draws one that somebody else has.
"""

import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from tableorm import Database, Edm, PropertyBag
from tableorm.models.write_tokens import new_token
from tests.writes.lossy import KNOWN, Known, db
from tests.writes.verbs import write

__all__ = ["db"]


def test_tokens_are_text_of_72_random_bits() -> None:
    """12 characters of base64url."""
    tokens = {new_token() for _ in range(2_000)}
    assert len(tokens) == 2_000
    assert all(len(token) == 12 and token.replace("-", "a").replace("_", "a").isalnum() for token in tokens)


def test_threads_draw_different_tokens() -> None:
    """However they take turns."""

    def draw(_: int) -> list[str]:
        return [new_token() for _ in range(2_000)]

    with ThreadPoolExecutor(8) as pool:
        drawn = list(pool.map(draw, range(8)))
    assert len({token for tokens in drawn for token in tokens}) == 16_000


@pytest.mark.skipif(not hasattr(os, "fork"), reason="capability: the system has no fork")
def test_a_forked_process_draws_its_own() -> None:
    """What was drawn ahead stays with the parent."""
    new_token()
    readable, writable = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writable, "".join(new_token() for _ in range(300)).encode())
        os._exit(0)
    os.close(writable)
    text = b""
    while part := os.read(readable, 65536):
        text += part
    os.waitpid(child, 0)
    theirs = {text[n : n + 12].decode() for n in range(0, len(text), 12)}
    assert len(theirs) == 300
    assert theirs.isdisjoint(new_token() for _ in range(600))


FOREIGN = [bytes(range(9)), b"x", bytes(12), bytes(255 - n for n in range(20))]


@pytest.mark.parametrize("verb", ["save", "replace", "upsert", "upsert over", "merge", "replace in a transaction"])
@pytest.mark.parametrize("value", FOREIGN)
async def test_a_property_of_that_name_and_another_type_is_no_tokens(db: Database, verb: str, value: bytes) -> None:
    """Bytes in `_w` are another program's: a bag writes them back as they are, whatever text stands for them."""
    key = PropertyBag.key("Rows", "p", "plain_a")
    await db.insert(PropertyBag("Rows", "p", "plain_a", {"_w": value, "n": 1}))
    bag = await db.get(key)
    bag["n"] = 2
    await write(db, verb, bag)
    bag["n"] = 3
    await db.save(bag)

    assert dict(await db.get(key)) == dict(bag) == {"_w": value, "n": 3}


async def test_tokens_replace_a_property_of_that_name(db: Database) -> None:
    """A model whose rows carry tokens has no room for another program's property: the name is reserved."""
    await db.insert(PropertyBag("Rows", "p", "known_a", {"EntityType": "Known", "_w": b"\x00" * 9, "more": 1}))
    known = await db.get(Known, id="a")
    known.count = 1
    await db.save(known)
    known.count = 2
    await db.upsert(known)
    await db.replace(known)

    bag = await db.get(KNOWN)
    assert (bag.type_of("_w"), len(bag["_w"].split(",")), bag["count"], bag["more"]) == (Edm.STRING, 2, 2, 1)
