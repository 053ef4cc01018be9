"""
The properties of the service: logging and metrics, which are stored and answered, and the rules of CORS, which are
obeyed too. And the statistics of the secondary location.
"""

import datetime as dt
from collections.abc import Callable
from email.utils import format_datetime
from typing import TypeVar
from xml.etree import ElementTree as ET

import attrs
import msgspec

from tableorm.protocol.codes import Code, Fault

from ...engine import Engine
from ..wire import xml
from ..wire.calls import Answer, Call

__all__ = ["CorsRule", "cors_rules", "get_properties", "set_properties", "statistics"]

T = TypeVar("T")

# Source: REST, "Set Table Service Properties".
_MAX_DAYS = 365
# Source: REST, "Cross-Origin Resource Sharing (CORS) support", "Understanding CORS rules".
_MAX_RULES = 5
_MAX_RULES_BYTES = 2 * 1024
_MAX_ORIGINS = 64
_MAX_NAMES = 64
_MAX_NAME = 256
_METHODS = frozenset({"DELETE", "GET", "HEAD", "MERGE", "OPTIONS", "PATCH", "POST", "PUT"})

_VERSION = "1.0"
_SETTING = "service"


@attrs.frozen
class CorsRule:
    """
    Which pages may call the service from a browser, and how.

    Args:
        origins: `https://example.org`, or `*` for any.
        methods: Verbs.
        headers: Names of headers that they may send; one that ends with `*` stands for all that start so.
        exposed: Likewise, of headers that they may read.
        max_age: Seconds for which a browser may remember it.
    """

    origins: tuple[str, ...]
    methods: tuple[str, ...]
    headers: tuple[str, ...]
    exposed: tuple[str, ...]
    max_age: int


@attrs.frozen
class _Logging:
    delete: bool = False
    read: bool = False
    write: bool = False
    days: int | None = None


@attrs.frozen
class _Metrics:
    enabled: bool = False
    apis: bool = False
    days: int | None = None


@attrs.frozen
class _Properties:
    logging: _Logging = _Logging()
    hour: _Metrics = _Metrics()
    minute: _Metrics = _Metrics()
    cors: tuple[CorsRule, ...] = ()


_decode = msgspec.json.Decoder(_Properties).decode


def _stored(value: bytes | None) -> _Properties:
    return _Properties() if value is None else _decode(value)


async def cors_rules(engine: Engine) -> tuple[CorsRule, ...]:
    """The rules, now."""
    return _stored(await engine.settings.get(_SETTING)).cors


async def get_properties(engine: Engine) -> Answer:
    """All of them."""
    found = _stored(await engine.settings.get(_SETTING))
    root = ET.Element("StorageServiceProperties")
    logging = ET.SubElement(root, "Logging")
    _put(logging, Version=_VERSION, Delete=found.logging.delete, Read=found.logging.read, Write=found.logging.write)
    _put_retention(logging, found.logging.days)
    for name, metrics in (("HourMetrics", found.hour), ("MinuteMetrics", found.minute)):
        element = ET.SubElement(root, name)
        _put(element, Version=_VERSION, Enabled=metrics.enabled)
        if metrics.enabled:
            _put(element, IncludeAPIs=metrics.apis)
        _put_retention(element, metrics.days)
    cors = ET.SubElement(root, "Cors")
    for rule in found.cors:
        _put(
            ET.SubElement(cors, "CorsRule"),
            AllowedOrigins=",".join(rule.origins),
            AllowedMethods=",".join(rule.methods),
            MaxAgeInSeconds=str(rule.max_age),
            ExposedHeaders=",".join(rule.exposed),
            AllowedHeaders=",".join(rule.headers),
        )
    return Answer(200, {}, xml.write(root), "application/xml")


def _put(parent: ET.Element, **children: str | bool) -> None:
    for name, value in children.items():
        ET.SubElement(parent, name).text = value if isinstance(value, str) else str(value).lower()


def _put_retention(parent: ET.Element, days: int | None) -> None:
    element = ET.SubElement(parent, "RetentionPolicy")
    _put(element, Enabled=days is not None)
    if days is not None:
        _put(element, Days=str(days))


async def set_properties(engine: Engine, call: Call) -> Answer:
    """Change those that the document has."""
    root = xml.parse(call.body, "StorageServiceProperties")
    logging = _section(root, "Logging", _logging)
    hour, minute = _section(root, "HourMetrics", _metrics), _section(root, "MinuteMetrics", _metrics)
    rules = _section(root, "Cors", _rules)

    def changed(value: bytes | None) -> bytes:
        old = _stored(value)
        new = _Properties(
            old.logging if logging is None else logging,
            old.hour if hour is None else hour,
            old.minute if minute is None else minute,
            old.cors if rules is None else rules,
        )
        return msgspec.json.encode(new)

    await engine.settings.change(_SETTING, changed)
    return Answer(202)


