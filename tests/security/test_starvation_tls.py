"""
What TLS itself has a server do for a client that has no key: handshakes, messages without data, and the end of it.
"""

import ssl
from pathlib import Path

import pytest

from tableorm_local.server.serving import read_certificate


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
