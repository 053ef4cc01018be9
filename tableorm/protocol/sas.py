"""
Shared access signatures: tokens for one table or for an account, how they are signed, and what they allow.

A token is a set of query parameters, and the fields have the parameters' names. Signing and checking use the decoded
text exactly as it was given, since the signature covers the text.

Source: REST, "Create a service SAS", "Create an account SAS".
"""

import datetime as dt
import ipaddress
import re
from collections.abc import Iterable, Mapping
from enum import StrEnum
from urllib.parse import parse_qsl, quote

import attrs

from .edm import ticks_from_datetime, ticks_from_text
from .key_range import KeyRange
from .shared_key import matches, sign


class Action(StrEnum):
    """What a request does, as far as permissions distinguish requests."""

    GET_PROPERTIES = "get service properties"
    SET_PROPERTIES = "set service properties"
    GET_STATISTICS = "get service statistics"
    LIST_TABLES = "list tables"
    CREATE_TABLE = "create a table"
    DELETE_TABLE = "delete a table"
    GET_POLICIES = "get access policies"
    SET_POLICIES = "set access policies"
    QUERY = "read entities"
    INSERT = "insert an entity"
    UPSERT = "insert or update an entity"
    UPDATE = "update an entity"
    DELETE = "delete an entity"


TABLE_PERMISSIONS: Mapping[Action, str] = {
    Action.QUERY: "r",
    Action.INSERT: "a",
    Action.UPSERT: "au",
    Action.UPDATE: "u",
    Action.DELETE: "d",
}
"""
The letters of `sp` that a table's token needs, all of them. It never allows what is not listed here.

Source: REST, "Create a service SAS", "Permissions for a table".
"""

ACCOUNT_RULES: Mapping[Action, tuple[str, tuple[str, ...]]] = {
    Action.GET_PROPERTIES: ("s", ("r",)),
    Action.SET_PROPERTIES: ("s", ("w",)),
    Action.GET_STATISTICS: ("s", ("r",)),
    Action.LIST_TABLES: ("c", ("l",)),
    Action.CREATE_TABLE: ("c", ("c", "w")),
    Action.DELETE_TABLE: ("c", ("d",)),
    Action.QUERY: ("o", ("r",)),
    Action.INSERT: ("o", ("a",)),
    Action.UPSERT: ("o", ("au",)),
    Action.UPDATE: ("o", ("u",)),
    Action.DELETE: ("o", ("d",)),
}
"""
What an account's token needs: one letter of `srt`, and the letters of `sp`, of which any alternative suffices.

It never allows what is not listed here.

Source: REST, "Create an account SAS", "Account SAS permissions by operation".
"""

# The first version whose table tokens sign their own version. Source: REST, "Versioning for Azure Storage".
_FIRST_TABLE_VERSION = "2012-02-12"
_RESOURCE_NAMES_SERVICE = "2015-02-21"
# The first version that has account tokens, `sip` and `spr`.
_ADDRESS_AND_PROTOCOL = "2015-04-05"
_ENCRYPTION_SCOPE = "2020-12-06"

TABLE_LETTERS = "raud"
"""The permissions of a table's token, in the order that the service documents."""

# The permissions of an account's token, in the order that the service documents.
_ACCOUNT_LETTERS = "rwdxylacuptfi"
_SERVICES = "bqtf"
_RESOURCE_TYPES = "sco"
_PROTOCOLS = ("https", "https,http")

# Source: REST, "Set Table ACL".
MAX_POLICIES = 5
MAX_POLICY_ID = 64

_VERSION = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