def _section(root: xml.Element, name: str, read: Callable[[xml.Element], T]) -> T | None:
    element = xml.child(root, name)
    return None if element is None else read(element)


def _logging(element: xml.Element) -> _Logging:
    _check_version(element)
    read, write, delete = (xml.boolean(element, name) for name in ("Read", "Write", "Delete"))
    return _Logging(delete, read, write, _retention(element))


def _check_version(element: xml.Element) -> None:
    version = xml.text_of(element, "Version")
    if version != _VERSION:
        raise xml.invalid_value("Version", version, f"is not {_VERSION}")


def _metrics(element: xml.Element) -> _Metrics:
    _check_version(element)
    enabled = xml.boolean(element, "Enabled")
    given = xml.child(element, "IncludeAPIs") is not None
    if given and not enabled:
        raise xml.invalid("IncludeAPIs stands only where Enabled is true.")
    return _Metrics(enabled, given and xml.boolean(element, "IncludeAPIs"), _retention(element))


def _retention(parent: xml.Element) -> int | None:
    element = xml.child(parent, "RetentionPolicy")
    if element is None:
        raise xml.invalid(f"{parent.tag} lacks its RetentionPolicy.")
    if xml.boolean(element, "Enabled"):
        return xml.number(element, "Days", 1, _MAX_DAYS)
    if xml.child(element, "Days") is not None and xml.text_of(element, "Days"):
        raise xml.invalid("Days stands only where a RetentionPolicy is enabled.")
    return None


def _rules(cors: xml.Element) -> tuple[CorsRule, ...]:
    elements = cors.findall("CorsRule")
    if len(elements) > _MAX_RULES:
        raise xml.invalid(f"There are {_MAX_RULES} rules of CORS at most (got {len(elements)}).")
    size = sum(len(child.text or "") for element in elements for child in element)
    if size > _MAX_RULES_BYTES:
        raise xml.invalid(f"The rules of CORS have {size} characters, {_MAX_RULES_BYTES} are allowed.")
    return tuple(_rule(element) for element in elements)


def _rule(element: xml.Element) -> CorsRule:
    for name in ("AllowedOrigins", "AllowedMethods", "AllowedHeaders", "ExposedHeaders", "MaxAgeInSeconds"):
        if xml.child(element, name) is None:
            raise xml.invalid(f"A CorsRule lacks its {name}.")
    origins = _names(element, "AllowedOrigins", _MAX_ORIGINS)
    methods = _names(element, "AllowedMethods", len(_METHODS))
    if not origins or not methods:
        raise xml.invalid("A CorsRule has an origin and a method at least.")
    unknown = sorted(set(methods) - _METHODS)
    if unknown:
        raise xml.invalid_value("AllowedMethods", ",".join(unknown), f"is not among {', '.join(sorted(_METHODS))}")
    headers = _names(element, "AllowedHeaders", _MAX_NAMES)
    exposed = _names(element, "ExposedHeaders", _MAX_NAMES)
    return CorsRule(origins, methods, headers, exposed, xml.number(element, "MaxAgeInSeconds", 0, 2**31 - 1))


def _names(element: xml.Element, name: str, most: int) -> tuple[str, ...]:
    names = tuple(part.strip() for part in xml.text_of(element, name).split(",") if part.strip())
    if len(names) > most or any(len(part) > _MAX_NAME or not (part.isascii() and part.isprintable()) for part in names):
        raise xml.invalid_value(name, ",".join(names), f"is not up to {most} names of up to {_MAX_NAME} characters")
    return names


def statistics(call: Call, now: dt.datetime) -> Answer:
    """
    How far the secondary location is behind, which here is the primary one by another name.

    Raises:
        Fault: InvalidQueryParameterValue at the primary location.
    """
    if not call.place.secondary:
        raise Fault(
            Code.INVALID_QUERY_PARAMETER,
            "Value for one of the query parameters specified in the request URI is invalid: comp=stats is answered at "
            f"the secondary location, {call.place.account}-secondary.",
        )
    root = ET.Element("StorageServiceStats")
    replication = ET.SubElement(root, "GeoReplication")
    _put(replication, Status="live", LastSyncTime=format_datetime(now, usegmt=True))
    return Answer(200, {}, xml.write(root), "application/xml")
