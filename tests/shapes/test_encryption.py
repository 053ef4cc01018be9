"""
Sealed rows: what is stored of them is read by a second decoder too, and nothing that was changed is ever opened.
"""

import hashlib
import hmac
import json
import pickle
from base64 import b64decode, b64encode
from typing import Any

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.keywrap import aes_key_unwrap

from tableorm import EncryptionError
from tableorm.models.reserved import METADATA
from tableorm.shapes.encryption import ContentKey, new_key, open_key, seal, unseal
from tableorm.shapes.key_ring import KeyRing
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
