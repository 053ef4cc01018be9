"""
What TLS itself has a server do for a client that has no key: handshakes, messages without data, and the end of it.
"""

import asyncio
import gc
import logging
import socket
import ssl
import weakref
from asyncio.sslproto import SSLProtocol
from collections import Counter
from contextlib import suppress
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tableorm_local import serve
from tableorm_local.server.front import tls
from tableorm_local.server.front.limits import Budget, Limits
from tableorm_local.server.serving import read_certificate
from tests.security.world import speak_tls, until

UPLOAD = (
    b"POST /devstoreaccount1/Tab HTTP/1.1\r\nHost: 127.0.0.1\r\nExpect: 100-continue\r\nContent-Length: 1000000\r\n\r\n"
)


def extension(number: int, content: bytes) -> bytes:
    return number.to_bytes(2, "big") + len(content).to_bytes(2, "big") + content


def client_hello(group: int, share: bytes) -> bytes:
    """The first message of a client of TLS 1.3 that can do nothing but one group."""
    named = group.to_bytes(2, "big")
    key = named + len(share).to_bytes(2, "big") + share
    extensions = b"".join(
        [
            extension(43, b"\x02\x03\x04"),  # the version
            extension(13, b"\x00\x04\x04\x03\x08\x04"),  # signatures
            extension(10, b"\x00\x02" + named),  # groups
            extension(51, len(key).to_bytes(2, "big") + key),
        ]
    )
    body = b"\x03\x03" + bytes(32) + b"\x00" + b"\x00\x02\x13\x01" + b"\x01\x00"
    body += len(extensions).to_bytes(2, "big") + extensions
    message = b"\x01" + len(body).to_bytes(3, "big") + body
    return b"\x16\x03\x01" + len(message).to_bytes(2, "big") + message


@pytest.mark.parametrize(("group", "size"), [(0x100, 256), (0x102, 512), (0x104, 1024)])
def test_a_client_chooses_no_group_that_takes_long(certificate: Path, group: int, size: int) -> None:
    """
    A client that offers the group ffdhe8192 alone is refused: the server computes 0.2 s for a message of 1 KB that
    anybody can send again and again.
    """
    arrived, leaving = ssl.MemoryBIO(), ssl.MemoryBIO()
    channel = read_certificate(certificate, None).wrap_bio(arrived, leaving, server_side=True)
    arrived.write(client_hello(group, b"\x02" * size))
    with pytest.raises(ssl.SSLError, match=r"(?i)share|handshake fail"):
        channel.do_handshake()


def connect(server_port: int) -> socket.socket:
    made = socket.create_connection(("127.0.0.1", server_port))
    made.setblocking(False)
    return made


async def test_messages_that_bring_no_data_take_turns(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    12 connections of one address send 600 messages of TLS at once, each with a byte. In one turn of the event loop the
    server decrypts a piece of what one of them has sent, not everything that all have sent.
    """
    clock = count()
    monkeypatch.setattr(tls, "time", SimpleNamespace(perf_counter=lambda: next(clock) / 100))
    context = ssl.create_default_context(cafile=str(certificate))
    loop, turn, decrypted, sizes = asyncio.get_running_loop(), 0, Counter[int](), list[int]()
    decrypt = SSLProtocol.buffer_updated

    def count_turn() -> None:
        nonlocal turn
        turn += 1
        loop.call_soon(count_turn)

    def note(self: SSLProtocol, nbytes: int) -> None:
        decrypted[turn] += 1
        sizes.append(nbytes)
        decrypt(self, nbytes)

    async with serve(None, port=0, cert=certificate) as server:
        connections = [connect(server.port) for _ in range(12)]
        senders = [await speak_tls(each, context) for each in connections]
        for send in senders:
            await send(b"GET /healthz HTTP/1.1\r\nX: ")
        await asyncio.sleep(0.2)
        monkeypatch.setattr(SSLProtocol, "buffer_updated", note)
        count_turn()
        for send in senders:
            await send(*[b"x"] * 600)
        await until(lambda: sum(sizes) >= 12 * 600 * 23)
        for each in connections:
            each.close()
    assert max(decrypted.values()) == 1
    assert max(sizes) <= 8 * 1024


async def test_a_connection_ends_with_its_client(certificate: Path, budgets: dict[str, Budget]) -> None:
    """
    A client sends a part of a body that nobody reads, and ends the connection. The server ends it too: otherwise it
    would keep its place until the process ends.
    """
    context = ssl.create_default_context(cafile=str(certificate))
    async with serve(None, port=0, cert=certificate, limits=Limits(stop_seconds=0.5)) as server:
        connections = [connect(server.port) for _ in range(3)]
        for each in connections:
            send = await speak_tls(each, context)
            await send(UPLOAD, b"x" * 200_000)
            each.shutdown(socket.SHUT_WR)
        places = budgets["too many connections are open"]
        await until(lambda: places.used == 0)
        for each in connections:
            each.close()


async def test_junk_behind_a_handshake_is_not_logged(
    certificate: Path, budgets: dict[str, Budget], caplog: pytest.LogCaptureFixture
) -> None:
    """What is no message of TLS, together with the end of the handshake, ends the connection and logs no error."""
    context = ssl.create_default_context(cafile=str(certificate))
    caplog.set_level(logging.WARNING)
    async with serve(None, port=0, cert=certificate, limits=Limits(stop_seconds=0.5)) as server:
        for _ in range(10):
            made = connect(server.port)
            send = await speak_tls(made, context)
            await send(junk=b"\x17\x03\x03\x00\x35" + b"x" * 53)
            await asyncio.sleep(0.01)
            made.close()
        places = budgets["too many connections are open"]
        await until(lambda: places.used == 0)
    assert not caplog.records


async def test_who_goes_with_the_end_of_the_handshake_keeps_no_place(
    certificate: Path, budgets: dict[str, Budget], monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Connections that end in the moment in which they agree upon a key give back their places, and no task is kept. Who
    does not answer has as long for the end of TLS as for its begin.
    """
    loop = asyncio.get_running_loop()
    start_tls, context = loop.start_tls, ssl.create_default_context(cafile=str(certificate))
    agreed, tasks, patience = asyncio.Queue[None](), list["weakref.ref[Any]"](), set[tuple[Any, Any]]()

    async def start_and_end(*arguments: Any, **more: Any) -> asyncio.Transport | None:
        patience.add((more.get("ssl_handshake_timeout"), more.get("ssl_shutdown_timeout")))
        made = await start_tls(*arguments, **more)
        assert made is not None
        made.abort()
        await asyncio.sleep(0.01)
        tasks.append(weakref.ref(asyncio.current_task()))
        agreed.put_nowait(None)
        return made

    async with serve(None, port=0, cert=certificate, limits=Limits(tls_connections=4, handshake_seconds=9.0)) as server:
        with monkeypatch.context() as patched:
            patched.setattr(loop, "start_tls", start_and_end)
            for _ in range(5):
                with suppress(OSError):
                    _, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=context)
                    writer.transport.abort()
                await agreed.get()
        places, beginning = budgets["too many connections are open"], budgets["too many connections begin"]
        await until(lambda: places.used == beginning.used == 0)
        _, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=context)
        writer.transport.abort()
        gc.collect()
        assert [each() for each in tasks] == [None] * 5
    assert patience == {(9.0, 9.0)}
