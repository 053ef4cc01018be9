"""
Options: reads what the headers and the query of a request ask for, each in one place.
"""

import re
from collections.abc import Generator, Mapping
from datetime import date
from functools import lru_cache
from urllib.parse import parse_qsl

from multidict import MultiMapping

from tableorm.protocol.codes import Code, Fault
from tableorm.protocol.edm import is_entity_tag
from tableorm.protocol.filter_text import FilterSyntaxError, parse_in_steps
from tableorm.protocol.filters import Filter
from tableorm.protocol.limits import MAX_PAGE, MAX_PROPERTY_NAME

from .addressing import check_escapes
from .calls import Call, Level, invalid_input, invalid_parameter

DEFAULT_VERSION = "2019-02-02"
# The first with JSON. Source: REST, "Versioning for Azure Storage".
_FIRST_VERSION = "2013-08-15"
# Operations in XML that came before, by their `comp`. Source: REST, "Get Table ACL", "Set Table ACL".
_FIRST_VERSIONS = {"acl": "2012-02-12"}
_MAX_CLIENT_ID = 1024
_VISIBLE = re.compile(r"[!-~]*")
_VERSION = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


def options_of(query: str) -> dict[str, str]:
    """
    Read the parameters of a query, which is form-encoded: `+` is a space.

    Raises:
        Fault: InvalidQueryParameterValue if it is not UTF-8, or an option of the service is given twice; InvalidUri if
            it is not percent-encoded.
    """
    if not query:
        return {}
    check_escapes(query)
    try:
        # Bytes that are not UTF-8 arrive as lone surrogates, which cannot be encoded.
        query.encode("utf-8")
        pairs = parse_qsl(query, keep_blank_values=True, errors="strict", max_num_fields=_MAX_OPTIONS)
    except ValueError:
        raise Fault(
            Code.INVALID_QUERY_PARAMETER,
            f"The query is not UTF-8 once it is percent-decoded, or has more than {_MAX_OPTIONS} parameters.",
        ) from None
    options = dict(pairs)
    if len(options) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise Fault(Code.INVALID_QUERY_PARAMETER, f"The query parameter {twice[:80]!r} is given more than once.")
    return options


_MAX_OPTIONS = 64
# The most properties of an entity, with its keys and Timestamp.
_MAX_NAMES = 255


def version_of(headers: Mapping[str, str], options: Mapping[str, str]) -> str:
    """
    Read the version of the service that the client asks for: `x-ms-version`, else that of its token.

    Raises:
        Fault: InvalidHeaderValue.
    """
    version = headers.get("x-ms-version") or options.get("sv") or DEFAULT_VERSION
    first = _FIRST_VERSIONS.get(options.get("comp", ""), _FIRST_VERSION)
    if not (_is_date(version) and version >= first):
        raise Fault(
            Code.INVALID_HEADER_VALUE,
            f"The value for one of the HTTP headers is not in the correct format: x-ms-version {version[:40]!r} is "
            f"not a version of the service from {first} on.",
        )
    return version


@lru_cache
def _is_date(text: str) -> bool:
    try:
        return _VERSION.fullmatch(text) is not None and date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def check_client_request_id(headers: Mapping[str, str]) -> str | None:
    """
    Read and check the client's own name of the request, which is sent back.

    Raises:
        Fault: InvalidHeaderValue.
    """
    name = headers.get("x-ms-client-request-id")
    if name is not None and (len(name) > _MAX_CLIENT_ID or not _VISIBLE.fullmatch(name)):
        raise Fault(
            Code.INVALID_HEADER_VALUE,
            f"x-ms-client-request-id must have at most {_MAX_CLIENT_ID} characters, all of them visible.",
        )
    return name


def effective_verb(verb: str, headers: MultiMapping[str]) -> str:
    """
    Return the verb that the client means: `X-HTTP-Method` turns a POST into a MERGE.

    Raises:
        Fault: XMethodIncorrectCount, XMethodNotUsingPost, XMethodIncorrectValue.
    """
    methods = headers.getall("X-HTTP-Method", [])
    if not methods:
        return verb
    if len(methods) > 1:
        raise Fault(Code.XMETHOD_COUNT, "X-HTTP-Method is given more than once.")
    if verb != "POST":
        raise Fault(Code.XMETHOD_NOT_POST, f"X-HTTP-Method needs the verb POST (got {verb}).")
    if methods[0].strip() != "MERGE":
        raise Fault(Code.XMETHOD_VALUE, f"X-HTTP-Method must be MERGE (got {methods[0][:40]!r}).")
    return "MERGE"


