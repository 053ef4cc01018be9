"""
What only the check of a whole database file finds, by `tableorm keys rotate`: messages and blobs that somebody else has
made so that later ones vanish, cannot be deleted, or cannot be read.
"""

import asyncio
from pathlib import Path

import pytest

from tableorm.protocol.limits import MAX_MESSAGE_BYTES
from tableorm_local.engine import Engine
from tableorm_local.engine.write_session import now
from tests.commandline import run_command
from tests.security.test_files import craft, path

__all__ = ["path"]

_DAY = 86_400 * 10_000_000


@pytest.fixture
async def full(path: Path) -> Path:
    """A file with two messages, two blobs that were appended to, one that was put, and a key."""
    engine = Engine(path)
    await engine.open()
    await engine.access.key()
    await engine.settings.put("policies", b"{}", "Things")
    await engine.queues.create_queue("queue")
    await engine.blobs.create_container("container")
    for name in ("first", "second"):
        await engine.queues.put("queue", b"message")
        for _ in range(3):
            await engine.blobs.append("container", name, b"data")
    await engine.blobs.put("container", "put", b"x" * 600_000, metadata={"a": "b"})
    await engine.blobs.put("container", "empty", b"")
    await engine.blobs.put("container", "staged", b"x")
    await engine.close()
    return path


async def rotate(path: Path) -> tuple[str, str]:
    """What `tableorm keys rotate` prints, and what it says is wrong."""
    done = await asyncio.to_thread(run_command, "keys", "rotate", str(path))
    assert (done.returncode == 1) is (done.stdout == "")
    return done.stdout, done.stderr


async def test_a_file_with_messages_and_blobs_passes(full: Path) -> None:
    """What the engine itself has written passes, also contents that are staged, deleted, or deleted in part."""
    craft(
        full,
        "INSERT INTO contents VALUES (5, 1 << 62)",
        "INSERT INTO chunks (content, start, data) VALUES (5, 0, x'00')",
        "INSERT INTO contents VALUES (6, 0)",
        "INSERT INTO chunks (content, start, data) VALUES (6, 7, x'00')",
        f"UPDATE messages SET expires = {2**63 - 1}, visible = {2**63 - 1}, receipt = {2**63 - 1} WHERE id = 1",
    )
    printed, errors = await rotate(full)

    assert ("has a new key" in printed, errors) == (True, "")


