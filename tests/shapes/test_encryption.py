"""
Sealed rows and blobs: what is stored of them is read by a second decoder too, and nothing that was changed is ever
opened.
"""

import hashlib
import hmac
import json
import pickle
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.keywrap import aes_key_unwrap

from tableorm import EncodeError, EncryptionError
from tableorm.models.reserved import METADATA
from tableorm.shapes.encryption import ContentKey, new_key, open_key, seal, unseal
from tableorm.shapes.key_ring import KeyRing
from tableorm.shapes.sealed_blob import BlobSeal, new_blob_key
from tableorm.stores import Row, RowAddress

KEYS = {"2025": bytes(range(32)), "2026": bytes(range(32, 64))}
RING = KeyRing(KEYS, wrap_with="2026")
ANN = RowAddress("People", "Oslo", "ann")
NAMES = ("salary", "scan", "note")

PLAIN: Row = {
    "PartitionKey": "Oslo",
    "RowKey": "ann",
    "name": "Ann",
    "age": 5,
    "note": "ä😀",
    "salary": "1250",
    "salary@odata.type": "Edm.Int64",
    "scan": "AP8=",
    "scan@odata.type": "Edm.Binary",
}

# What a row of the first format is, which every later version opens.
STORED: Row = {
    "PartitionKey": "Oslo",
    "RowKey": "ann",
    "name": "Ann",
    "age": 5,
    "salary": "1svK6U61X3+CLoWzc0PN+MVmuh+cqKQkXAhcq4cx8DyB+VxMxWDw4LKkzM6UMUye9w==",
    "salary@odata.type": "Edm.Binary",
    "scan": "d4mHBPkW4hNbGYJX20wGG8w0/36TLQmrGUAzGB0QNQ==",
    "scan@odata.type": "Edm.Binary",
    "note": "cZmixoqNkqlyYgqEYFQKHdh0yCjr5x1umpNyv8NXvCsdie57V2gf",
    "note@odata.type": "Edm.Binary",
    "_en": '8CVSUMw/s9ph0o7i93N6JmN8yWYSyL4aAe1H4vlHHkg= {"format":1,"algorithm":"A256GCM","key":"2026",'
    '"wrapped":"J8wLJXoXLYFmrMMrPwNL07QpLIbw+G4sXy8+4YouKsVJ6Uyrm0junA==",'
    '"commitment":"uRvarIxkRIlKbCbeUMfOg12HpdaqF5Igpegc39jAbaw=",'
    '"tags":{"salary":"+VxMxWDw4LKkzM6UMUye9w==","scan":"G8w0/36TLQmrGUAzGB0QNQ==","note":"bpqTcr/DV7wrHYnue1doHw=="}}',
}


def derive(key: bytes, use: str) -> bytes:
    """HKDF (RFC 5869) without a salt, of one block."""
    extracted = hmac.digest(bytes(32), key, hashlib.sha256)
    return hmac.digest(extracted, f"tableorm sealed row 1 {use}".encode() + b"\1", hashlib.sha256)


def decode(row: Row, address: RowAddress) -> Row:
    """Return a sealed row as it was: written after the page of stored fields, and not after the product."""
    texts = [address.table.lower(), address.partition_key, address.row_key]

    def bound(name: str) -> bytes:
        return b"".join(len(data).to_bytes(4, "big") + data for data in (text.encode() for text in [*texts, name]))

    code, text = row["_en"].split(" ", 1)
    metadata = json.loads(text)
    assert (metadata["format"], metadata["algorithm"]) == (1, "A256GCM")
    key = aes_key_unwrap(KEYS[metadata["key"]], b64decode(metadata["wrapped"]))
    assert derive(key, "commitment") == b64decode(metadata["commitment"])
    assert hmac.digest(derive(key, "metadata"), bound("") + text.encode(), hashlib.sha256) == b64decode(code)
    plain = {name: value for name, value in row.items() if name != "_en" and name.split("@")[0] not in metadata["tags"]}
    for name, tag in metadata["tags"].items():
        sealed = b64decode(row[name])
        assert sealed[-16:] == b64decode(tag)
        opened = AESGCM(derive(key, "values")).decrypt(sealed[:12], sealed[12:], bound(name))
        value: list[Any] = json.loads(opened[1:]) if not opened[0] else [b64encode(opened[1:]).decode(), "Edm.Binary"]
        plain[name] = value[0]
        if len(value) == 2:
            plain[f"{name}@odata.type"] = value[1]
    return plain


