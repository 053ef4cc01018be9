"""
XML of access policies and service properties: small documents of elements and text. Anything else in them is rejected.
"""

from xml.etree import ElementTree as ET

from tableorm.protocol.codes import Code, Fault

Element = ET.Element

# Five policies, or five rules of 2 KiB and the other properties, are far smaller.
_MAX_BYTES = 64 * 1024
_MAX_ELEMENTS = 1000


def invalid(why: str) -> Fault:
    """Return the fault for a document that is not valid."""
    return Fault(Code.INVALID_XML_DOCUMENT, f"XML specified is not syntactically valid. {why}")


def invalid_value(name: str, value: str, why: str) -> Fault:
    """Return the fault for an element with a text that is not valid."""
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
        raise invalid("A document type (<!DOCTYPE) is not allowed.")
    try:
        found = ET.fromstring(text)  # noqa: S314 - without a document type there is nothing to expand
    except ET.ParseError as error:
        raise invalid(f"{error}.") from None
    if sum(1 for _ in found.iter()) > _MAX_ELEMENTS:
        raise invalid(f"The document has more than {_MAX_ELEMENTS} elements.")
    if found.tag != root:
        raise invalid(f"The root element is {found.tag[:80]!r}, not {root!r}.")
    return found


def child(parent: Element, name: str) -> Element | None:
    """
    Return the only child of that name, None if it has none.

    Raises:
        Fault: InvalidXmlDocument if there are several.
    """
    found = parent.findall(name)
    if len(found) > 1:
        raise invalid(f"{parent.tag} has {len(found)} elements {name}.")
    return found[0] if found else None


def text_of(parent: Element, name: str) -> str:
    """Return the text of a child, trimmed; empty if there is no such child."""
    found = child(parent, name)
    return "" if found is None else (found.text or "").strip()


def boolean(parent: Element, name: str) -> bool:
    """
    Read a child that says `true` or `false`, in any letter case.

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
    Read a child that says a whole number from `least` to `most`.

    Raises:
        Fault: InvalidXmlNodeValue.
    """
    text = text_of(parent, name)
    if not (text.isascii() and text.isdecimal() and len(text) <= 10 and least <= int(text) <= most):
        raise invalid_value(name, text, f"is not a number from {least} to {most}")
    return int(text)


def add(parent: Element, **children: str | bool) -> None:
    """Add children with a text each, in this order."""
    for name, value in children.items():
        ET.SubElement(parent, name).text = value if isinstance(value, str) else str(value).lower()


def write(root: Element) -> bytes:
    """Return the document with this root element."""
    return b'<?xml version="1.0" encoding="utf-8"?>' + ET.tostring(root, encoding="unicode").encode("utf-8")
