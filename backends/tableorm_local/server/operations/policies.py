"""
Stored access policies: what tokens of a table refer to, kept with the table, revoked by removing them.
"""

from xml.etree import ElementTree as ET

from tableorm.protocol.edm import text_from_ticks, ticks_from_text
from tableorm.protocol.limits import check_table_name
from tableorm.protocol.sas import MAX_POLICIES, MAX_POLICY_ID, TABLE_LETTERS, AccessPolicy

from ...engine import Engine
from ..wire import xml
from ..wire.calls import Answer, Call

__all__ = ["get_policies", "set_policies"]


async def get_policies(engine: Engine, call: Call) -> Answer:
    """All policies of a table."""
    root = ET.Element("SignedIdentifiers")
    for name, policy in (await engine.access.policies(call.resource.table)).items():
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
    await engine.access.change_policies(call.resource.table, lambda _: stored)
    return Answer(204)


def _read(body: bytes) -> dict[str, AccessPolicy | None]:
    if not body:
        return {}
    root = xml.parse(body, "SignedIdentifiers")
    identifiers = root.findall("SignedIdentifier")
    if len(identifiers) > MAX_POLICIES:
        raise xml.invalid(f"A table has {MAX_POLICIES} access policies at most (got {len(identifiers)}).")
    stored: dict[str, AccessPolicy | None] = {}
    for identifier in identifiers:
        name = xml.text_of(identifier, "Id")
        if not name or len(name) > MAX_POLICY_ID:
            raise xml.invalid(f"An Id has 1 to {MAX_POLICY_ID} characters (got {name[:80]!r}).")
        if name in stored:
            raise xml.invalid(f"The Id {name!r} is given twice.")
        policy = xml.child(identifier, "AccessPolicy")
        stored[name] = None if policy is None else _policy(policy)
    return stored


def _policy(element: xml.Element) -> AccessPolicy | None:
    permission = xml.text_of(element, "Permission")
    if not set(permission) <= set(TABLE_LETTERS) or len(set(permission)) < len(permission):
        problem = f"is not made of the letters {TABLE_LETTERS!r}, each once at most"
        raise xml.invalid_value("Permission", permission, problem)
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
