"""
Tokens: signatures against those of azure-data-tables and of strings signed elsewhere, what is rejected, what is
allowed.
"""

import datetime as dt
import importlib
import pickle
from base64 import b64encode
from typing import Any
from urllib.parse import parse_qs, parse_qsl, quote

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tableorm.protocol.sas import (
    ACCOUNT_RULES,
    TABLE_PERMISSIONS,
    AccessPolicy,
    AccountSas,
    Action,
    TableSas,
    allows_address,
    allows_protocol,
    parse_sas,
    sign_sas,
    time_fault,
    under_policy,
    verify_sas,
)
from tableorm.protocol.shared_key import sign

KEY = b"foobarbazqux"
OTHER = b"another key"
TABLE = TableSas(sv="2019-02-02", tn="People", sp="raud", se="2030-01-01T00:00:00Z")
FULL = TableSas(
    sv="2019-02-02",
    tn="People",
    st="2024-01-01",
    se="2030-01-01",
    sp="r",
    si="policy",
    sip="203.0.113.5",
    spr="https",
    spk="a",
    srk="b",
    epk="c",
    erk="d",
)
ACCOUNT = AccountSas(sv="2019-02-02", ss="t", srt="sco", sp="rwdlacu", se="2030-01-01T00:00:00Z")


def moment(text: str) -> dt.datetime:
    return dt.datetime.fromisoformat(text).replace(tzinfo=dt.UTC)


# What is signed.


def test_string_of_a_table_token() -> None:
    """Twelve values, the table's name in lower case, absent ones empty, and no line end."""
    assert attrs.evolve(FULL, sv="2015-04-05").text("acc") == (
        "r\n2024-01-01\n2030-01-01\n/table/acc/people\npolicy\n203.0.113.5\nhttps\n2015-04-05\na\nb\nc\nd"
    )
    assert TABLE.text("acc") == "raud\n\n2030-01-01T00:00:00Z\n/table/acc/people\n\n\n\n2019-02-02\n\n\n\n"


def test_string_of_older_versions() -> None:
    """Before 2015-04-05 address and protocol are not signed, before 2015-02-21 the resource lacks the service."""
    assert attrs.evolve(TABLE, sv="2015-02-21").text("acc") == (
        "raud\n\n2030-01-01T00:00:00Z\n/table/acc/people\n\n2015-02-21\n\n\n\n"
    )
    assert attrs.evolve(TABLE, sv="2014-02-14").text("acc") == (
        "raud\n\n2030-01-01T00:00:00Z\n/acc/people\n\n2014-02-14\n\n\n\n"
    )


def test_string_of_an_account_token() -> None:
    """Nine values, each with a line end; from 2020-12-06 on an encryption scope, present or not."""
    assert ACCOUNT.text("acc") == "acc\nrwdlacu\nt\nsco\n\n2030-01-01T00:00:00Z\n\n\n2019-02-02\n"
    assert attrs.evolve(ACCOUNT, sv="2020-12-06").text("acc") == (
        "acc\nrwdlacu\nt\nsco\n\n2030-01-01T00:00:00Z\n\n\n2020-12-06\n\n"
    )
    assert attrs.evolve(ACCOUNT, sv="2020-12-06", ses="scope").text("acc").endswith("\n2020-12-06\nscope\n")


def test_known_signatures() -> None:
    """The signatures are those that `openssl dgst -sha256 -hmac` gives for the strings."""
    assert sign(KEY, TABLE.text("acc")) == "ssPA+CS2zqohw8ew263rq4Rrzba60VTfyk0TZX3EtnU="
    assert sign(KEY, ACCOUNT.text("acc")) == "jTDJuX1Go9g9kfjQfZTHSisR0RQUbjlu5FzMNqJSPUc="


@pytest.mark.parametrize("token", [TABLE, ACCOUNT])
def test_either_key_verifies(token: TableSas | AccountSas) -> None:
    """What one key of the account signed is accepted wherever it stands; for no other account, and not if altered."""
    found, signature = parse_sas(sign_sas(token, "acc", KEY))

    assert found == token
    assert verify_sas(found, signature, "acc", [KEY])
    assert verify_sas(found, signature, "acc", [OTHER, KEY])
    assert not verify_sas(found, signature, "acc", [OTHER])
    assert not verify_sas(found, signature, "acc", [])
    assert not verify_sas(found, signature, "other", [KEY])
    assert not verify_sas(found, signature[:-1], "acc", [KEY])
    assert not verify_sas(attrs.evolve(found, sp="r"), signature, "acc", [KEY])
    assert not verify_sas(attrs.evolve(found, se="2030-01-01T00:00Z"), signature, "acc", [KEY])


