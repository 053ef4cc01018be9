"""
XML of access policies and service properties: small documents of elements and text, read with nothing else in them.
"""

from xml.etree import ElementTree as ET

from tableorm.protocol.codes import Code, Fault

__all__ = ["Element", "boolean", "child", "invalid", "invalid_value", "number", "parse", "text_of", "write"]

Element = ET.Element

# Five policies, or five rules of 2 KiB with everything else, are far smaller.
_MAX_BYTES = 64 * 1024
_MAX_ELEMENTS = 1000


def invalid(why: str) -> Fault:
    """The fault for a document that is not what it should be."""
    return Fault(Code.INVALID_XML_DOCUMENT, f"XML specified is not syntactically valid. {why}")


def invalid_value(name: str, value: str, why: str) -> Fault:
    """The fault for an element with a text that it cannot have."""
    return Fault(
        Code.INVALID_XML_NODE_VALUE,
        f"The value for one of the XML nodes is not in the correct format: {name} {value[:80]!r} {why}.",
    )


def parse(body: bytes, root: str) -> Element:
    """
    Read a document with the root element `root`.

    Raises:
        Fault: InvalidXmlDocument.
    """
    if len(body) > _MAX_BYTES:
        raise invalid(f"The document has {len(body)} bytes, {_MAX_BYTES} are allowed.")
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise invalid("The document is not UTF-8.") from None
    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        # Entities could make a small document large.
        raise invalid("The document has a document type, which means nothing here.")
    try:
        found = ET.fromstring(text)  # noqa: S314 - without a document type there is nothing to expand
    except (ET.ParseError, ValueError) as error:
        raise invalid(f"{error}.") from None
    if sum(1 for _ in found.iter()) > _MAX_ELEMENTS:
        raise invalid(f"The document has more than {_MAX_ELEMENTS} elements.")
    if found.tag != root:
        raise invalid(f"The root element is {found.tag[:80]!r}, not {root!r}.")
    return found


def child(parent: Element, name: str) -> Element | None:
    """
    The only child of that name.

    Raises:
        Fault: InvalidXmlDocument if there are several.
    """
    found = parent.findall(name)
    if len(found) > 1:
        raise invalid(f"{parent.tag} has {len(found)} elements {name}.")
    return found[0] if found else None


def text_of(parent: Element, name: str) -> str:
    """The text of a child, trimmed; empty if it is missing."""
    found = child(parent, name)
    return "" if found is None else (found.text or "").strip()


def boolean(parent: Element, name: str) -> bool:
    """
    `true` or `false`, in any letter case.

    Raises:
        Fault: InvalidXmlNodeValue.
    """
    text = text_of(parent, name)
    match text.lower():
        case "true":
            return True
        case "false":
            return False
        case _:
            raise invalid_value(name, text, "is neither true nor false")


def number(parent: Element, name: str, least: int, most: int) -> int:
    """
    A whole number.

    Raises:
        Fault: InvalidXmlNodeValue.
    """
    text = text_of(parent, name)
    if not (text.isascii() and text.isdecimal() and len(text) <= 10 and least <= int(text) <= most):
        raise invalid_value(name, text, f"is not a number from {least} to {most}")
    return int(text)


def write(root: Element) -> bytes:
    """The document."""
    return b'<?xml version="1.0" encoding="utf-8"?>' + ET.tostring(root, encoding="unicode").encode("utf-8")
