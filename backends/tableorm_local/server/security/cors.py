"""
CORS: the rules of which web pages may call the service, the answer to a browser that asks, and the headers that let a
page read an answer.
"""

from collections.abc import Iterable, Mapping, Sequence
from xml.etree import ElementTree as ET

import attrs

from tableorm.protocol.codes import Code, Fault

from ..wire import xml
from ..wire.calls import Answer

# Source: REST, "Cross-Origin Resource Sharing (CORS) support", "Understanding CORS rules".
_MAX_RULES = 5
_MAX_RULES_BYTES = 2 * 1024
_MAX_ORIGINS = 64
_MAX_NAMES = 64
_MAX_NAME = 256
# The headers that a page may ask for: as many as a request may have.
_MAX_ASKED = 100
_METHODS = frozenset({"DELETE", "GET", "HEAD", "MERGE", "OPTIONS", "PATCH", "POST", "PUT"})


def _are_names(names: tuple[str, ...], most: int) -> bool:
    """Return whether they can stand in a header, separated by commas."""
    return len(names) <= most and all(
        0 < len(name) <= _MAX_NAME and name.isascii() and name.isprintable() for name in names
    )


def _check_names(_: object, attribute: "attrs.Attribute[tuple[str, ...]]", names: tuple[str, ...]) -> None:
    if not _are_names(names, _MAX_NAMES):
        raise ValueError(f"`{attribute.name}` of a rule of CORS is not up to {_MAX_NAMES} names")


@attrs.frozen(kw_only=True)
class CorsRule:
    """
    Which pages may call the service from a browser, and how. A rule in a file may have been stored by another program.

    Args:
        origins: `https://example.org`, or `*` for any.
        methods: Verbs.
        headers: Names of headers that they may send; a name that ends with `*` stands for all that start with it.
        exposed: Names of headers that they may read, in the same form.
        max_age: Seconds for which a browser may remember the rule.

    Raises:
        ValueError: A name, or how many there are, is none that `read_rules` would allow.
    """

    origins: tuple[str, ...] = attrs.field(validator=_check_names)
    methods: tuple[str, ...] = attrs.field(validator=_check_names)
    headers: tuple[str, ...] = attrs.field(validator=_check_names)
    exposed: tuple[str, ...] = attrs.field(validator=_check_names)
    max_age: int


def write_rules(parent: xml.Element, rules: Iterable[CorsRule]) -> None:
    """Write the rules as children of the element `Cors`."""
    for rule in rules:
        xml.add(
            ET.SubElement(parent, "CorsRule"),
            AllowedOrigins=",".join(rule.origins),
            AllowedMethods=",".join(rule.methods),
            MaxAgeInSeconds=str(rule.max_age),
            ExposedHeaders=",".join(rule.exposed),
            AllowedHeaders=",".join(rule.headers),
        )


def read_rules(parent: xml.Element) -> tuple[CorsRule, ...]:
    """
    Read the children of the element `Cors`.

    Raises:
        Fault: InvalidXmlDocument, InvalidXmlNodeValue.
    """
    elements = parent.findall("CorsRule")
    if len(elements) > _MAX_RULES:
        raise xml.invalid(f"At most {_MAX_RULES} rules of CORS are allowed (got {len(elements)}).")
    size = sum(len(child.text or "") for element in elements for child in element)
    if size > _MAX_RULES_BYTES:
        raise xml.invalid(f"The rules of CORS have {size} characters, {_MAX_RULES_BYTES} are allowed.")
    return tuple(_read_rule(element) for element in elements)