def test_letter_case_of_the_table_does_not_count() -> None:
    """The name is signed in lower case and compared without case."""
    _, signature = parse_sas(sign_sas(TABLE, "acc", KEY))

    assert verify_sas(attrs.evolve(TABLE, tn="PEOPLE"), signature, "acc", [KEY])
    assert TABLE.allows_table("pEOPLE")
    assert not TABLE.allows_table("People2")


# The service's own client.

TABLES: Any = importlib.import_module("azure.data.tables")
CREDENTIAL: Any = importlib.import_module("azure.core.credentials").AzureNamedKeyCredential(
    "acc", b64encode(KEY).decode()
)
# What a key may hold; the client leaves an empty one out.
keys = st.text(st.characters(exclude_categories=["Cc", "Cs"], exclude_characters="/\\#?"), min_size=1)
starts = st.datetimes(dt.datetime(2000, 1, 1), dt.datetime(2024, 1, 1))  # noqa: DTZ001 - as strategies want them
expiries = st.datetimes(dt.datetime(2024, 1, 2), dt.datetime(2100, 1, 1))  # noqa: DTZ001
optional = {
    "permission": st.sampled_from(["r", "raud", "au"]),
    "start": starts | st.just("2024-01-01"),
    "ip_address_or_range": st.sampled_from(["203.0.113.5", "203.0.113.5-203.0.113.9"]),
    "policy_id": st.sampled_from(["policy", "é & ü"]),
    "protocol": st.sampled_from(["https", "https,http"]),
    "start_pk": keys,
    "end_pk": keys,
    "start_rk": keys,
    "end_rk": keys,
}


@given(st.fixed_dictionaries({"expiry": expiries | st.just("2030-01-01T00:00Z")}, optional=optional))
def test_table_tokens_of_the_client(options: dict[str, Any]) -> None:
    """Every token that azure-data-tables makes is read and verified, and is what is made here of the same values."""
    if "policy_id" not in options:
        options.setdefault("permission", "r")
    for row, partition in [("start_rk", "start_pk"), ("end_rk", "end_pk")]:
        if partition not in options:
            options.pop(row, None)
    made: str = TABLES.generate_table_sas(CREDENTIAL, "People", **options)

    token, signature = parse_sas(made)
    assert verify_sas(token, signature, "acc", [KEY])
    assert not verify_sas(token, signature, "acc", [OTHER])
    assert isinstance(token, TableSas)
    bounds = (token.spk, token.srk, token.epk, token.erk)
    assert bounds == tuple(options.get(name) for name in ["start_pk", "start_rk", "end_pk", "end_rk"])
    if not token.keys.empty:
        assert sorted(parse_qsl(sign_sas(token, "acc", KEY))) == sorted(parse_qsl(made))


# Query strings.


def test_the_query_string() -> None:
    """Values are percent-encoded; they come back decoded, within the query of any URL."""
    token = attrs.evolve(TABLE, spk="a+b &=é", epk="\U0001f600", erk="%20", st="2024-01-01T00:00:00.1234567Z")
    made = sign_sas(token, "acc", KEY)

    assert "spk=a%2Bb%20%26%3D%C3%A9&epk=%F0%9F%98%80&erk=%2520&sig=" in made
    assert parse_sas(made)[0] == parse_sas(f"?$filter=a%20eq%201&$top=1&{made}&timeout=30")[0] == token
    assert parse_sas(made.replace("%20", "+"))[0] == token


def test_empty_parameters() -> None:
    """An empty parameter is an absent one, but a key may be empty: it is the first one of all."""
    token, _ = parse_sas("sv=2019-02-02&tn=People&sp=r&se=2030-01-01&st=&si=&sip=&spr=&spk=&srk=&epk=&erk=&sig=x")

    assert token == TableSas(
        sv="2019-02-02",
        tn="People",
        sp="r",
        se="2030-01-01",
        spk="",
        srk="",
        epk="",
        erk="",
    )


