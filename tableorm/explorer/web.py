"""
The explorer in a browser of this machine, by textual-serve: behind a token that is good for one use, on loopback alone.

Whoever has used the token gets a cookie. Other users of the machine have none, and web pages cannot use that of their
reader, since host and origin are checked. Browsers send the cookies of a machine to its servers on all ports, so this
one is for a secret path alone.
"""

import asyncio
import secrets
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from aiohttp import web
from textual_serve.server import Server

_COOKIE = "session"
_HEADERS = {
    "Cache-Control": "no-store",
    # Nothing is loaded from elsewhere; the page has a script and styles within it.
    "Content-Security-Policy": "default-src 'self' 'unsafe-inline' data:; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class _Pages(Server):
    """The pages of textual-serve, without the banner that they print; at the end they do not wait for browsers."""

    async def make_app(self) -> web.Application:
        """Return the application that serves them."""
        self._open = set[Any]()
        return await self._make_app()

    async def handle_websocket(self, request: web.Request) -> web.WebSocketResponse:
        """Run the program of a page until the browser has gone, or the server ends."""
        task = asyncio.current_task()
        self._open.add(task)
        try:
            return await super().handle_websocket(request)
        finally:
            self._open.discard(task)

    async def on_startup(self, app: web.Application) -> None:
        """Print nothing."""

    async def on_shutdown(self, app: web.Application) -> None:
        """End the programs of pages. Their connections are still open, or nobody would wait for the programs."""
        for task in self._open:
            task.cancel()
        if self._open:
            await asyncio.wait(self._open, timeout=3)


class _Gate:
    """
    Lets a browser in that has the token, and afterwards the cookie.

    Attributes:
        token: The token; empty once it was used.
        path: Below it are the pages.
    """

    def __init__(self, host: str) -> None:
        self._host, self._cookie = host, secrets.token_urlsafe(32)
        self.token, self.path = secrets.token_urlsafe(32), f"/{secrets.token_urlsafe(16)}/"

    @web.middleware
    async def check(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        """Handle a request, or refuse it."""
        # Not by the name of another site, to which its owner may have given the address of this machine.
        if request.host == self._host and request.headers.get("Origin") in (None, f"http://{self._host}"):
            if secrets.compare_digest(request.cookies.get(_COOKIE, "").encode(), self._cookie.encode()):
                return await handler(request)
            if self.token and secrets.compare_digest(request.query.get("token", "").encode(), self.token.encode()):
                self.token = ""
                entered = web.HTTPSeeOther(self.path)
                entered.set_cookie(_COOKIE, self._cookie, path=self.path, httponly=True, samesite="Strict")
                raise entered
        raise web.HTTPForbidden(
            text="Open the address that `tableorm browse --web` has printed; it is good for one use."
        )


async def _add_headers(_: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(_HEADERS)


async def serve(command: Sequence[str], port: int, show: Callable[[str], None]) -> None:
    """
    Serve the explorer until the task is cancelled.

    Args:
        command: The program that shows the explorer by textual; one is started for each page that is opened.
        port: The port on loopback; 0 for any that is free.
        show: Called with the address to open, which has the token.
    """
    with socket.create_server(("127.0.0.1", port)) as listener:
        host = f"127.0.0.1:{listener.getsockname()[1]}"
        gate = _Gate(host)
        join = subprocess.list2cmdline if sys.platform == "win32" else shlex.join
        folder = Path(__file__).with_name("pages")
        pages = _Pages(join(command), title="tableorm browse", public_url=f"http://{host}", templates_path=folder)
        app = web.Application(middlewares=[gate.check])
        app.on_response_prepare.append(_add_headers)
        app.add_subapp(gate.path, await pages.make_app())
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        try:
            await web.SockSite(runner, listener).start()
            ended = asyncio.Event()
            for number in (signal.SIGINT, signal.SIGTERM):
                with suppress(NotImplementedError):  # on Windows event loops know no signals
                    asyncio.get_running_loop().add_signal_handler(number, ended.set)
            show(f"http://{host}/?token={gate.token}")
            await ended.wait()
        finally:
            await runner.cleanup()
            await asyncio.sleep(0.5)  # the loop learns that the programs of pages have ended