def _read_rule(element: xml.Element) -> CorsRule:
    for name in ("AllowedOrigins", "AllowedMethods", "AllowedHeaders", "ExposedHeaders", "MaxAgeInSeconds"):
        if xml.child(element, name) is None:
            raise xml.invalid(f"A CorsRule has no {name}.")
    rule = CorsRule(
        origins=_read_names(element, "AllowedOrigins", _MAX_ORIGINS),
        methods=_read_names(element, "AllowedMethods", len(_METHODS)),
        headers=_read_names(element, "AllowedHeaders", _MAX_NAMES),
        exposed=_read_names(element, "ExposedHeaders", _MAX_NAMES),
        max_age=xml.number(element, "MaxAgeInSeconds", 0, 2**31 - 1),
    )
    if not rule.origins or not rule.methods:
        raise xml.invalid("A CorsRule must have at least one origin and one method.")
    unknown = sorted(set(rule.methods) - _METHODS)
    if unknown:
        raise xml.invalid_value("AllowedMethods", ",".join(unknown), f"is not among {', '.join(sorted(_METHODS))}")
    return rule


def _read_names(element: xml.Element, name: str, most: int) -> tuple[str, ...]:
    names = tuple(part.strip() for part in xml.text_of(element, name).split(",") if part.strip())
    if not _are_names(names, most):
        raise xml.invalid_value(name, ",".join(names), f"is not up to {most} names of up to {_MAX_NAME} characters")
    return names


def answer_preflight(rules: Sequence[CorsRule], headers: Mapping[str, str]) -> Answer:
    """
    Return the answer to an OPTIONS request, with which a browser asks whether a page may send another.

    Raises:
        Fault: InvalidHeaderValue if it is not such a request; CorsPreflightFailure if no rule allows the other one.
    """
    origin, method = headers.get("Origin"), headers.get("Access-Control-Request-Method")
    asked = headers.get("Access-Control-Request-Headers", "")
    # Both are sent back in headers, which hold ASCII.
    if not origin or not method or not (origin + asked).isascii():
        raise Fault(
            Code.INVALID_HEADER_VALUE,
            "A preflight request needs the headers Origin and Access-Control-Request-Method, in ASCII.",
        )
    # Counted before they are split, and compared with those of each rule.
    if asked.count(",") >= _MAX_ASKED:
        raise Fault(Code.CORS_PREFLIGHT_FAILURE, f"A page may ask for {_MAX_ASKED} headers at most.")
    names = [name.strip() for name in asked.split(",") if name.strip()]
    for rule in rules:
        if (
            _allows_origin(rule, origin)
            and method in rule.methods
            and all(_allows_header(rule, name) for name in names)
        ):
            answer = {
                "Access-Control-Allow-Origin": origin,
                "Access-Control-Allow-Methods": method,
                "Access-Control-Max-Age": str(rule.max_age),
                "Access-Control-Allow-Credentials": "true",
            }
            if names:
                answer["Access-Control-Allow-Headers"] = asked
            return Answer(200, headers=answer | _vary(rule))
    raise Fault(
        Code.CORS_PREFLIGHT_FAILURE,
        "CORS not enabled or no matching rule found for this request. "
        f"The service has {len(rules)} rules; none allows {method[:20]} from {origin[:200]!r} with these headers.",
    )


def headers_of(rules: Sequence[CorsRule], origin: str, method: str) -> dict[str, str]:
    """Return the headers that let a page of `origin` read the answer to its request."""
    for rule in rules:
        if _allows_origin(rule, origin) and method in rule.methods:
            any_origin = "*" in rule.origins
            headers = {"Access-Control-Allow-Origin": "*" if any_origin else origin}
            if not any_origin:
                headers["Access-Control-Allow-Credentials"] = "true"
            if rule.exposed:
                headers["Access-Control-Expose-Headers"] = ",".join(rule.exposed)
            return headers | _vary(rule)
    return {}


def _vary(rule: CorsRule) -> dict[str, str]:
    return {} if "*" in rule.origins else {"Vary": "Origin"}


def _allows_origin(rule: CorsRule, origin: str) -> bool:
    return "*" in rule.origins or origin in rule.origins


def _allows_header(rule: CorsRule, name: str) -> bool:
    name = name.lower()
    for allowed in rule.headers:
        folded = allowed.lower()
        if folded == name or (folded.endswith("*") and name.startswith(folded[:-1])):
            return True
    return False