@pytest.mark.parametrize("query", [sign_sas(FULL, "acc", KEY), sign_sas(ACCOUNT, "acc", KEY)])
def test_no_parameter_twice(query: str) -> None:
    """A parameter that is repeated is rejected, the signature among them, whether or not it has the same value."""
    for name, values in parse_qs(query).items():
        for value in [values[0], "other", ""]:
            with pytest.raises(ValueError, match=f"{name} is given more than once"):
                parse_sas(f"{query}&{name}={quote(value, safe='')}")


SIGNED = "sv=2019-02-02&tn=People&sp=r&se=2030-01-01&sig=c2VjcmV0"
FOR_ACCOUNT = "sv=2019-02-02&ss=t&srt=o&sp=r&se=2030-01-01&sig=c2VjcmV0"


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ("", "sig, the signature, is missing"),
        (SIGNED.replace("sv=2019-02-02", ""), "sv is missing in a table's token"),
        (SIGNED.replace("sp=r", ""), "sp is missing"),
        (SIGNED.replace("tn=People", ""), "ss is missing in an account's token; one for a table has tn"),
        (FOR_ACCOUNT.replace("srt=o", ""), "srt is missing"),
        (SIGNED + "&srt=o", "srt is not a parameter of a table's token"),
        (FOR_ACCOUNT + "&spk=a", "spk is not a parameter of an account's token"),
        (SIGNED + "&srk=a", "a range starts at RowKey 'a' without a PartitionKey"),
        (SIGNED + "&spk=a&erk=a", "a range ends at RowKey 'a' without a PartitionKey"),
        (SIGNED + "&spk=%FF", "not UTF-8"),
        (SIGNED + "&st=yesterday", "st 'yesterday' is not a moment"),
        (SIGNED.replace("2030-01-01", "2030-13-01"), "se '2030-13-01' is not a moment"),
        (SIGNED.replace("sp=r", "sp=rx"), "sp 'rx' is not made of the letters 'raud'"),
        (SIGNED.replace("sp=r", "sp=rr"), "sp 'rr'"),
        (FOR_ACCOUNT.replace("sp=r", "sp=rz"), "sp 'rz'"),
        (FOR_ACCOUNT.replace("srt=o", "srt=ob"), "srt 'ob'"),
        (SIGNED.replace("sv=2019-02-02", "sv=now"), "sv 'now' is not a version"),
        (SIGNED.replace("sv=2019-02-02", "sv=2011-08-18"), "sv 2011-08-18 is older than 2012-02-12"),
        (FOR_ACCOUNT.replace("sv=2019-02-02", "sv=2015-02-21"), "sv 2015-02-21 is older than 2015-04-05"),
        (FOR_ACCOUNT + "&ses=scope", "ses is not signed in version 2019-02-02"),
        (SIGNED.replace("sv=2019-02-02", "sv=2014-02-14") + "&sip=203.0.113.5", "sip and spr are not signed"),
        (SIGNED + "&spr=http", "spr 'http' is not one of"),
        (SIGNED + "&sip=here", "sip 'here' is not an address"),
        (SIGNED + "&sip=203.0.113.5-203.0.113.4", "does not go from a lower address"),
        (SIGNED + "&sip=203.0.113.5-2001:db8::1", "does not go from a lower address"),
        (SIGNED + "&si=" + "x" * 65, "has 65 characters"),
        (SIGNED + "&spk=a%0Ab", "forbidden character U\\+000A"),
    ],
)
def test_what_is_refused(query: str, problem: str) -> None:
    """What is missing, malformed or does not go together is named; the signature is not repeated."""
    with pytest.raises(ValueError, match=problem) as caught:
        parse_sas(query)
    assert "c2VjcmV0" not in str(caught.value)


@given(st.text(), st.lists(st.tuples(st.sampled_from([*parse_qs(SIGNED), "srt", "ss", "spk", "erk"]), st.text())))
def test_any_query_is_answered(text: str, pairs: list[tuple[str, str]]) -> None:
    """Whatever stands in a URL is a token or a ValueError."""
    for query in [text, "&".join(f"{name}={quote(value)}" for name, value in pairs)]:
        try:
            token, signature = parse_sas(query)
        except ValueError:
            continue
        assert not verify_sas(token, signature, "acc", [KEY])


