"""
Stored access policies: what tokens of a table refer to, kept with the table, revoked by removing them.
"""

from xml.etree import ElementTree as ET

import msgspec

from tableorm.protocol.codes import Code, Fault
from tableorm.protocol.edm import text_from_ticks, ticks_from_text
from tableorm.protocol.limits import check_table_name
from tableorm.protocol.sas import AccessPolicy

from ..engine import Engine
from . import xml
from .calls import Answer, Call

__all__ = ["find_policy", "get_policies", "set_policies"]

# Source: REST, "Set Table ACL".
_MAX_POLICIES = 5
_MAX_ID = 64
_LETTERS = "raud"

_SETTING = "policies"

_Stored = dict[str, AccessPolicy | None]
_decode = msgspec.json.Decoder(dict[str, dict[str, str | None] | None]).decode


async def find_policy(engine: Engine, table: str, name: str) -> AccessPolicy | None:
    """The table's policy of that name; None if there is none, or no such table."""
    try:
        stored = await _load(engine, table)
    except Fault as fault:
        if fault.code != Code.TABLE_NOT_FOUND:
            raise
        return None
    return (stored[name] or AccessPolicy()) if name in stored else None


async def _load(engine: Engine, table: str) -> _Stored:
    value = await engine.settings.get(_SETTING, table)
    if value is None:
        return {}
    return {name: None if policy is None else AccessPolicy(**policy) for name, policy in _decode(value).items()}


async def get_policies(engine: Engine, call: Call) -> Answer:
    """All policies of a table."""
    root = ET.Element("SignedIdentifiers")
    for name, policy in (await _load(engine, call.resource.table)).items():
        identifier = ET.SubElement(root, "SignedIdentifier")
        ET.SubElement(identifier, "Id").text = name
        if policy is not None:
            inner = ET.SubElement(identifier, "AccessPolicy")
            for tag, value in (("Start", policy.start), ("Expiry", policy.expiry), ("Permission", policy.permission)):
                if value is not None:
                    ET.SubElement(inner, tag).text = value
    return Answer(200, {}, xml.write(root), "application/xml")


async def set_policies(engine: Engine, call: Call) -> Answer:
    """Put other policies in place of all of a table."""
    check_table_name(call.resource.table)
    stored = _read(call.body)
    value = {
        name: policy and {"start": policy.start, "expiry": policy.expiry, "permission": policy.permission}
        for name, policy in stored.items()
    }
    await engine.settings.put(_SETTING, msgspec.json.encode(value) if value else None, call.resource.table)
    return Answer(204)


def _read(body: bytes) -> _Stored:
    if not body:
        return {}
    root = xml.parse(body, "SignedIdentifiers")
    identifiers = root.findall("SignedIdentifier")
    if len(identifiers) > _MAX_POLICIES:
        raise xml.invalid(f"A table has {_MAX_POLICIES} access policies at most (got {len(identifiers)}).")
    stored: _Stored = {}
    for identifier in identifiers:
        name = xml.text_of(identifier, "Id")
        if not name or len(name) > _MAX_ID:
            raise xml.invalid(f"An Id has 1 to {_MAX_ID} characters (got {name[:80]!r}).")
        if name in stored:
            raise xml.invalid(f"The Id {name!r} is given twice.")
        policy = xml.child(identifier, "AccessPolicy")
        stored[name] = None if policy is None else _policy(policy)
    return stored


def _policy(element: xml.Element) -> AccessPolicy | None:
    permission = xml.text_of(element, "Permission")
    if not set(permission) <= set(_LETTERS) or len(set(permission)) < len(permission):
        raise xml.invalid_value("Permission", permission, f"is not made of the letters {_LETTERS!r}, each once at most")
    start, expiry = _moment(element, "Start"), _moment(element, "Expiry")
    if not (start or expiry or permission):
        return None
    return AccessPolicy(start=start, expiry=expiry, permission=permission or None)


def _moment(element: xml.Element, name: str) -> str | None:
    text = xml.text_of(element, name)
    if not text:
        return None
    try:
        return text_from_ticks(ticks_from_text(text if "T" in text else f"{text}T00:00Z"))
    except ValueError:
        raise xml.invalid_value(name, text, "is not a moment such as 2024-02-29T12:34:56Z") from None
