"""
The properties of the service, and the statistics of its secondary location.

Logging and metrics are stored and answered, and do nothing; clients set them. The rules of CORS are obeyed.
"""

import datetime as dt
from collections.abc import Mapping
from email.utils import format_datetime
from xml.etree import ElementTree as ET

import attrs
import msgspec

from tableorm.protocol.codes import Code, Fault

from ...engine import Engine
from ..security.cors import CorsRule, read_rules, write_rules
from ..wire import xml
from ..wire.calls import Answer, invalid_parameter
from .request import Request

# The sections that do nothing, and their switches. Each has a version and a retention policy too.
# Source: REST, "Set Table Service Properties".
_SECTIONS = {
    "Logging": ("Delete", "Read", "Write"),
    "HourMetrics": ("Enabled", "IncludeAPIs"),
    "MinuteMetrics": ("Enabled", "IncludeAPIs"),
}
_VERSION = "1.0"
_MAX_DAYS = 365

_SETTING = "service"

_Section = Mapping[str, bool | int]
"""The switches of a section by name, and the `Days` of its retention policy if that is enabled."""


@attrs.frozen
class _Properties:
    """The properties as they are stored: the sections that were ever set, and the rules of CORS."""

    sections: Mapping[str, _Section] = attrs.Factory(dict[str, _Section])
    cors: tuple[CorsRule, ...] = ()


_decode = msgspec.json.Decoder(_Properties).decode


def _read_stored(value: bytes | None) -> _Properties:
    if value is None:
        return _Properties()
    try:
        return _decode(value)
    except (ValueError, RecursionError) as error:
        problem = f"The stored properties of the service are damaged ({error}); restore a backup."
        raise Fault(Code.INTERNAL_ERROR, problem) from error


async def read_cors_rules(engine: Engine) -> tuple[CorsRule, ...]:
    """Read the rules of CORS that are in force now."""
    return _read_stored(await engine.settings.get(_SETTING)).cors


async def get_properties(request: Request) -> Answer:
    """Answer all properties."""
    stored = _read_stored(await request.engine.settings.get(_SETTING))
    root = ET.Element("StorageServiceProperties")
    for name, switches in _SECTIONS.items():
        section = stored.sections.get(name, {})
        element = ET.SubElement(root, name)
        xml.add(element, Version=_VERSION)
        for switch in switches:
            if switch != "IncludeAPIs" or section.get("Enabled"):
                xml.add(element, **{switch: bool(section.get(switch))})
        retention = ET.SubElement(element, "RetentionPolicy")
        xml.add(retention, Enabled="Days" in section)
        if "Days" in section:
            xml.add(retention, Days=str(section["Days"]))
    write_rules(ET.SubElement(root, "Cors"), stored.cors)
    return Answer(200, body=xml.write(root), content_type="application/xml")


async def set_properties(request: Request) -> Answer:
    """Change the sections that the document has, and keep the others."""
    root = xml.parse(request.body, "StorageServiceProperties")
    sections: dict[str, _Section] = {}
    for name, switches in _SECTIONS.items():
        element = xml.child(root, name)
        if element is not None:
            sections[name] = _read_section(element, switches)
    element = xml.child(root, "Cors")
    rules = None if element is None else read_rules(element)

    def change(value: bytes | None) -> bytes:
        old = _read_stored(value)
        new = _Properties({**old.sections, **sections}, old.cors if rules is None else rules)
        return msgspec.json.encode(new)

    await request.engine.settings.change(_SETTING, change)
    return Answer(202)


def _read_section(element: xml.Element, switches: tuple[str, ...]) -> _Section:
    version = xml.text_of(element, "Version")
    if version != _VERSION:
        raise xml.invalid_value("Version", version, f"is not {_VERSION}")
    section: dict[str, bool | int] = {}
    for switch in switches:
        if switch != "IncludeAPIs":
            section[switch] = xml.boolean(element, switch)
        elif xml.child(element, switch) is not None:
            if not section["Enabled"]:
                raise xml.invalid("IncludeAPIs is allowed only where Enabled is true.")
            section[switch] = xml.boolean(element, switch)
    retention = xml.child(element, "RetentionPolicy")
    if retention is None:
        raise xml.invalid(f"{element.tag} has no RetentionPolicy.")
    if xml.boolean(retention, "Enabled"):
        section["Days"] = xml.number(retention, "Days", 1, _MAX_DAYS)
    elif xml.text_of(retention, "Days"):
        raise xml.invalid("Days is allowed only where the RetentionPolicy is enabled.")
    return section


async def get_statistics(request: Request) -> Answer:
    """
    Answer how far the secondary location is behind. Here it is never behind: it is the primary under another name.

    Raises:
        Fault: InvalidQueryParameterValue at the primary location.
    """
    place = request.place
    if not place.secondary:
        raise invalid_parameter(f"comp=stats is answered at the secondary location, {place.account}-secondary")
    root = ET.Element("StorageServiceStats")
    now = format_datetime(dt.datetime.now(dt.UTC), usegmt=True)
    xml.add(ET.SubElement(root, "GeoReplication"), Status="live", LastSyncTime=now)
    return Answer(200, body=xml.write(root), content_type="application/xml")
