"""
Settings, policies and the key in a file: what is kept, for whom, and how long.
"""

import asyncio
from pathlib import Path

import pytest

from tableorm.protocol.codes import Code, Fault
from tableorm.protocol.sas import AccessPolicy
from tableorm_local.engine import Engine, catalog

_MOST = 16 * 1024


async def test_settings_of_the_file_and_of_tables(memory: Engine) -> None:
    """Each has its own of a name, in any spelling of the table; None removes one, and a deleted table has none."""
    await memory.create_table("Other")
    await memory.settings.change("name", lambda _: b"file")
    await memory.settings.change("name", lambda _: b"shared", "Shared")
    await memory.settings.change("else", lambda _: b"else", "SHARED")

    assert await memory.settings.get("name") == b"file"
    assert await memory.settings.get("name", "sHARED") == b"shared"
    assert await memory.settings.get("else", "Shared") == b"else"
    assert await memory.settings.get("name", "Other") is None
    await memory.settings.change("name", lambda _: None, "Shared")
    assert await memory.settings.get("name", "Shared") is None
    assert await memory.settings.get("else", "Shared") == b"else"
    await memory.delete_table("Shared")
    for table in ("Shared", "\u017fhared"):
        for call in (memory.settings.get("else", table), memory.settings.change("else", lambda _: b"", table)):
            with pytest.raises(Fault) as caught:
                await call
            assert caught.value.code == Code.TABLE_NOT_FOUND
    await memory.create_table("Shared")
    assert await memory.settings.get("else", "Shared") is None
    assert await memory.settings.get("name") == b"file"


async def test_a_setting_at_its_limit(memory: Engine) -> None:
    """A setting may be as large as can be read; a larger one is rejected, and the old one stays."""
    await memory.settings.change("name", lambda _: b"x" * _MOST)
    with pytest.raises(Fault, match=f"'name' has {_MOST + 1} bytes, {_MOST} are allowed") as caught:
        await memory.settings.change("name", lambda _: b"y" * (_MOST + 1))

    assert caught.value.code == Code.INVALID_INPUT
    assert await memory.settings.get("name") == b"x" * _MOST


async def test_policies_by_name(memory: Engine) -> None:
    """A policy that says nothing is one; a name or a table that is not there has none; damage is told."""
    policy = AccessPolicy(start="2024-01-01T00:00:00Z", expiry="2030-01-01T00:00:00Z", permission="r")
    await memory.access.change_policies("Shared", lambda _: {"full": policy, "bare": None})

    assert await memory.access.policies("SHARED") == {"full": policy, "bare": None}
    assert await memory.access.policy("Shared", "full") == policy
    assert await memory.access.policy("Shared", "bare") == AccessPolicy()
    assert await memory.access.policy("Shared", "none") is None
    assert await memory.access.policy("None", "full") is None
    await memory.access.change_policies("Shared", lambda old: {name: old[name] for name in ("bare",)})
    assert await memory.access.policies("Shared") == {"bare": None}
    await memory.access.change_policies("Shared", lambda _: {})
    assert await memory.access.policies("Shared") == {}
    await memory.settings.change("policies", lambda _: b"{", "Shared")
    for call in (memory.access.policies("Shared"), memory.access.policy("Shared", "full")):
        with pytest.raises(Fault, match="list of access policies of a table is damaged"):
            await call


async def test_a_change_of_policies_that_fails(memory: Engine) -> None:
    """What the change raises reaches the caller, and the policies stay."""
    await memory.access.change_policies("Shared", lambda _: {"bare": None})

    def refuse(_: object) -> dict[str, AccessPolicy | None]:
        raise Fault(Code.CONDITION_NOT_MET, "not now")

    with pytest.raises(Fault, match="not now"):
        await memory.access.change_policies("Shared", refuse)
    assert await memory.access.policies("Shared") == {"bare": None}


async def test_the_key_of_a_file_is_made_once(path: Path) -> None:
    """Whoever asks first has it made, also where two programs ask at once; a new one replaces it when that is asked."""
    engines = Engine(path), Engine(path)
    for engine in engines:
        await engine.open()
    assert [await engine.access.keys() for engine in engines] == [(), ()]
    assert not await engines[0].access.rotate_key()
    assert await engines[1].access.keys() == ()
    first, second, *_ = keys = await asyncio.gather(*(engine.access.key() for engine in engines for _ in range(3)))

    assert len(first) == 64
    assert set(keys) == {first}
    assert [await engine.access.keys() for engine in engines] == [(second,)] * 2
    assert await engines[0].access.rotate_key()
    assert await engines[1].access.key() != first
    assert len(await engines[1].access.key()) == 64
    for engine in engines:
        await engine.close()


async def test_spellings_of_a_table(memory: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table is found by any spelling, of which a bounded number is remembered; deleted, it is found by none."""
    monkeypatch.setattr(catalog, "_KNOWN_MAX", 3)
    spellings = ["Shared", "SHARED", "shared", "sHared", "shAred", "shaRed"]
    for _ in range(2):
        for name in spellings:
            assert await memory.has_table(name)
            assert not await memory.has_table(name + "x")
        assert not await memory.has_table("\u017fhared")
    assert len(memory.__dict__["_open"].catalog.__dict__["_known"]) <= 3
    await memory.create_table("Other")
    assert await memory.has_table("other")
    await memory.delete_table("sharED")
    assert [await memory.has_table(name) for name in spellings] == [False] * 6
    assert await memory.has_table("other")
    await memory.create_table("SHARED")
    assert [await memory.has_table(name) for name in spellings] == [True] * 6
    assert await memory.list_tables() == ["Other", "SHARED"]


async def test_to_delete_a_table_is_a_long_step(memory: Engine) -> None:
    """SQLite reads the statements of all tables for it, so it is not done on the event loop."""
    assert await memory.submit(lambda session: list(catalog.drop_table(session, "Shared"))) == [True]
    assert await memory.list_tables() == []
