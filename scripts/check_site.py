"""
Check the site that `make docs` has built: links and anchors, and in Chromium what readers see and searches find.

Without Chromium only links and anchors are checked. CHROMIUM names the program, if it is not on the path.
"""

import asyncio
import functools
import http.server
import itertools
import os
import re
import shutil
import sys
import tempfile
import threading
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager, suppress
from html.parser import HTMLParser
from typing import Any
from urllib.parse import unquote, urldefrag, urljoin

import aiohttp

from scripts.docs_pages import ROOT

SITE = ROOT / "site"

SEARCHES = {
    "pagination": "cookbook/web/",
    "batch": "writing/bulk/",
    "optimistic locking": "writing/concurrency/",
    "managed identity": "stores/azure/",
    "connection string": "stores/azure/",
    "relationship": "reading/relations/",
    "performance": "performance/",
    "SQLAlchemy": "faq/",
    "unique constraint": "derived/indexes/",
    "TTL": "writing/expiry/",
    "migration": "changes/fields/",
    "log tail": "reading/log-tails/",
    "soft delete": "cookbook/web/",
    "multi-tenant": "cookbook/web/",
    "event sourcing": "cookbook/history/",
    "delete old rows": "writing/expiry/",
    "count rows": "derived/counts/",
    "count": "derived/counts/",
    "unique": "derived/indexes/",
    "backup": "operation/copy/",
    "encryption": "models/encryption/",
    "blob": "models/blobs/",
    "partition key": "models/keys/",
    "time series": "models/series/",
    "infinite scroll": "faq/",
    "leader election": "faq/",
    "rename column": "faq/",
    "change data capture": "faq/",
    "type checking": "faq/",
    "sliding expiration": "cookbook/web/",
    "multitenancy": "cookbook/web/",
    "multitenant": "cookbook/web/",
    "batching": "writing/bulk/",
    "bulk insert": "writing/bulk/",
    "transactions": "writing/transactions/",
    "explain": "reading/planning/",
    "etag": "writing/concurrency/",
    "retry": "writing/lost-replies/",
    "retries": "writing/lost-replies/",
    "unique index": "derived/indexes/",
    "logging": "programs/observing/",
    "testing": "programs/testing/",
    "tableorm query": "operation/cli/",
    "az login": "stores/azure/",
    "token": "operation/access/",
    "SAS token": "operation/access/",
    "continuation token": "reading/paging/",
    "cursor": "reading/paging/",
    "insert": "writing/",
    # Names are found in the reference.
    "RetryPolicy": "reference/database/",
    "tableorm.RetryPolicy": "reference/database/",
    "Query.explain": "reference/reading/",
    "explain_load": "reference/database-reading/",
    "get_or_none": "reference/database-reading/",
    "assert_requests": "reference/testing/",
    "fail_next": "reference/testing/",
    "from_dict": "reference/bags/",
    "PropertyBag": "reference/bags/",
}
"""What readers search for, and the page that has to be the first result."""

CLIPPED = """
[...document.querySelectorAll("pre > code")].filter(code => code.scrollWidth > code.clientWidth + 1)
    .map(code => code.textContent.slice(0, 60))
"""
WIDE = "document.scrollingElement.scrollWidth > 390"
SEARCH = "[...document.querySelectorAll('*')].find(e => e.shadowRoot?.querySelector('dialog')).shadowRoot"
RESULTS = f"[...{SEARCH}.querySelectorAll('ol a')].map(link => new URL(link.href).pathname)"


def main() -> None:
    """Check the site; exit with what is wrong."""
    faults = broken_links()
    chromium = find_chromium()
    if chromium:
        faults += asyncio.run(seen_in(chromium))
    else:
        print("There is no Chromium: widths of blocks and searches are not checked")
    if faults:
        sys.exit("\n".join(faults))
    print(f"The {len(pages())} pages of the site are well")


def find_chromium() -> str | None:
    """Return the program, if there is one."""
    return os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")


def pages() -> list[str]:
    """Return the addresses of all pages, below the root."""
    return sorted(page.parent.relative_to(SITE).as_posix().removeprefix(".") for page in SITE.rglob("index.html"))


