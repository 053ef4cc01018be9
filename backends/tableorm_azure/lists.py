"""
Lists that come page by page, and how a client notices that the service leads it in a circle.
"""

from hashlib import blake2b
from typing import Any, NamedTuple, Self

from tableorm.protocol.codes import Code, Fault

__all__ = ["Trail", "list_names"]


class Trail(NamedTuple):
    """
    What the continuation of a list remembers of the pages before it.

    A service that leads in a circle comes back to each place on it. So the place of every page is compared with one
    that is remembered, which is replaced after 1, 2, 4, 8... pages: no circle is too long, and one place is enough.
    This is Brent's algorithm.

    Args:
        pages: How many pages there were.
        place: A hash of the place that is remembered.
    """

    pages: int = 0
    place: str = ""

    def go_on(self, place: str) -> Self:
        """
        Return the trail with one more page.

        Args:
            place: Where the service says that the list goes on.

        Raises:
            Fault: The list has gone on there before, so it would never end.
        """
        mark = blake2b(place.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
        if mark == self.place:
            raise Fault(Code.INTERNAL_ERROR, "The answer goes on where it was before, so it would never end.")
        pages = self.pages + 1
        return type(self)(pages, self.place if pages & self.pages else mark)


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
            raise Fault(Code.INTERNAL_ERROR, "The answer goes on where it was before, so the list would never end.")
        seen.add(following or "")
    return names