# The options that some operation knows. Other options that start with $ are OData's, and refused.
_QUERY_OPTIONS = frozenset({"$filter", "$top", "$select", "$format"})


def check_options(call: Call) -> None:
    """
    Refuse options that the service does not have.

    Raises:
        Fault: NotImplemented, InvalidQueryParameterValue.
    """
    for name in call.options:
        if name.startswith("$") and name not in _QUERY_OPTIONS:
            raise Fault(
                Code.NOT_IMPLEMENTED,
                f"The requested operation is not implemented on the specified resource: {name[:40]!r}; there are "
                f"{', '.join(sorted(_QUERY_OPTIONS))}.",
            )
    seconds_of(call)


def seconds_of(call: Call) -> int | None:
    """
    Read `timeout`, the seconds that the operation may take; None for no limit, which 0 means too.

    Raises:
        Fault: InvalidQueryParameterValue.

    Source: REST, "Setting timeouts for Table service operations".
    """
    timeout = call.options.get("timeout", "")
    if timeout and not (timeout.isdecimal() and timeout.isascii() and len(timeout) <= _TIMEOUT_DIGITS):
        raise invalid_parameter(f"timeout {timeout[:40]!r} is not a number of seconds")
    return int(timeout or 0) or None


_TIMEOUT_DIGITS = 9


def read_filter(call: Call) -> Generator[None, None, Filter | None]:
    """
    Read `$filter` in steps; None if it is missing or blank.

    Raises:
        Fault: InvalidInput, also beyond `MAX_COMPARISONS` or `MAX_NESTINGS`; NotImplemented for functions;
            OutOfRangeInput for a DateTime that no row can have.
    """
    text = call.options.get("$filter", "")
    if not text or text.isspace():
        return None
    # Counted before it is read, as reading takes longer. Each comparison but the first follows `and` or `or`.
    words = _QUOTED.sub("", text)
    count = 1 + len(_JOINS.findall(words))
    if count > MAX_COMPARISONS:
        raise invalid_input(f"$filter has {count} comparisons, {MAX_COMPARISONS} are allowed.")
    count = len(_NESTINGS.findall(words))
    if count > MAX_NESTINGS:
        raise invalid_input(f"$filter has {count} opening parentheses and nots, {MAX_NESTINGS} are allowed.")
    try:
        return (yield from parse_in_steps(text))
    except FilterSyntaxError as error:
        raise Fault(error.code, f"One of the request inputs is not valid: {error}.") from None


# Far more than the 15 that are documented for the service, whose users report that 200 work. The mapper sends what it
# counts as 6,000 characters at most, in which some 315 of the shortest comparisons have room, and bounds of keys.
MAX_COMPARISONS = 400
_QUOTED = re.compile("'[^']*+'")
_JOINS = re.compile(r"\b(?:and|or)\b")
MAX_NESTINGS = 2 * MAX_COMPARISONS  # as many as there are when each comparison stands in parentheses after `not`
_NESTINGS = re.compile(r"\(|\bnot\b")


def top_of(call: Call) -> int:
    """
    Read `$top`, the most items of a page. Storage Explorer sends 0.

    Raises:
        Fault: InvalidInput.
    """
    text = call.options.get("$top", "").strip()
    if not text:
        return MAX_PAGE
    if not (text.isascii() and text.isdecimal() and len(text) <= len(str(MAX_PAGE)) and int(text) <= MAX_PAGE):
        raise invalid_input(f"$top is {text[:20]!r}, not 0 to {MAX_PAGE}.")
    return int(text)


def select_of(call: Call) -> tuple[str, ...] | None:
    """
    Read `$select`, the names of properties; None for all.

    Raises:
        Fault: InvalidInput: more names than an entity can have, or longer ones.
    """
    text = call.options.get("$select", "")
    # Counted before it is split, as splitting takes longer.
    if text.count(",") > 2 * _MAX_NAMES:
        raise invalid_input(f"$select has {text.count(',')} commas, {2 * _MAX_NAMES} are allowed.")
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if len(names) > _MAX_NAMES:
        raise invalid_input(f"$select has {len(names)} names, {_MAX_NAMES} are allowed.")
    longest = max(names, key=len, default="")
    if len(longest) > MAX_PROPERTY_NAME:
        raise invalid_input(
            f"$select has the name {longest[:40]!r}... of {len(longest)} characters, {MAX_PROPERTY_NAME} are allowed."
        )
    return None if not names or "*" in names else names