async def opened(row: Row, address: RowAddress = ANN, keys: KeyRing = RING) -> Row:
    return unseal(row, NAMES, address, await open_key(row.get(METADATA), address, keys))


async def refuses(row: Row, address: RowAddress = ANN, keys: KeyRing = RING) -> None:
    with pytest.raises(EncryptionError) as caught:
        await opened(row, address, keys)
    assert "1250" not in str(caught.value)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


async def sealed(row: Row = PLAIN, address: RowAddress = ANN) -> tuple[Row, ContentKey]:
    key = await new_key(RING)
    return seal(row, NAMES, address, key), key


async def test_a_row_of_the_first_format_is_opened() -> None:
    """By the product and by another decoder, which both open what is sealed today."""
    assert await opened(STORED) == decode(STORED, ANN) == PLAIN
    row = (await sealed())[0]
    assert await opened(row) == decode(row, ANN) == PLAIN
    assert {name: row[name] for name in ("name", "age")} == {"name": "Ann", "age": 5}
    again = (await sealed())[0]
    assert not {row[name] for name in NAMES} & {again[name] for name in NAMES}


async def test_whatever_is_changed_shows() -> None:
    """Each byte of each value and of the metadata."""
    for name in (*NAMES, METADATA):
        text = STORED[name]
        for at in range(len(text)):
            for other in ("A", "B", "="):
                if text[at] != other:
                    await refuses({**STORED, name: text[:at] + other + text[at + 1 :]})
        for whole in (None, "", 5, text[:-4], text + "AAAA"):
            await refuses({**STORED, name: whole})
    for name in NAMES:
        await refuses({**STORED, f"{name}@odata.type": "Edm.String"})
        await refuses({**STORED, name: PLAIN[name]})
        await refuses({each: value for each, value in STORED.items() if each != name})


async def test_values_keys_and_metadata_are_not_exchanged() -> None:
    """Between properties, rows, tables, versions of a row, and keys."""
    (one, key), (two, _) = await sealed(), await sealed()
    for name in (*NAMES, METADATA):
        await refuses({**one, name: two[name]})
    await refuses({**one, "salary": one["note"], "note": one["salary"]})
    elsewhere = [RowAddress("People", "Oslo", "bob"), RowAddress("People", "Osloa", "nn")]
    for address in (*elsewhere, RowAddress("Others", "Oslo", "ann")):
        await refuses(one, address)
        await refuses((await sealed(address=address))[0])
    assert await opened(one, RowAddress("PEOPLE", "Oslo", "ann")) == PLAIN  # which is the same table
    merged = {**one, **seal({"note": "new"}, NAMES, ANN, key, one[METADATA])}
    await refuses({**merged, "note": one["note"]})
    await refuses({**merged, METADATA: one[METADATA]})
    await refuses(one, keys=KeyRing({"2025": KEYS["2025"]}, wrap_with="2025"))
    await refuses(one, keys=KeyRing({"2026": KEYS["2025"]}, wrap_with="2026"))
    with pytest.raises(EncryptionError, match="another content key"):
        unseal(one, NAMES, ANN, await new_key(RING))


