"""
CORS: what browsers ask before a page calls the service, and the headers that let it read the answer.
"""

from collections.abc import Mapping, Sequence

from tableorm.protocol.codes import Code, Fault

from ..operations.service_properties import CorsRule
from ..wire.calls import Answer

__all__ = ["headers_of", "preflight"]


def preflight(rules: Sequence[CorsRule], headers: Mapping[str, str]) -> Answer:
    """
    The answer to an OPTIONS request.

    Raises:
        Fault: InvalidHeaderValue if it is no preflight; CorsPreflightFailure if no rule allows what it asks for.
    """
    origin, method = headers.get("Origin"), headers.get("Access-Control-Request-Method")
    asked = headers.get("Access-Control-Request-Headers", "")
    # What is sent back must be what a header may hold.
    if not origin or not method or not (origin + asked).isascii():
        raise Fault(
            Code.INVALID_HEADER_VALUE,
            "A preflight request needs the headers Origin and Access-Control-Request-Method, in ASCII.",
        )
    names = [name.strip() for name in asked.split(",") if name.strip()]
    for rule in rules:
        if _for_origin(rule, origin) and method in rule.methods and all(_for_header(rule, name) for name in names):
            answer = {
                "Access-Control-Allow-Origin": origin,
                "Access-Control-Allow-Methods": method,
                "Access-Control-Max-Age": str(rule.max_age),
                "Access-Control-Allow-Credentials": "true",
            }
            if names:
                answer["Access-Control-Allow-Headers"] = asked
            return Answer(200, answer | _vary(rule))
    raise Fault(
        Code.CORS_PREFLIGHT_FAILURE,
        "CORS not enabled or no matching rule found for this request. "
        f"The service has {len(rules)} rules; none allows {method[:20]} from {origin[:200]!r} with these headers.",
    )


def headers_of(rules: Sequence[CorsRule], origin: str, method: str) -> dict[str, str]:
    """The headers for the answer to another request that comes from a page of `origin`."""
    for rule in rules:
        if _for_origin(rule, origin) and method in rule.methods:
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


def _for_origin(rule: CorsRule, origin: str) -> bool:
    return "*" in rule.origins or origin in rule.origins


def _for_header(rule: CorsRule, name: str) -> bool:
    name = name.lower()
    for allowed in rule.headers:
        folded = allowed.lower()
        if folded == name or (folded.endswith("*") and name.startswith(folded[:-1])):
            return True
    return False
