"""
The explorer in a browser: who is let in, and what a real one shows.
"""

import asyncio
import json
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import attrs
import pytest

from tableorm import connect
from tests.commandline import COMMAND
from tests.explorer.chromium import Page, open_page, wait_until
from tests.explorer.models import fill
from tests.torture import choose_rounds

ROOT = Path(__file__).parents[2]  # modules of the working directory are found


@attrs.frozen
class Server:
    """A running `tableorm browse --web`."""

    process: asyncio.subprocess.Process
    url: str

    @property
    def origin(self) -> str:
        return self.url.partition("/?")[0]

    def programs(self) -> list[list[str]]:
        """Return the command lines of what it has started, shells included."""
        lines = list[list[str]]()
        left = [self.process.pid]
        while left:
            number = left.pop()
            children = Path(f"/proc/{number}/task/{number}/children").read_text(encoding="ascii").split()
            left += map(int, children)
            lines += [Path(f"/proc/{each}/cmdline").read_text(encoding="utf-8").split("\0") for each in children]
        return lines


@asynccontextmanager
async def serving(folder: Path) -> AsyncGenerator[Server]:
    url = f"local:{folder / 'secret.tables'}"
    async with connect(url) as db:
        await fill(db)
    arguments = ("browse", url, "tests.explorer.models", "--web", "--json")
    process = await asyncio.create_subprocess_exec(
        COMMAND, *arguments, cwd=ROOT, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        yield Server(process, json.loads(await process.stdout.readline())["url"])
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        await process.wait()


async def test_only_the_holder_of_the_token_is_let_in(tmp_path: Path) -> None:
    """The token is good once; then the cookie counts, for the right host and origin, also for web sockets."""
    async with serving(tmp_path) as server, aiohttp.ClientSession() as anyone:

        async def status(url: str, **headers: str) -> int:
            async with anyone.get(url, headers=headers, allow_redirects=False) as answer:
                return answer.status

        foreign = {"Host": "attacker.example"}, {"Origin": "http://attacker.example"}, {"Origin": "null"}
        for url in (server.origin, f"{server.origin}/ws", f"{server.origin}/static/js/textual.js", server.url + "x"):
            assert await status(url) == 403
        for headers in foreign:
            assert await status(server.url, **headers) == 403

        async with anyone.get(server.url, allow_redirects=False) as entered:
            cookie = entered.cookies["session"]
            page = server.origin + entered.headers["Location"]
        assert entered.status == 303 and page == server.origin + cookie["path"]
        assert (cookie["httponly"], cookie["samesite"], cookie["domain"]) == (True, "Strict", "")
        anyone.cookie_jar.clear()
        assert await status(server.url) == 403

        async def connects(**headers: str) -> bool:
            try:
                async with anyone.ws_connect(page + "ws", headers=headers):
                    return True
            except aiohttp.WSServerHandshakeError:
                return False

        known = {"Cookie": f"session={cookie.value}"}
        assert await status(page) == 403 and not await connects()
        assert not await connects(Cookie="session=x") and server.programs() == []
        for headers in foreign:
            assert await status(page, **known, **headers) == 403 and not await connects(**known, **headers)
        async with anyone.get(page, headers=known) as shown:
            assert shown.status == 200 and "default-src 'self'" in shown.headers["Content-Security-Policy"]
            assert shown.headers["Referrer-Policy"] == "no-referrer"
        assert await connects(**known, Origin=server.origin)


@pytest.mark.skipif(sys.platform == "win32", reason="event loops know no signals there")
async def test_an_interrupt_ends_it_with_a_line(tmp_path: Path) -> None:
    """Ctrl-C prints one line, and the status is 0, even while a page is open."""
    jar = aiohttp.CookieJar(unsafe=True)  # it takes cookies of addresses without a name
    async with serving(tmp_path) as server, aiohttp.ClientSession(cookie_jar=jar) as browser:
        async with browser.get(server.url) as page, browser.ws_connect(f"{page.url}ws") as screen:
            await screen.receive()
            server.process.send_signal(signal.SIGINT)
            async for _ in screen:
                pass  # until the server closes it
            _, errors = await server.process.communicate()

        assert server.process.returncode == 0
        assert errors.decode() == "tableorm: stopped; the page is no longer served\n"


LINUX = pytest.mark.skipif(sys.platform != "linux", reason="capability: the browser and /proc are those of Linux")


@LINUX
@pytest.mark.limit(180)
@pytest.mark.torture
@pytest.mark.skipif(not choose_rounds(0, 1), reason="capability: keys come too early on a busy machine")
async def test_a_browser_shows_tables(tmp_path: Path) -> None:
    """
    Chromium gets in, and asks no other machine for anything. Entities are shown by keys alone, and a filter with its
    plan. Once the browser is gone, so are the programs of its pages.
    """
    async with serving(tmp_path) as server:
        async with open_page(tmp_path / "profile", server.url) as page:
            await use(page, server)
        await wait_until(lambda: server.programs() == [])


async def use(page: Page, server: Server) -> None:
    await wait_until(lambda: "Directory" in page.drawn())
    assert await page.evaluate("document.cookie") == ""
    assert "token" not in await page.evaluate("location.href")
    hosts = {urlsplit(url).netloc for url in page.requested() if not url.startswith("data:")}
    assert hosts == {urlsplit(server.url).netloc}
    programs = server.programs()
    assert programs and not any("secret" in argument for line in programs for argument in line)
    await page.press("Enter")
    await wait_until(lambda: "Employee" in page.drawn())
    for key in ("ArrowDown", "ArrowDown", "Enter"):
        await page.press(key)
    await wait_until(lambda: "page 1, 100 rows" in page.drawn())
    assert "empid_" in page.drawn()
    await page.press("/")
    await page.call("Input.insertText", text="department == 'Site07'")
    await wait_until(lambda: "partition scan" in page.drawn())
    await page.press("Enter")
    await wait_until(lambda: "page 1, 1 row," in page.drawn())