async def test_a_merge_seals_the_metadata_again() -> None:
    """With the tags of what it does not write; a property that is sealed no more may be written as it is."""
    row, key = await sealed()
    merged = {**row, **seal({"salary": 7, "age": 6}, NAMES, ANN, key, row[METADATA])}
    expected = {name: value for name, value in PLAIN.items() if name != "salary@odata.type"}
    assert await opened(merged) == decode(merged, ANN) == {**expected, "salary": 7, "age": 6}
    plain = {**merged, **seal({"note": "open"}, ("salary", "scan"), ANN, key, merged[METADATA])}
    plain.pop("note@odata.type")
    assert unseal(plain, ("salary", "scan"), ANN, key)["note"] == "open"
    with pytest.raises(EncryptionError, match="'note' is not sealed"):
        unseal(plain, NAMES, ANN, key)
    forged = row[METADATA].replace('"salary":"', '"salary":"A')
    with pytest.raises(EncryptionError, match="other metadata"):
        seal({"note": "new"}, NAMES, ANN, key, forged)


async def test_a_row_that_was_read_in_part() -> None:
    """It has what was asked for, and of that nothing may be missing."""
    row, key = await sealed()
    part = {name: row[name] for name in ("salary", "salary@odata.type", METADATA)}
    assert unseal(part, ("salary",), ANN, key, complete=False) == {"salary": "1250", "salary@odata.type": "Edm.Int64"}
    with pytest.raises(EncryptionError, match="'note' was sealed, and is missing"):
        unseal(part, ("salary", "note"), ANN, key, complete=False)


async def test_other_formats_are_refused() -> None:
    """And never tried, even if the rest is right."""
    for old, new in (('"format":1', '"format":2'), ("A256GCM", "A128GCM"), ('"format":1', '"format":"1"')):
        with pytest.raises(EncryptionError, match=r"which this version does not know"):
            await open_key(STORED[METADATA].replace(old, new), ANN, RING)


async def test_a_ring_shows_no_key() -> None:
    """Not in its repr, nor that of a content key or an error; it is not pickled, and refuses what is no key."""
    key = await new_key(RING)
    assert repr(RING) == "KeyRing(2025, 2026; wraps with 2026)"
    assert "AESGCM" not in repr(key)
    assert "_metadata" not in repr(key)
    with pytest.raises(TypeError, match="not pickled"):
        pickle.dumps(RING)
    with pytest.raises(EncryptionError, match="'short' of a KeyRing has to be 32 bytes"):
        KeyRing({"short": b"secret"}, wrap_with="short")
    with pytest.raises(EncryptionError, match="names none of its keys: 2025, 2026"):
        KeyRing(KEYS, wrap_with="2027")


# Blobs

CHUNK = 65_536
BLOB_KEY = b"1" + bytes(range(32))
TOKEN = "7FGUAn7z5ovT"
BLOB = bytes.fromhex("7461626c656f726d20626c6f6220310a74f6cf952780456c6b042defa138ddc4c158695d09107bcabb")


def decode_blob(stored: bytes, key: bytes, token: str) -> bytes:
    """Return the bytes of a sealed blob: written after the page of stored fields, and not after the product."""
    header, body = stored[:16], stored[16:]
    assert (header, key[:1]) == (b"tableorm blob 1\n", b"1")
    chunks = [body[at : at + CHUNK + 16] for at in range(0, len(body), CHUNK + 16)]
    marked = [(number, number == len(chunks) - 1) for number in range(len(chunks))]
    nonces = [number.to_bytes(11, "big") + bytes([last]) for number, last in marked]
    cipher, bound = AESGCM(key[1:]), header + token.encode()
    return b"".join(cipher.decrypt(nonce, chunk, bound) for nonce, chunk in zip(nonces, chunks, strict=True))


async def parts(given: Sequence[bytes]) -> AsyncIterator[bytes]:
    for each in given:
        yield each


async def sealed_blob(*given: bytes, key: bytes = BLOB_KEY, token: str = TOKEN) -> bytes:
    return b"".join([chunk async for chunk in BlobSeal(key, token, "A.b").sealed(parts(given))])