@attrs.frozen(kw_only=True)
class TableSas:
    """
    A token for the rows of one table.

    Args:
        sv: Version of the service that defines the token, `2019-02-02`.
        tn: The table's name; letter case does not matter.
        st: When the token starts to be valid, as text: `2024-01-01`, `2024-01-01T00:00Z`, with seconds or up to 7
            digits more. None for at once.
        se: When the token expires, in the same form. Needed unless `si` supplies it.
        sp: What the token allows, by letters of `raud`: read (query), add (insert), update, delete. Needed unless `si`
            supplies it.
        si: The table's stored access policy that supplies what the token lacks.
        sip: The address that requests must come from, or a range of addresses, `FIRST-LAST`.
        spr: `https`, or `https,http`, which is the default.
        spk, srk: The first PartitionKey and RowKey that the token gives access to; see `KeyRange`.
        epk, erk: The last PartitionKey and RowKey that it gives access to.

    Raises:
        ValueError: A parameter is missing or malformed, or contradicts another one; the message names it.
    """

    sv: str
    tn: str
    st: str | None = None
    se: str | None = None
    sp: str | None = None
    si: str | None = None
    sip: str | None = None
    spr: str | None = None
    spk: str | None = None
    srk: str | None = None
    epk: str | None = None
    erk: str | None = None

    def __attrs_post_init__(self) -> None:
        _check_token(self, _FIRST_TABLE_VERSION)
        if not self.tn:
            raise ValueError("tn, the table, is empty")
        if self.si is None:
            for name, value in (("sp", self.sp), ("se", self.se)):
                if value is None:
                    raise ValueError(f"{name} is missing; give it, or with si the stored access policy that has it")
        elif len(self.si) > MAX_POLICY_ID:
            raise ValueError(f"si {self.si[:20]!r}... has {len(self.si)} characters, {MAX_POLICY_ID} are allowed")
        _check_letters("sp", self.sp, TABLE_LETTERS)
        if self.sv < _ADDRESS_AND_PROTOCOL and (self.sip is not None or self.spr is not None):
            raise ValueError(
                f"sip and spr are not signed in version {self.sv}; they need {_ADDRESS_AND_PROTOCOL} or later"
            )
        _ = self.keys  # refuses a RowKey without its PartitionKey

    @property
    def keys(self) -> KeyRange:
        """The range of rows that the token gives access to."""
        return KeyRange(start_partition=self.spk, start_row=self.srk, end_partition=self.epk, end_row=self.erk)

    def text(self, account: str) -> str:
        """Return the string to sign."""
        service = "/table" if self.sv >= _RESOURCE_NAMES_SERVICE else ""
        origin = [self.sip, self.spr] if self.sv >= _ADDRESS_AND_PROTOCOL else []
        resource = f"{service}/{account}/{self.tn.lower()}"
        keys = [self.spk, self.srk, self.epk, self.erk]
        return _join_lines(self.sp, self.st, self.se, resource, self.si, *origin, self.sv, *keys)

    def allows_table(self, name: str) -> bool:
        """Return whether the token is for the table of this name."""
        return name.lower() == self.tn.lower()

    def allows(self, access: Action) -> bool:
        """Return whether the token's permissions suffice for this access."""
        needed = TABLE_PERMISSIONS.get(access)
        return needed is not None and set(needed) <= set(self.sp or "")


@attrs.frozen(kw_only=True)
class AccountSas:
    """
    A token for services of an account.

    Args:
        sv: Version of the service that defines the token.
        ss: The services, by letters of `bqtf`; `t` is tables.
        srt: The types of resources: `s` for the service, `c` for tables, `o` for entities.
        sp: What the token allows, by letters of `rwdxylacuptfi`: read, write, delete, list, add, create, update and
            others that tables do not have.
        se: When the token expires, as text in the form that `TableSas` has.
        st: When the token starts to be valid; None for at once.
        sip: The address that requests must come from, or a range of addresses, `FIRST-LAST`.
        spr: `https`, or `https,http`, which is the default.
        ses: An encryption scope. It has no meaning for tables, but it is signed.

    Raises:
        ValueError: A parameter is missing or malformed; the message names it.
    """

    sv: str
    ss: str
    srt: str
    sp: str
    se: str
    st: str | None = None
    sip: str | None = None
    spr: str | None = None
    ses: str | None = None

    def __attrs_post_init__(self) -> None:
        _check_token(self, _ADDRESS_AND_PROTOCOL)
        _check_letters("ss", self.ss, _SERVICES)
        _check_letters("srt", self.srt, _RESOURCE_TYPES)
        _check_letters("sp", self.sp, _ACCOUNT_LETTERS)
        if self.ses is not None and self.sv < _ENCRYPTION_SCOPE:
            raise ValueError(f"ses is not signed in version {self.sv}; it needs {_ENCRYPTION_SCOPE} or later")

    def text(self, account: str) -> str:
        """Return the string to sign, which ends with a line end."""
        scope = [self.ses] if self.sv >= _ENCRYPTION_SCOPE else []
        origin = [self.sip, self.spr]
        return _join_lines(account, self.sp, self.ss, self.srt, self.st, self.se, *origin, self.sv, *scope, None)

    @property
    def allows_tables(self) -> bool:
        """Whether the token is for the Table service at all."""
        return "t" in self.ss

    def allows_type(self, access: Action) -> bool:
        """Return whether the token is for the type of resource that the request is about."""
        return access in ACCOUNT_RULES and ACCOUNT_RULES[access][0] in self.srt

    def allows(self, access: Action) -> bool:
        """Return whether the token's permissions suffice for this access; `allows_type` checks the resource type."""
        return access in ACCOUNT_RULES and any(set(needed) <= set(self.sp) for needed in ACCOUNT_RULES[access][1])