_OF = "(SELECT content FROM blobs WHERE name = '{}')"
_FIRST = _OF.format("first")
_DAMAGED = {
    "two blobs of one content": (
        (f"UPDATE blobs SET content = {_FIRST} WHERE name = 'second'",),
        "the blob 'first' shares its content with another one",
    ),
    "a content that is to be deleted": (
        (f"UPDATE contents SET until = 1 << 62 WHERE id = {_FIRST}",),
        "the content of the blob 'first' will be deleted",
    ),
    "a content that is not there": (
        (f"DELETE FROM contents WHERE id = {_FIRST}",),
        "the content of the blob 'first' will be deleted",
    ),
    "bytes after the end": (
        (f"INSERT INTO chunks (content, start, data) VALUES ({_FIRST}, 12, x'00')",),
        "the blob 'first' has not as many bytes as it says",
    ),
    "bytes far after the end": (
        (f"INSERT INTO chunks (content, start, data) VALUES ({_FIRST}, 1 << 40, x'00')",),
        "a blob has bytes that overlap, or a gap",
    ),
    "bytes in place of others": (
        (f"UPDATE chunks SET start = 5 WHERE content = {_FIRST} AND start = 4",),
        "a blob has bytes that overlap, or a gap",
    ),
    "a chunk without bytes": (
        (f"INSERT INTO chunks (content, start, data) VALUES ({_FIRST}, 12, x'')",),
        "a blob has bytes that overlap, or a gap",
    ),
    "a length without bytes": (
        ("UPDATE blobs SET length = 10 WHERE name = 'empty'",),
        "the blob 'empty' has not as many bytes as it says",
    ),
    "a blob of a time that there is not": (
        (f"UPDATE blobs SET tick = {2**62} WHERE name = 'put'",),
        "the blob 'put' cannot be read (",
    ),
    "metadata that are no text": (
        ("UPDATE blobs SET metadata = x'5b5d' WHERE name = 'put'",),
        "the blob 'put' cannot be read (",
    ),
    "a blob with a long name": (
        ("UPDATE blobs SET name = replace(hex(zeroblob(100000)), '0', 'x') WHERE name = 'put'",),
        "the blob 'xxxx",
    ),
    "a blob that no request can name": (
        ("UPDATE blobs SET name = 'a//b' WHERE name = 'put'",),
        "the blob 'a//b' cannot be read (",
    ),
    "a container that no request can name": (
        ("UPDATE containers SET name = 'No Name'",),
        "the container 'No Name' cannot be read (",
    ),
    "a queue that no request can name": (
        ("UPDATE queues SET name = 'No Name'",),
        "the queue 'No Name' cannot be read (",
    ),
    "a message of a time that there is not": (
        (f"UPDATE messages SET inserted = {2**62} WHERE id = 2",),
        "the message 2 cannot be read, or not be deleted",
    ),
    "a message of a time before all": (
        ("UPDATE messages SET inserted = -1 WHERE id = 2",),
        "the message 2 cannot be read, or not be deleted",
    ),
    "a message that is visible before all": (
        ("UPDATE messages SET visible = -1 WHERE id = 2",),
        "the message 2 cannot be read, or not be deleted",
    ),
    "a message with a negative number": (
        ("UPDATE messages SET id = -5 WHERE id = 2",),
        "the message -5 cannot be read, or not be deleted",
    ),
    "a message that is too large": (
        (f"UPDATE messages SET body = zeroblob({MAX_MESSAGE_BYTES + 1}) WHERE id = 2",),
        "the message 2 cannot be read, or not be deleted",
    ),
    "a setting that is too large": (
        ("INSERT INTO settings VALUES (0, 'service', zeroblob(20000))",),
        "the setting 'service' is too large",
    ),
    **{
        f"few numbers for {table}": (
            (f"UPDATE sqlite_sequence SET seq = {2**61 + 1} WHERE name = '{table}'",),
            f"{table} has given the number {2**61 + 1}, and few would be left",
        )
        for table in ("catalog", "queues", "messages", "containers")
    },
    "a clock of another age": (
        (f"UPDATE clock SET tick = {8_000 * 366 * _DAY}",),
        "its clock is at 8017-",
    ),
}


@pytest.mark.parametrize(("statements", "problem"), _DAMAGED.values(), ids=_DAMAGED)
async def test_what_the_check_of_a_file_refuses(full: Path, statements: tuple[str, ...], problem: str) -> None:
    """A file is refused whose messages or blobs are in the way of others, or would take them along."""
    craft(full, *statements)
    printed, errors = await rotate(full)

    assert (printed, problem in errors) == ("", True), errors


async def test_an_encoding_that_there_is_not(full: Path) -> None:
    """A file that says that its texts are in no encoding opens, but no table can be deleted; the check refuses it."""
    with full.open("r+b") as file:
        file.seek(56)
        file.write((4).to_bytes(4))
    printed, errors = await rotate(full)

    assert (printed, "must use the same text encoding" in errors) == ("", True)


@pytest.mark.parametrize(("days", "warns"), [(0, False), (40, True), (40_000, None)])
async def test_a_clock_that_is_ahead(full: Path, days: int, warns: bool | None) -> None:
    """What waits for a time waits the longer: the check warns of a clock that is ahead, and refuses a hundred years."""
    craft(full, f"UPDATE clock SET tick = {now() + days * _DAY}")
    printed, errors = await rotate(full)

    assert bool(printed) is (warns is not None)
    assert ("is ahead of this machine's" in errors) is (warns is True)