async def opened_blob(
    stored: bytes, total: int, start: int = 0, length: int | None = None, key: bytes = BLOB_KEY, token: str = TOKEN
) -> bytes:
    seal = BlobSeal(key, token, "A.b")
    at, count = seal.stored_range(start, length, total)
    wanted = stored[at : None if count is None else at + count]
    pieces = parts([wanted[n : n + 50_000] for n in range(0, len(wanted), 50_000)])
    return b"".join([chunk async for chunk in seal.opened(pieces, start, length, total)])


async def test_a_blob_of_the_first_format_is_opened() -> None:
    """By the product and by another decoder, whatever pieces it is sent in; what is sealed is always the same."""
    assert await sealed_blob(b"a", b" picture") == BLOB
    assert await opened_blob(BLOB, 9) == decode_blob(BLOB, BLOB_KEY, TOKEN) == b"a picture"
    for size in (0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK, 200_000):
        data = (bytes(range(251)) * 800)[:size]
        stored = await sealed_blob(data[:7], data[7:])
        assert await sealed_blob(data) == stored
        assert await opened_blob(stored, size) == decode_blob(stored, BLOB_KEY, TOKEN) == data
        for start in {0, 1, CHUNK - 1, CHUNK, size - 1} & {*range(size)}:
            for length in (1, 2, CHUNK, size, None):
                assert await opened_blob(stored, size, start, length) == data[start:][:length]


async def refuses_blob(*given: Any, **named: Any) -> None:
    with pytest.raises(EncryptionError, match=r"^the blob of A\.b "):
        await opened_blob(*given, **named)


async def test_whatever_is_changed_in_a_blob_shows() -> None:
    """Each byte; chunks that are cut, repeated, left out or exchanged, also with those of another blob."""
    for at in range(len(BLOB)):
        await refuses_blob(BLOB[:at] + bytes([BLOB[at] ^ 1]) + BLOB[at + 1 :], 9)
        await refuses_blob(BLOB[:at], 9)
    data = bytes(3 * CHUNK)
    stored = await sealed_blob(data)
    header, chunks = stored[:16], [stored[at : at + CHUNK + 16] for at in range(16, len(stored), CHUNK + 16)]
    other = (await sealed_blob(data, key=b"1" + bytes(32)))[16:][: CHUNK + 16]
    last = (await sealed_blob(bytes(CHUNK)))[16:]
    for changed in ([0, 1], [0, 2], [1, 0, 2], [0, 1, 1], [0, 1, 2, 2], [2], [], [0, 1, 2, 1], [0, 2, 1]):
        await refuses_blob(header + b"".join(chunks[at] for at in changed), len(data))
    for one in (other, last):
        await refuses_blob(header + one + chunks[1] + chunks[2], len(data))
    for total in (0, 1, CHUNK, 2 * CHUNK, len(data) - 1, len(data) + 1, 4 * CHUNK):
        await refuses_blob(stored, total)
    for start, length in ((0, 1), (CHUNK, 1), (2 * CHUNK + 5, None)):
        await refuses_blob(header + chunks[2] + chunks[0] + chunks[1], len(data), start, length)
    for key, token in ((b"1" + bytes(32), TOKEN), (BLOB_KEY, "other"), (b"2" + BLOB_KEY[1:], TOKEN), (b"1", TOKEN)):
        await refuses_blob(BLOB, 9, key=key, token=token)
    assert len({new_blob_key() for _ in range(9)}) == 9


async def test_nothing_else_is_sealed_with_the_key_of_a_blob() -> None:
    """A file that was changed before it is sent again is rejected."""
    seal, data = BlobSeal(BLOB_KEY, TOKEN, "Person.photo"), bytes(2 * CHUNK)
    first = [chunk async for chunk in seal.sealed(parts([data]))]
    assert [chunk async for chunk in seal.sealed(parts([data[:5], data[5:]]))] == first
    for changed in (data[:-1], data + b"x", data[:CHUNK], b"x" + data[1:]):
        with pytest.raises(EncodeError, match="comes from a file that was changed while it was sent"):
            [chunk async for chunk in seal.sealed(parts([changed]))]