class _Links(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.anchors.update(value for name in ("id", "name") if (value := values.get(name)))
        self.links.extend(value for name in ("href", "src") if tag != "link" and (value := values.get(name)))
        if values.get("property") == "og:image":
            self.links.append(values.get("content") or "")


def broken_links() -> list[str]:
    """Return the links that lead nowhere."""
    parsed = {page: _Links((SITE / page / "index.html").read_text(encoding="utf-8")) for page in pages()}
    faults: list[str] = []
    for page, found in parsed.items():
        for link in found.links:
            address, anchor = urldefrag(urljoin(f"/{page}/".replace("//", "/"), link))
            if re.match("[a-z]+:|//", address):
                continue
            path = unquote(address).strip("/")
            target = parsed.get(path)
            if target is None and not (SITE / path).is_file():
                faults.append(f"{page or 'the overview'}: {link} leads nowhere")
            elif target is not None and anchor and unquote(anchor) not in target.anchors:
                faults.append(f"{page or 'the overview'}: {link} has no such anchor")
    return faults


async def seen_in(chromium: str) -> list[str]:
    """Return blocks that are clipped on a laptop, pages wider than a phone, and searches that fail."""
    faults: list[str] = []
    with serve() as root:
        async with Tab.opened(chromium) as tab:
            # Widths need no scripts of the pages, and each page is there in a fraction of the time.
            await tab.call("Emulation.setScriptExecutionDisabled", {"value": True})
            for page in pages():
                await tab.resize(1280)
                await tab.open(f"{root}/{page}")
                faults += [f"{page}: at 1,280 pixels this is clipped: {text}" for text in await tab.run(CLIPPED)]
                await tab.resize(390)
                if await tab.run(WIDE):
                    faults.append(f"{page}: wider than 390 pixels")
            await tab.call("Emulation.setScriptExecutionDisabled", {"value": False})
            await tab.resize(1280)
            await tab.open(root)
            await tab.run("document.querySelector('.md-search__button').click()")
            await tab.wait(f"!!{SEARCH}")
            for words, page in SEARCHES.items():
                await tab.run(f"{SEARCH}.querySelector('input').focus(), {SEARCH}.querySelector('input').select()")
                await tab.call("Input.insertText", {"text": ""})
                await tab.wait(f"{RESULTS}.length === 0")
                await tab.call("Input.insertText", {"text": words})
                await tab.wait(f"{RESULTS}.length > 0")
                found = await tab.run(RESULTS)
                if not found or found[0] != f"/{page}":
                    faults.append(f"a search for {words!r} finds {found[:3]}, not {page} first")
    return faults


@contextmanager
def serve() -> Generator[str]:
    """Serve the site on a free port of this machine."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            pass

    handler = functools.partial(Quiet, directory=str(SITE))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


class Tab:
    """A tab of a Chromium without a window, by its DevTools protocol."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)

    @classmethod
    @asynccontextmanager
    async def opened(cls, chromium: str) -> AsyncGenerator["Tab"]:
        """Start Chromium, and end it."""
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            options = ["--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0"]
            process = await asyncio.create_subprocess_exec(
                chromium, *options, f"--user-data-dir={folder}", "about:blank", stderr=asyncio.subprocess.PIPE
            )
            try:
                assert process.stderr is not None
                while not (found := re.search(rb"ws://([^/]+)/", await process.stderr.readline())):
                    pass
                async with aiohttp.ClientSession() as session:
                    async with session.get(f"http://{found[1].decode()}/json/list") as answer:
                        tabs = [each for each in await answer.json(content_type=None) if each["type"] == "page"]
                    async with session.ws_connect(tabs[0]["webSocketDebuggerUrl"], max_msg_size=0) as socket:
                        tab = cls(socket)
                        await tab.call("Page.enable")
                        yield tab
            finally:
                process.terminate()
                await process.wait()

    async def call(self, method: str, parameters: dict[str, Any] | None = None, until: str = "") -> Any:
        """Call a method, and return its result; wait for an event, if one is named."""
        number = next(self._numbers)
        await self._socket.send_json({"id": number, "method": method, "params": parameters or {}})
        result: Any = None
        while result is None or until:
            message = await self._socket.receive_json(timeout=60)
            if message.get("id") == number:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                result = message["result"]
            elif message.get("method") == until:
                until = ""
        return result

    async def resize(self, width: int) -> None:
        """Take a screen of so many pixels."""
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
        await self.call("Emulation.setDeviceMetricsOverride", size)

    async def open(self, address: str) -> None:
        """Open a page."""
        await self.call("Page.navigate", {"url": address}, until="Page.loadEventFired")

    async def wait(self, condition: str) -> None:
        """Wait until a condition holds in the page, for 20 seconds at most."""
        for _ in range(400):
            with suppress(RuntimeError):
                if await self.run(condition):
                    return
            await asyncio.sleep(0.05)

    async def run(self, script: str) -> Any:
        """Run a script in the page, and return its value."""
        evaluated = {"expression": script, "awaitPromise": True, "returnByValue": True}
        done = await self.call("Runtime.evaluate", evaluated)
        if "exceptionDetails" in done:
            raise RuntimeError(f"{done['exceptionDetails']}")
        return done["result"].get("value")


if __name__ == "__main__":
    main()
