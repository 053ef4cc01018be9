"""
Bounds of an answer: how long it may be, and how many values the SDK may make of it.

The SDK parses XML and JSON in one piece, and a few kilobytes of gzip can become millions of elements, each of which it
looks at for microseconds. So the bytes are counted at which parsers make something, before there is a parser. The
bounds are some times what the service sends in answer to the largest request, so that no answer of the service is
refused.
"""

import re
from urllib.parse import urlsplit
from xml.parsers import expat

from tableorm.protocol.limits import MAX_MESSAGES, MAX_PAGE

from .lists import LIST_PAGE

__all__ = ["LONGEST_ANSWER", "find_excess", "longest_answer"]

LONGEST_ANSWER = 64 * 1024 * 1024
"""A page has 4 MiB of rows at most; escapes in JSON and annotations make them several times as long."""

# A page of messages: each has 64 Ki characters, which XML writes with up to six bytes.
_LONGEST_MESSAGES = MAX_MESSAGES * 400 * 1024 + 64 * 1024
# Of a write. The parts of a transaction name the keys of their rows two or three times: 3 MiB if the keys are long.
_LONGEST_WRITTEN = 8 * 1024 * 1024
_LONGEST_REFUSAL = 1024 * 1024
# Each of a thousand tables has a name, and with full metadata two links.
_LONGEST_TABLES = MAX_PAGE * 2 * 1024

# What each answer may have, and besides for each item of a list: of XML the tags, where a blob has 25 properties and up
# to a hundred pairs of metadata; of JSON what stands before a value, and backslashes; of attributes the equals signs.
_TAGS, _TAGS_OF_ITEM = 4096, 256
_VALUES, _VALUES_OF_ITEM = 4096, 8
_ATTRIBUTES, _ATTRIBUTES_OF_ITEM = 100, 4
# Line ends and references divide a text into pieces: that of a message may be nothing else.
_PIECES, _PIECES_OF_ITEM, _MOST_TEXTS = 4096, 64 * 1024, 64
# With fewer tags the SDK is quick, wherever they are. With more of them none may be deeper than the properties of an
# item: below the root, the list, the item, and a group of properties.
_TAGS_ANYWHERE = 16 * 1024
_LEVELS = 5

_BLANKS = b"\xef\xbb\xbf \t\r\n"
_TAG_WITH_ATTRIBUTES = re.compile(rb"<[^<>\s]+\s[^<]*")
# A parser copies the name of the namespace for each element in it. Long lists of the service have none.
_LONGEST_NAMESPACE = 1024


def longest_answer(method: str, url: str, status: int) -> int:
    """
    Return how many bytes an answer has at most, decompressed.

    Args:
        method: Of the request.
        url: Of the request.
        status: Of the answer.
    """
    if status >= 300:
        return _LONGEST_REFUSAL
    if _asks_for_tables(url):
        return _LONGEST_TABLES
    if method != "GET":
        return _LONGEST_WRITTEN
    return _LONGEST_MESSAGES if _asks_for_messages(url) else LONGEST_ANSWER


def find_excess(body: bytes, url: str, status: int) -> str:
    """
    Return what an answer has too much of for an answer of the service, empty if nothing.

    Args:
        body: The body, which a client of the SDK is going to parse: as XML, or else as JSON, whatever its type.
        url: The URL of the request.
        status: Of the answer.
    """
    items = _most_items(url) if status < 300 else 1
    if not body.lstrip(_BLANKS).startswith(b"<"):
        return "values" if _count(body, b"{[,:\\") > _VALUES + items * _VALUES_OF_ITEM else ""
    tags = body.count(b"<")
    if tags > _TAGS + items * _TAGS_OF_ITEM:
        return "elements"
    if _count(body, b"&\r\n") > _PIECES + min(items, _MOST_TEXTS) * _PIECES_OF_ITEM:
        return "pieces of text"
    attributes = _ATTRIBUTES + items * _ATTRIBUTES_OF_ITEM
    if body.count(b"=") > attributes or b"xmlns" in body:  # perhaps in texts only
        with_attributes: list[bytes] = _TAG_WITH_ATTRIBUTES.findall(body)
        if sum(tag.count(b"=") for tag in with_attributes) > attributes:
            return "attributes"
        longest = 0 if tags > _TAGS_ANYWHERE else _LONGEST_NAMESPACE
        if any(len(tag) > longest and b"xmlns" in tag for tag in with_attributes):
            return "letters in a namespace"
    return "elements in one" if tags > _TAGS_ANYWHERE and _is_broad_or_deep(body) else ""


def _most_items(url: str) -> int:
    """Return how many items the page has that a request asks for; 1 if it asks for no page."""
    if _asks_for_messages(url):
        return MAX_MESSAGES
    if "comp=list" in urlsplit(url).query:
        return LIST_PAGE
    return MAX_PAGE if _asks_for_tables(url) else 1


def _asks_for_messages(url: str) -> bool:
    """Return whether a request asks a queue for messages, and does not list a container of the name `messages`."""
    parts = urlsplit(url)
    return parts.path.endswith("/messages") and "restype=" not in parts.query and "comp=" not in parts.query


def _asks_for_tables(url: str) -> bool:
    """Return whether a request lists tables, or makes one."""
    return urlsplit(url).path.endswith("/Tables")


def _count(body: bytes, characters: bytes) -> int:
    return len(body) - len(body.translate(None, characters))


class _Excess(Exception):
    """An element is too much."""


def _is_broad_or_deep(body: bytes) -> bool:
    """Return whether an element has more children than a list has items, or is deeper than any of the service."""
    depth, children = 0, [0] * (_LEVELS + 1)

    def start(*_: object) -> None:
        nonlocal depth
        children[depth] += 1
        if depth == _LEVELS or children[depth] > LIST_PAGE:
            raise _Excess
        depth += 1
        children[depth] = 0

    def end(_: str) -> None:
        nonlocal depth
        depth -= 1

    def declare(*_: object) -> None:
        raise _Excess  # entities could become any number of elements

    parser = expat.ParserCreate("utf-8")
    parser.StartElementHandler, parser.EndElementHandler, parser.StartDoctypeDeclHandler = start, end, declare
    try:
        parser.Parse(body, True)
    except _Excess:
        return True
    except expat.ExpatError:
        pass  # the SDK says what is wrong
    return False
