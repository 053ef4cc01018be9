"""
Operations on stored access policies: tokens of a table refer to them, and are revoked by removing them.
"""

from xml.etree import ElementTree as ET

from tableorm.protocol.edm import text_from_ticks, ticks_from_text
from tableorm.protocol.sas import MAX_POLICIES, MAX_POLICY_ID, TABLE_LETTERS, AccessPolicy

from ..wire import xml
from ..wire.calls import Answer
from .request import Request


async def get_policies(request: Request) -> Answer:
    """Answer all policies of a table."""
    policies = await request.engine.access.policies(request.resource.table)
    root = ET.Element("SignedIdentifiers")
    for name, policy in policies.items():
        identifier = ET.SubElement(root, "SignedIdentifier")
        ET.SubElement(identifier, "Id").text = name
        if policy is not None:
            inner = ET.SubElement(identifier, "AccessPolicy")
            for tag, value in (("Start", policy.start), ("Expiry", policy.expiry), ("Permission", policy.permission)):
                if value is not None:
                    ET.SubElement(inner, tag).text = value
    return Answer(200, body=xml.write(root), content_type="application/xml")


async def set_policies(request: Request) -> Answer:
    """Replace all policies of a table."""
    given = _read_policies(request.body)
    await request.engine.access.change_policies(request.resource.table, lambda _: given)
    return Answer(204)


def _read_policies(body: bytes) -> dict[str, AccessPolicy | None]:
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
        stored[name] = None if policy is None else _read_policy(policy)
    return stored


def _read_policy(element: xml.Element) -> AccessPolicy | None:
    permission = xml.text_of(element, "Permission")
    if not set(permission) <= set(TABLE_LETTERS) or len(set(permission)) < len(permission):
        problem = f"is not made of the letters {TABLE_LETTERS!r}, each once at most"
        raise xml.invalid_value("Permission", permission, problem)
    start, expiry = _read_moment(element, "Start"), _read_moment(element, "Expiry")
    if not (start or expiry or permission):
        return None
    return AccessPolicy(start=start, expiry=expiry, permission=permission or None)


def _read_moment(element: xml.Element, name: str) -> str | None:
    text = xml.text_of(element, name)
    if not text:
        return None
    try:
        return text_from_ticks(ticks_from_text(text if "T" in text else f"{text}T00:00Z"))
    except ValueError:
        raise xml.invalid_value(name, text, "is not a time such as 2024-02-29T12:34:56Z") from None
