"""
The notes example: each user gets a token for that user's own rows, and the server holds everybody to it.
"""

import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from examples.notes import demo
from examples.notes.client import open_notes
from examples.notes.demo import PASSWORDS, Running, running
from examples.notes.models import Note, Profile
from tableorm import AccessDenied

README = Path(demo.__file__).with_name("README.md")


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Running]:
    """The service and the tables, with a profile of each user."""
    async with running(tmp_path, PASSWORDS) as place:
        for user in PASSWORDS:
            await place.owner.insert(Profile(user=user, full_name=user.title()))
        yield place


async def ask(place: Running, password: str) -> tuple[int, Any]:
    """What the service answers."""
    headers = {"Authorization": f"Bearer {password}"}
    async with aiohttp.ClientSession() as session, session.post(f"{place.service}/token", headers=headers) as response:
        return response.status, await response.json() if response.status == 200 else await response.text()


def test_the_demo_prints_what_its_readme_says() -> None:
    """As a program of its own."""
    run = subprocess.run([sys.executable, demo.__file__], capture_output=True, text=True, timeout=120, check=True)

    assert run.stdout in README.read_text(encoding="utf-8")
    assert run.stdout.count("\n") == 4


async def test_each_user_has_their_own_rows(place: Running) -> None:
    """They write, read, change and delete them; of the other's nothing is shown, and nothing can be touched."""
    async with open_notes(place.service, PASSWORDS["ann"]) as ann, open_notes(place.service, PASSWORDS["ken"]) as ken:
        note = ann.mine.new(Note, text="mine")
        await ann.mine.insert(note)
        note.text = "still mine"
        await ann.mine.save(note)
        async with ann.mine.transaction() as tx:
            tx.insert(ann.mine.new(Note, text="another"))
            tx.delete(note)

        assert [each.text for each in await ann.mine.select(Note).all()] == ["another"]
        assert await ken.mine.select(Note).all() == []
        assert [each.user for each in await ken.db.select(Profile).allow_scan().all()] == ["ken"]
        for call in (
            ken.db.get(Profile, user="ann"),
            ken.db.insert(Note(user="ann", text="not mine")),
            ken.mine.get(Profile, user="ann"),
        ):
            with pytest.raises(AccessDenied):
                await call
        assert await place.owner.select(Note).allow_scan().count() == 1


async def test_the_server_refuses_it_too(place: Running) -> None:
    """A token is worth no more in other programs: what our client would not send, the server does not do."""
    _, answer = await ask(place, PASSWORDS["ken"])
    async with aiohttp.ClientSession() as session:
        statuses: list[int] = []
        for user in ("ken", "ann"):
            url = f"{answer['tables']}/Notes(PartitionKey='{user}',RowKey='profile')?{answer['token']}"
            async with session.get(url) as response:
                statuses.append(response.status)
            async with session.delete(url, headers={"If-Match": "*"}) as response:
                statuses.append(response.status)

    assert statuses == [200, 204, 403, 403]
    assert [each.user for each in await place.owner.select(Profile).allow_scan().all()] == ["ann"]


async def test_strangers_get_no_token(place: Running) -> None:
    """Another password, or none, is rejected; a user gets the same token as long as it is good."""
    assert (await ask(place, "guess"))[0] == 401
    assert (await ask(place, ""))[0] == 401
    first, again = await ask(place, PASSWORDS["ann"]), await ask(place, PASSWORDS["ann"])
    assert first == again and first[0] == 200
    assert "spk=ann&epk=ann" in first[1]["token"]
    assert (await ask(place, PASSWORDS["ken"]))[1]["token"] != first[1]["token"]