@pytest.mark.parametrize(
    ("token", "problem"),
    [
        (attrs.evolve(TABLE, sp="dr"), "not in the order 'raud'"),
        (attrs.evolve(ACCOUNT, sp="lr"), "not in the order"),
        (attrs.evolve(TABLE, st="2030-01-01"), "would expire"),
        (attrs.evolve(TABLE, st="2030-01-02"), "would expire"),
        (attrs.evolve(TABLE, spk="b", epk="a"), "would be for no row"),
        (attrs.evolve(TABLE, spk="a", srk="2", epk="a", erk="1"), "would be for no row"),
        (attrs.evolve(TABLE, epk=""), "epk is empty"),
        (attrs.evolve(TABLE, epk="", erk=""), "erk is empty"),
        (attrs.evolve(TABLE, epk="a", erk=""), "erk is empty"),
    ],
)
def test_tokens_that_are_not_made(token: TableSas | AccountSas, problem: str) -> None:
    """A token that nobody could use is not signed, nor one whose limit its holder could take off."""
    with pytest.raises(ValueError, match=problem):
        sign_sas(token, "acc", KEY)


def test_an_empty_last_key_is_not_signed() -> None:
    """Why such tokens are not made: without the parameter the signature is as good."""
    narrow = attrs.evolve(TABLE, epk="")
    wide = attrs.evolve(TABLE, epk=None)

    assert narrow.text("acc") == wide.text("acc")
    assert not narrow.keys.contains("a", "") and wide.keys.contains("a", "")


# What is allowed.

NEEDS = {
    Action.QUERY: ("o", {"r"}),
    Action.INSERT: ("o", {"a"}),
    Action.UPSERT: ("o", {"au"}),
    Action.UPDATE: ("o", {"u"}),
    Action.DELETE: ("o", {"d"}),
    Action.LIST_TABLES: ("c", {"l"}),
    Action.CREATE_TABLE: ("c", {"c", "w"}),
    Action.DELETE_TABLE: ("c", {"d"}),
    Action.GET_PROPERTIES: ("s", {"r"}),
    Action.SET_PROPERTIES: ("s", {"w"}),
    Action.GET_STATISTICS: ("s", {"r"}),
}
ON_ENTITIES = {access for access, (kind, _) in NEEDS.items() if kind == "o"}


@given(
    st.sampled_from(list(Action)),
    st.sets(st.sampled_from("rwdlacu"), min_size=1),
    st.sets(st.sampled_from("sco"), min_size=1),
)
def test_permissions_of_an_account_token(access: Action, letters: set[str], types: set[str]) -> None:
    """It allows what its letters say on each of its types of resources; access policies never."""
    token = attrs.evolve(ACCOUNT, sp="".join(letters), srt="".join(types))

    kind, needed = NEEDS.get(access, ("-", set[str]()))
    assert token.allows_type(access) is (kind in types)
    assert token.allows(access) is any(set(each) <= letters for each in needed)


def test_the_tables_name_every_access() -> None:
    """What neither table has is what no token allows: the access policies."""
    assert set(Action) - set(ACCOUNT_RULES) == {Action.GET_POLICIES, Action.SET_POLICIES}
    assert set(TABLE_PERMISSIONS) == ON_ENTITIES


def test_services_of_an_account_token() -> None:
    """A token may be for other services only."""
    assert ACCOUNT.allows_tables
    assert attrs.evolve(ACCOUNT, ss="bqtf").allows_tables
    assert not attrs.evolve(ACCOUNT, ss="bqf").allows_tables


def test_a_token_that_leaves_permissions_to_its_policy() -> None:
    """Before its policy is known it allows nothing."""
    token = attrs.evolve(TABLE, sp=None, si="policy")

    assert not any(token.allows(access) for access in Action)


