"""
The server among mutated requests: a few thousand of those that `python -m tests.local.server.fuzz` makes any number of.
"""

from tests.local.server.fuzz import fuzz_sockets, fuzz_texts
from tests.local.server.fuzz_inputs import of_number, text_of_number
from tests.torture import Rounds


async def test_requests(rounds: Rounds) -> None:
    """Whatever is sent, it is answered or closed: no fault of the server's own, nothing in its log, nothing kept."""
    outcome = await fuzz_sockets(7, range(rounds(600, 100_000)))

    assert outcome.found == []
    # The inputs get far enough: past the signature, and to every kind of answer. A conflict comes a few times in a
    # thousand, and by which of the requests that are under way arrives first it is the one or the other.
    assert outcome.statuses.keys() >= {200, 201, 202, 204, 400, 403, 404, 405}
    assert outcome.statuses.keys() & {409, 412}


def test_parts_of_requests(rounds: Rounds) -> None:
    """What reads filters, transactions, entities, XML and tokens takes every text or refuses it in its own words."""
    outcome = fuzz_texts(7, range(rounds(1000, 200_000)))

    assert outcome.found == []
    assert min(outcome.statuses[200], outcome.statuses[400]) > 150


def test_inputs_are_repeatable() -> None:
    """The same seed and number give the same input, but for its date and what hangs on that."""

    def shape() -> list[object]:
        sizes: list[object] = [[len(piece) for piece in of_number(1, number).pieces] for number in range(50)]
        texts = (text_of_number(1, number) for number in range(50))
        return sizes + [(given.what, len(given.text)) for given in texts]

    assert shape() == shape()