# Repetitions are possessive (`*+`), so that the time grows with the length, whatever quotes there are.
_PARAMETER = re.compile(r""";\s*+([^\s;="]*+)\s*+(?:=\s*+("(?:[^"\\]|\\.)*+"|[^\s;"]*+)\s*+)?""")
_MEDIA_RANGE = re.compile(r"""(?:[^,"]++|"(?:[^"\\]|\\.)*+"?+)++""")
_ESCAPED = re.compile(r"\\(.)")
_MAX_MEDIA_TYPE = 1000


@lru_cache
def read_media_type(text: str) -> tuple[str, Mapping[str, str]]:
    """
    Read a media type: its name in lower case, and its parameters by their names in lower case.

    A parameter may be quoted. Of two with one name the first one counts. What cannot be read ends the parameters. A
    text of more than 1,000 characters has none.
    """
    kind, parameters = text.partition(";")[0].strip().lower(), dict[str, str]()
    found = _PARAMETER.match(text, text.find(";")) if ";" in text and len(text) <= _MAX_MEDIA_TYPE else None
    while found is not None:
        name, value = found[1].lower(), found[2] or ""
        if value.startswith('"'):
            value = _ESCAPED.sub(r"\1", value[1:-1])
        parameters.setdefault(name, value)
        found = _PARAMETER.match(text, found.end())
    return kind, parameters


_JSON = "application/json"
_ATOM = "application/atom+xml"
# The most characters of a list of what a client accepts or prefers, which is split: far more than clients send.
_MAX_PREFERENCES = 1000


def level_of(call: Call) -> Level:
    """
    Read how much metadata the answer must have: from `$format`, else `Accept`; minimal if neither says.

    Raises:
        Fault: AtomFormatNotSupported, MediaTypeNotSupported: the client accepts no JSON.
    """
    wanted = call.options.get("$format") or call.headers.get("Accept") or _JSON
    known = _LEVELS.get(wanted)
    if known is not None:
        return known
    if len(wanted) > _MAX_PREFERENCES:
        raise Fault(
            Code.MEDIA_TYPE_NOT_SUPPORTED,
            f"None of the provided media types are supported: Accept and $format may have {_MAX_PREFERENCES} "
            f"characters (got {len(wanted)}).",
        )
    atom = False
    for media in _MEDIA_RANGE.findall(wanted):
        name, parameters = read_media_type(media)
        if name in ("json", _JSON, "application/*", "*/*"):
            return _level(parameters["odata"].lower()) if "odata" in parameters else Level.MINIMAL
        atom = atom or name == _ATOM
    if atom:
        raise Fault(Code.ATOM_NOT_SUPPORTED, f"Atom format is not supported; accept {_JSON}.")
    raise Fault(
        Code.MEDIA_TYPE_NOT_SUPPORTED,
        f"None of the provided media types are supported: {wanted[:80]!r}; accept {_JSON}.",
    )


_LEVELS = {f"{_JSON};odata={level.value}": level for level in Level} | {_JSON: Level.MINIMAL}


def _level(name: str) -> Level:
    try:
        return Level(name)
    except ValueError:
        raise Fault(
            Code.MEDIA_TYPE_NOT_SUPPORTED,
            f"None of the provided media types are supported: there is no odata={name[:40]!r}.",
        ) from None


def check_json_body(call: Call) -> None:
    """
    Refuse a body whose type is not JSON.

    Raises:
        Fault: AtomFormatNotSupported, MediaTypeNotSupported.
    """
    kind, _ = read_media_type(call.headers.get("Content-Type", ""))
    if kind in ("", _JSON):
        return
    if kind == _ATOM:
        raise Fault(Code.ATOM_NOT_SUPPORTED, f"Atom format is not supported; send {_JSON}.")
    raise Fault(
        Code.MEDIA_TYPE_NOT_SUPPORTED, f"None of the provided media types are supported: {kind[:80]!r}; send {_JSON}."
    )


def prefers_content(call: Call) -> bool | None:
    """Read `Prefer`: whether to send back what was created; None if the client does not say, or says far too much."""
    text = call.headers.get("Prefer", "")
    words = {word.strip().lower() for word in text.split(",")} if len(text) <= _MAX_PREFERENCES else set[str]()
    if "return-no-content" in words:
        return False
    return True if "return-content" in words else None


def if_match_of(call: Call) -> str | None:
    """
    Read `If-Match`, trimmed; None if it is missing.

    Raises:
        Fault: InvalidInput: it is not one ETag or `*`; or there is `If-None-Match`.
    """
    if "If-None-Match" in call.headers:
        raise invalid_input("If-None-Match has no meaning for a write.")
    tag = call.headers.get("If-Match")
    if tag is None:
        return None
    tag = tag.strip()
    if tag != "*" and not is_entity_tag(tag):
        raise invalid_input(f"If-Match {tag[:80]!r} is not one ETag or '*'.")
    return tag