@pytest.mark.parametrize(
    "expiry",
    [
        "2024-03-01",
        "2024-03-01T00:00Z",
        "2024-03-01T00:00:00Z",
        "2024-03-01T00:00:00.0000000Z",
        "2024-03-01T01:00+01:00",
    ],
)
@pytest.mark.parametrize("token", [TABLE, ACCOUNT])
def test_times(token: TableSas | AccountSas, expiry: str) -> None:
    """A token is good from its start, included, to its expiry, excluded; every form of text names the moment."""
    token = attrs.evolve(token, st="2024-02-29", se=expiry)

    assert time_fault(token, moment("2024-02-29")) is None
    assert time_fault(token, moment("2024-02-29T23:59:59.999999")) is None
    assert time_fault(token, moment("2024-02-28T23:59:59.999999")) == "the token is not valid before 2024-02-29"
    assert time_fault(token, moment("2024-03-01")) == f"the token expired at {expiry}"
    assert time_fault(attrs.evolve(token, st=None), moment("1999-01-01")) is None


def test_protocols() -> None:
    """HTTPS is always allowed, HTTP unless the token says HTTPS only."""
    for protocols, http in [(None, True), ("https,http", True), ("https", False)]:
        token = attrs.evolve(TABLE, spr=protocols)
        assert allows_protocol(token, "https")
        assert allows_protocol(token, "http") is http
        assert not allows_protocol(token, "")


@pytest.mark.parametrize(
    ("sip", "address", "allowed"),
    [
        (None, "203.0.113.5", True),
        (None, "", True),
        ("203.0.113.5", "203.0.113.5", True),
        ("203.0.113.5", "203.0.113.50", False),
        ("203.0.113.5", "::ffff:203.0.113.5", True),
        ("203.0.113.5", "::ffff:203.0.113.6", False),
        ("203.0.113.5", "", False),
        ("203.0.113.5", "localhost", False),
        ("203.0.113.5", "2001:db8::1", False),
        ("203.0.113.9-203.0.113.100", "203.0.113.9", True),
        ("203.0.113.9-203.0.113.100", "203.0.113.10", True),
        ("203.0.113.9-203.0.113.100", "203.0.113.100", True),
        ("203.0.113.9-203.0.113.100", "203.0.113.8", False),
        ("203.0.113.9-203.0.113.100", "203.0.113.101", False),
        ("2001:db8::1-2001:db8::f", "2001:db8::a", True),
    ],
)
def test_addresses(sip: str | None, address: str, allowed: bool) -> None:
    """A range goes by number, not by text; what is no address is outside of every range."""
    assert allows_address(attrs.evolve(TABLE, sip=sip), address) is allowed


# Stored access policies.


def test_a_policy_supplies_what_the_token_lacks() -> None:
    """Start, expiry and permissions come from either; empty text in a policy is none."""
    full = AccessPolicy(start="2024-01-01", expiry="2030-01-01", permission="r")
    bare = TableSas(sv="2019-02-02", tn="People", si="policy", epk="b")
    half = attrs.evolve(bare, se="2029-01-01")

    assert under_policy(bare, full) == attrs.evolve(bare, si=None, st="2024-01-01", se="2030-01-01", sp="r")
    assert under_policy(half, AccessPolicy(start="", expiry="", permission="d")) == attrs.evolve(half, si=None, sp="d")


@pytest.mark.parametrize(
    ("policy", "problem"),
    [
        (
            AccessPolicy(permission="r", expiry="2030-01-01"),
            "se stands both in the token and in its stored access policy",
        ),
        (AccessPolicy(), "sp is missing"),
        (AccessPolicy(permission=""), "sp is missing"),
        (AccessPolicy(permission="x"), "sp 'x' is not made of the letters"),
        (AccessPolicy(permission="r", start="soon"), "st 'soon' is not a moment"),
    ],
)
def test_policies_that_do_not_fit(policy: AccessPolicy, problem: str) -> None:
    """A field in both places is rejected, and so is one that neither has."""
    with pytest.raises(ValueError, match=problem):
        under_policy(attrs.evolve(TABLE, sp=None, si="policy"), policy)


def test_tokens_are_values() -> None:
    """Tokens are equal, hashable and picklable, and do not hold their signature."""
    token, signature = parse_sas(sign_sas(FULL, "acc", KEY))

    assert pickle.loads(pickle.dumps(token)) == token == FULL
    assert hash(token) == hash(FULL)
    assert signature not in repr(token)