def _join_lines(*values: str | None) -> str:
    return "\n".join(value or "" for value in values)


def _check_token(token: TableSas | AccountSas, first_version: str) -> None:
    for name, value in _parameters(token).items():
        # With a line end in a value, two different tokens could have the same string to sign.
        if found := _CONTROL.search(value):
            raise ValueError(f"{name} {value!r} has the forbidden character U+{ord(found.group()):04X}")
    if not _VERSION.fullmatch(token.sv):
        raise ValueError(f"sv {token.sv!r} is not a version of the service, such as 2019-02-02")
    if token.sv < first_version:
        raise ValueError(f"sv {token.sv} is older than {first_version}, the first version of such tokens that is read")
    for name, moment in (("st", token.st), ("se", token.se)):
        if moment is not None:
            _parse_moment(name, moment)
    if token.sip is not None:
        _parse_addresses(token.sip)
    if token.spr is not None and token.spr not in _PROTOCOLS:
        raise ValueError(f"spr {token.spr!r} is not one of {' or '.join(map(repr, _PROTOCOLS))}")


def _check_letters(name: str, letters: str | None, known: str) -> None:
    if letters is not None and (not letters or len(set(letters)) < len(letters) or not set(letters) <= set(known)):
        raise ValueError(f"{name} {letters!r} is not made of the letters {known!r}, each at most once")


def _parse_moment(name: str, text: str) -> int:
    """Return the moment that `st` or `se` names, in ticks; a date alone means its midnight."""
    try:
        return ticks_from_text(text if "T" in text else f"{text}T00:00Z")
    except ValueError:
        raise ValueError(f"{name} {text!r} is not a moment such as 2024-02-29 or 2024-02-29T12:34:56Z") from None


_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def read_address(text: str) -> _Address:
    """
    Read an address. A socket for both versions of IP shows one of IPv4 as `::ffff:192.0.2.1`.

    Raises:
        ValueError: It is none.
    """
    address = ipaddress.ip_address(text)
    return (isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped) or address


def _parse_addresses(sip: str) -> tuple[_Address, _Address]:
    """Return the first and the last address of `sip`."""
    first, dash, last = sip.partition("-")
    try:
        start = ipaddress.ip_address(first)
        end = ipaddress.ip_address(last) if dash else start
    except ValueError:
        raise ValueError(f"sip {sip!r} is not an address such as 203.0.113.5, or two with a dash between") from None
    if start.version != end.version or int(start) > int(end):
        raise ValueError(f"sip {sip!r} does not go from a lower address to a higher one")
    return start, end


def _parameters(token: TableSas | AccountSas) -> dict[str, str]:
    """Return the parameters that a token has."""
    values: dict[str, str | None] = attrs.asdict(token)
    return {name: value for name, value in values.items() if value is not None}


def sign_sas(token: TableSas | AccountSas, account: str, key: bytes) -> str:
    """
    Return the token as a query string, percent-encoded and with its signature, without `?`.

    Raises:
        ValueError: The token would be useless or unsafe: it is never valid, its permissions are not in the service's
            order, or its last key is empty, which has the same signature as no last key.
    """
    letters = TABLE_LETTERS if isinstance(token, TableSas) else _ACCOUNT_LETTERS
    if token.sp is not None and token.sp != "".join(letter for letter in letters if letter in token.sp):
        raise ValueError(f"sp {token.sp!r} is not in the order {letters!r}, which the service may refuse")
    if token.st is not None and token.se is not None and _parse_moment("st", token.st) >= _parse_moment("se", token.se):
        raise ValueError(f"the token would expire (se {token.se}) before it starts to be valid (st {token.st})")
    if isinstance(token, TableSas):
        if token.keys.empty:
            raise ValueError(
                "the token would be for no row: its last keys, epk and erk, come before its first ones, spk and srk"
            )
        if token.erk == "" or (token.epk == "" and token.erk is None):
            # A client could leave the parameter out, and the signature would still fit.
            name = "epk" if token.erk is None else "erk"
            raise ValueError(f"{name} is empty, which has the same signature as no limit; end at another key")
    values = {**_parameters(token), "sig": sign(key, token.text(account))}
    return "&".join(f"{name}={quote(value, safe='')}" for name, value in values.items())


