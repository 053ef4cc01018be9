"""
Make docs/assets/card.png from card.svg: `python -m scripts.card`, after a change of card.svg.

It is the picture that other sites show beside a link to a page; they take no SVG.
"""

import asyncio
import base64
import sys

from scripts.check_site import Tab, find_chromium
from scripts.docs_pages import ROOT

CARD = ROOT / "docs" / "assets" / "card.svg"


async def draw(chromium: str) -> None:
    """Take a picture of the SVG, in its own size."""
    size = {"width": 1200, "height": 630, "deviceScaleFactor": 1, "mobile": False}
    async with Tab.opened(chromium) as tab:
        await tab.call("Emulation.setDeviceMetricsOverride", size)
        await tab.open(CARD.as_uri())
        picture = await tab.call("Page.captureScreenshot", {"format": "png"})
    CARD.with_suffix(".png").write_bytes(base64.b64decode(picture["data"]))


if __name__ == "__main__":
    found = find_chromium()
    if not found:
        sys.exit("There is no Chromium; CHROMIUM names one")
    asyncio.run(draw(found))
