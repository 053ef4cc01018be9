"""
Write tokens: nobody draws one that somebody else has.
"""

import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from tableorm.writes.write_tokens import new_token, tokens_of, with_token


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


def test_a_tail_keeps_the_last_three() -> None:
    """Newest first."""
    row: dict[str, object] = {"_w": with_token(("b", "c", "d"), "a")}
    assert tokens_of(row) == ("a", "b", "c")
