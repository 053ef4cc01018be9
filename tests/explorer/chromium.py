"""
A browser for tests: Debian's Chromium without a window, driven by its debugging protocol.
"""

import asyncio
import base64
import itertools
import shutil
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest


async def wait_until(check: Callable[[], object]) -> None:
    """Return as soon as something is true; the limit of tests ends the waiting."""
    for _ in itertools.count():
        if check():
            return
        await asyncio.sleep(0.05)


class Page:
    """
    A page of the browser.

    Attributes:
        events: What the browser has told of the page, in order: names and parameters.
    """

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []
        self._socket, self._numbers = socket, itertools.count(1)
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}

    async def listen(self) -> None:
        """Take what the browser says, until it is closed."""
        async for message in self._socket:
            said = message.json()
            if "id" in said:
                self._answers.pop(said["id"]).set_result(said)
            else:
                self.events.append((said["method"], said["params"]))

    async def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method of the protocol, and return its result."""
        number = next(self._numbers)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": number, "method": method, "params": parameters})
        said = await answer
        assert "error" not in said, said
        result: dict[str, Any] = said.get("result", {})
        return result

    async def press(self, key: str) -> None:
        """Press a key."""
        code, text = {"Enter": (13, "\r"), "ArrowDown": (40, "")}.get(key, (0, key))
        for kind in ("keyDown", "keyUp"):
            said = {"text": text} if text and kind == "keyDown" else {}
            await self.call("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code, **said)

    async def evaluate(self, expression: str) -> Any:
        """Return the value of a JavaScript expression."""
        found = await self.call("Runtime.evaluate", expression=expression, awaitPromise=True)
        return found["result"].get("value")

    def drawn(self) -> str:
        """Return all that the terminal of the page was told to draw."""
        frames = [said["response"] for name, said in self.events if name == "Network.webSocketFrameReceived"]
        return "".join(
            base64.b64decode(each["payloadData"]).decode(errors="replace") for each in frames if each["opcode"] == 2
        )

    def requested(self) -> list[str]:
        """Return the URLs that the page has asked for, or was kept from asking for."""
        return [said["request"]["url"] for name, said in self.events if name == "Network.requestWillBeSent"]


@asynccontextmanager
async def open_page(folder: Path, url: str) -> AsyncGenerator[Page]:
    """Start the browser with an empty profile, and open a page."""
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("capability: Chromium is not installed")
    options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--window-size=1200,800"]
    process = await asyncio.create_subprocess_exec(
        program,
        *options,
        "--remote-debugging-port=0",
        f"--user-data-dir={folder}",
        "about:blank",
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    port = folder / "DevToolsActivePort"
    try:
        await wait_until(lambda: port.exists() and port.read_text().count("\n"))
        async with aiohttp.ClientSession(f"http://127.0.0.1:{port.read_text().split()[0]}") as client:
            async with client.get("/json/list") as answer:
                (target,) = [each for each in await answer.json() if each["type"] == "page"]
            async with client.ws_connect(target["webSocketDebuggerUrl"], max_msg_size=0) as socket:
                page = Page(socket)
                listening = asyncio.create_task(page.listen())
                for domain in ("Network", "Page", "Runtime"):
                    await page.call(f"{domain}.enable")
                await page.call("Emulation.setFocusEmulationEnabled", enabled=True)
                await page.call("Page.navigate", url=url)
                yield page
                listening.cancel()
    finally:
        process.terminate()
        await process.wait()
