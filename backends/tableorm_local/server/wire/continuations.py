"""
Continuations: where the next page starts, as headers of one answer and parameters of the next request.

Their form is that of the service: version, length, text that is safe in a URL. To clients they are opaque.
"""

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping

from tableorm.protocol.codes import Code, Fault

__all__ = ["Continuation"]

_FORM = re.compile(r"1!([0-9]{1,5})!([A-Za-z0-9_-]*)")


class Continuation:
    """Both kinds of them: of entities, which the store makes, and of tables, which is a name."""

    @staticmethod
    def entity_headers(token: str) -> dict[str, str]:
        """The headers for a token of the store's, which is safe in a URL."""
        # Where keys are split does not matter to clients, that there are two does to some.
        return {
            "x-ms-continuation-NextPartitionKey": _written(token),
            "x-ms-continuation-NextRowKey": _written(_ROW_MARK),
        }

    @staticmethod
    def of_entities(options: Mapping[str, str]) -> str | None:
        """The store's token; None at the start. Fault InvalidInput."""
        text = options.get("NextPartitionKey")
        if not text:
            return None
        return _read(text)

    @staticmethod
    def table_headers(name: str) -> dict[str, str]:
        """The headers when a table of that name comes next."""
        return {"x-ms-continuation-NextTableName": _written(urlsafe_b64encode(name.encode()).rstrip(b"=").decode())}

    @staticmethod
    def of_tables(options: Mapping[str, str]) -> str | None:
        """The name of the table that comes next; None at the start. Fault InvalidInput."""
        text = options.get("NextTableName")
        if not text:
            return None
        token = _read(text)
        try:
            return urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode("utf-8")
        except ValueError:
            raise _malformed(text) from None


_ROW_MARK = "AA"


def _written(token: str) -> str:
    return f"1!{len(token)}!{token}"


def _read(text: str) -> str:
    found = _FORM.fullmatch(text)
    if found is None or len(found.group(2)) != int(found.group(1)):
        raise _malformed(text)
    return found.group(2)


def _malformed(text: str) -> Fault:
    return Fault(
        Code.INVALID_INPUT,
        f"One of the request inputs is not valid: the continuation {text[:80]!r} is malformed; send that of the page "
        "before, unchanged.",
    )