_TABLE_NAMES = tuple(field.name for field in attrs.fields(TableSas))
_ACCOUNT_NAMES = tuple(field.name for field in attrs.fields(AccountSas))
_KEY_NAMES = ("spk", "srk", "epk", "erk")


def parse_sas(query: str) -> tuple[TableSas | AccountSas, str]:
    """
    Read the token and its signature from a query string: from the text of a token, or from the query of a URL.

    An empty parameter counts as absent, except for keys, which may be empty. Parameters that no token has are ignored.

    Raises:
        ValueError: A parameter is missing, repeated, malformed, or does not belong to this type of token. The message
            leaves out the signature.
    """
    try:
        pairs = parse_qsl(query.removeprefix("?"), keep_blank_values=True, errors="strict")
    except UnicodeDecodeError:
        raise ValueError("the query is not UTF-8 once it is percent-decoded") from None
    values: dict[str, str] = {}
    for name, value in pairs:
        if name not in {*_TABLE_NAMES, *_ACCOUNT_NAMES, "sig"}:
            continue
        if name in values:
            raise ValueError(f"{name} is given more than once")
        values[name] = value
    values = {name: value for name, value in values.items() if value or name in _KEY_NAMES}
    signature = values.pop("sig", None)
    if signature is None:
        raise ValueError("sig, the signature, is missing")
    known, needed = (_TABLE_NAMES, ("sv",)) if "tn" in values else (_ACCOUNT_NAMES, ("sv", "ss", "srt", "sp", "se"))
    kind = "a table's token, which tn makes it" if "tn" in values else "an account's token; one for a table has tn"
    for name in needed:
        if name not in values:
            raise ValueError(f"{name} is missing in {kind}")
    for name in values:
        if name not in known:
            # It is not signed, so a client could leave it out and use the token without its limit.
            raise ValueError(f"{name} is not a parameter of {kind}")
    return (TableSas(**values) if "tn" in values else AccountSas(**values)), signature


def verify_sas(token: TableSas | AccountSas, signature: str, account: str, keys: Iterable[bytes]) -> bool:
    """Return, in constant time, whether one of the account's keys has made this signature for the token."""
    return matches(signature, token.text(account), keys)


@attrs.frozen(kw_only=True)
class AccessPolicy:
    """A table's stored access policy, which supplies what a token that names it lacks. Empty text supplies nothing."""

    start: str | None = None
    expiry: str | None = None
    permission: str | None = None


def under_policy(token: TableSas, policy: AccessPolicy) -> TableSas:
    """
    Return the token with the values that its policy supplies, and without the policy's name. Verify it before.

    Raises:
        ValueError: Token and policy both have a field, or neither has one that is needed.
    """
    given = {"st": token.st, "se": token.se, "sp": token.sp}
    supplied = {"st": policy.start, "se": policy.expiry, "sp": policy.permission}
    for name, value in supplied.items():
        if value and given[name] is not None:
            raise ValueError(f"{name} stands both in the token and in its stored access policy {token.si!r}")
    both = {name: given[name] or supplied[name] or None for name in given}
    return attrs.evolve(token, si=None, st=both["st"], se=both["se"], sp=both["sp"])


def expiry_ticks(token: TableSas | AccountSas) -> int | None:
    """Return when the token expires, in ticks; None if its stored access policy says when."""
    return None if token.se is None else _parse_moment("se", token.se)


def time_fault(token: TableSas | AccountSas, now: dt.datetime) -> str | None:
    """Return why the token is not valid at `now`, an aware datetime; None if it is."""
    ticks = ticks_from_datetime(now)
    if token.st is not None and ticks < _parse_moment("st", token.st):
        return f"the token is not valid before {token.st}"
    if token.se is not None and ticks >= _parse_moment("se", token.se):
        return f"the token expired at {token.se}"
    return None


def allows_protocol(token: TableSas | AccountSas, scheme: str) -> bool:
    """Return whether requests may come by this scheme, `http` or `https`."""
    return scheme in (token.spr or _PROTOCOLS[1]).split(",")


def allows_address(token: TableSas | AccountSas, address: str) -> bool:
    """Return whether requests may come from `address`; if the token names addresses, unreadable ones may not."""
    if token.sip is None:
        return True
    try:
        given = read_address(address)
    except ValueError:
        return False
    start, end = _parse_addresses(token.sip)
    return given.version == start.version and int(start) <= int(given) <= int(end)
