"""
Lists of names that the SDK reads page by page: of tables, queues and containers.
"""

from typing import Any

from tableorm.protocol.codes import Code, Fault

LIST_PAGE = 500
"""Items that are asked for at once: the SDK parses a page in one piece, and 5,000 blobs would take it a second."""


async def list_names(listing: Any) -> list[str]:
    """
    Return the names of all items of a list of the SDK, in the order in which the service gives them.

    Raises:
        Fault: The service names a place to go on at which it has named before, so the list would never end.
    """
    pages = listing.by_page()
    names: list[str] = []
    seen = set[str]()
    async for page in pages:
        names += [item.name async for item in page]
        following: str | None = pages.continuation_token
        if following in seen:
            raise Fault(
                Code.INTERNAL_ERROR, "The response continues where it already was, so the list would never end."
            )
        seen.add(following or "")
    return names
