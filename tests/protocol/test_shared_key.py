"""
Shared Key: strings to sign and signatures that were computed elsewhere, and requests as azure-data-tables sends them.
"""

import datetime as dt
from typing import Any

import attrs
import pytest
from azure.core.credentials import AzureNamedKeyCredential
from azure.data.tables.aio import TableServiceClient
from hypothesis import given
from hypothesis import strategies as st

from tableorm.protocol.shared_key import (
    Authorization,
    Scheme,
    SignedParts,
    authorization,
    date_fault,
    decode_key,
    matches,
    parse_authorization,
    sign,
    verify,
)
from tests.azure.stub import KEY as STUB_KEY
from tests.azure.stub import Answer, Stub

KEY = b"foobarbazqux"
OTHER = b"another key"
DATE = "Thu, 29 Feb 2024 12:34:56 GMT"
LIST = SignedParts(verb="GET", account="account", path="/Tables", date=DATE)
ACL = SignedParts(
    verb="PUT",
    account="devstoreaccount1",
    path="/devstoreaccount1/People(PartitionKey=%27O%27%27Neil%27,RowKey=%27%C3%A9%27)",
    date=DATE,
    content_md5="1B2M2Y8AsgTpgAmY7PhCfg==",
    content_type="application/json;odata=nometadata",
    comp="acl",
)


@pytest.mark.parametrize(
    ("parts", "scheme", "text", "signature"),
    [
        (LIST, Scheme.SHARED_KEY, f"GET\n\n\n{DATE}\n/account/Tables", "RFipjsLYPRLelQ8FoaPbJJ6U13tCwWs9gzRkD011WZo="),
        (LIST, Scheme.SHARED_KEY_LITE, f"{DATE}\n/account/Tables", "flC3LNuwRnRdndBq/CwScLcJ9GWmkO9Am32p43AvxKE="),
        (
            ACL,
            Scheme.SHARED_KEY,
            f"PUT\n{ACL.content_md5}\napplication/json;odata=nometadata\n{DATE}\n/devstoreaccount1{ACL.path}?comp=acl",
            "lbwRIys4LxHNbuIHPpwtRXFdL6AnKzaNjzjUB8sHl/U=",
        ),
    ],
)
def test_known_signatures(parts: SignedParts, scheme: Scheme, text: str, signature: str) -> None:
    """The signatures are those that `openssl dgst -sha256 -hmac` gives for these texts."""
    assert parts.text(scheme) == text
    assert sign(KEY, text) == signature
    assert authorization(parts, KEY, scheme) == f"{scheme} {parts.account}:{signature}"


def test_an_empty_path_is_the_root() -> None:
    """A URL without a path asks for `/`, which is what is sent and signed."""
    assert attrs.evolve(LIST, path="").text() == attrs.evolve(LIST, path="/").text()


@pytest.mark.parametrize("scheme", list(Scheme))
def test_either_key_verifies(scheme: Scheme) -> None:
    """What one key of the account signed is accepted wherever that key stands; another key's is not."""
    header = parse_authorization(authorization(ACL, KEY, scheme))

    assert verify(header, ACL, [KEY])
    assert verify(header, ACL, [KEY, OTHER])
    assert verify(header, ACL, iter([OTHER, KEY]))
    assert not verify(header, ACL, [OTHER])
    assert not verify(header, ACL, [])


def test_a_signature_is_bound_to_its_scheme_and_account() -> None:
    """The signature of one scheme is none of the other, and the account in the header is the one asked for."""
    header = parse_authorization(authorization(ACL, KEY))

    assert not verify(attrs.evolve(header, scheme=Scheme.SHARED_KEY_LITE), ACL, [KEY])
    assert not verify(attrs.evolve(header, account="other"), ACL, [KEY])
    assert not verify(attrs.evolve(header, signature=""), ACL, [KEY])
    assert not verify(attrs.evolve(header, signature="é\udcff"), ACL, [KEY])


def test_bytes_that_are_no_utf8_are_signed_as_sent() -> None:
    """A header that a server decoded with surrogate escapes is signed as the bytes that came."""
    text = b"caf\xe9".decode("utf-8", "surrogateescape")

    assert matches(sign(KEY, text), text, [KEY])
    assert sign(KEY, text) != sign(KEY, "café")


def test_the_secondary_location() -> None:
    """At the secondary the primary's signature is good too; a signature for the secondary is not good elsewhere."""
    for sent, signed in [
        ("/acc-secondary/T()", "/acc-secondary/T()"),
        ("/acc-secondary/T()", "/acc/T()"),
        ("/acc-secondary/acc/T()", "/acc/T()"),
        ("/acc-secondary/acc/", "/acc/"),
        ("/acc-secondary", "/acc"),
    ]:
        parts = SignedParts(verb="GET", account="acc", path=sent, date=DATE)
        assert verify(parse_authorization(authorization(attrs.evolve(parts, path=signed), KEY)), parts, [KEY]), sent

    for sent, signed in [
        ("/acc/T()", "/acc-secondary/T()"),
        ("/acc-secondary/T()", "/acc/Other()"),
        ("/acc-secondary/T()", "/T()"),
        ("/acc-secondaryT", "/accT"),
        ("/acc-secondary/accT", "/accT"),
    ]:
        parts = SignedParts(verb="GET", account="acc", path=sent, date=DATE)
        assert not verify(parse_authorization(authorization(attrs.evolve(parts, path=signed), KEY)), parts, [KEY]), sent


def test_authorization_is_read() -> None:
    """Scheme, account and signature come apart; space around them does not count."""
    assert parse_authorization("SharedKey acc:c2ln") == Authorization(Scheme.SHARED_KEY, "acc", "c2ln")
    assert parse_authorization(" SharedKeyLite  acc:a:b ") == Authorization(Scheme.SHARED_KEY_LITE, "acc", "a:b")


@pytest.mark.parametrize(
    ("header", "problem"),
    [
        ("", "scheme ''"),
        ("Bearer abc", "scheme 'Bearer'"),
        ("sharedkey acc:secret", "scheme 'sharedkey'"),
        ("SharedKey", "not of the form 'SharedKey ACCOUNT:SIGNATURE'"),
        ("SharedKey ", "not of the form"),
        ("SharedKey acc", "not of the form"),
        ("SharedKey acc:", "not of the form"),
        ("SharedKey :secret", "not of the form"),
        ("SharedKeyLite acc:secret, SharedKey acc:secret", "not of the form"),
    ],
)
def test_authorization_that_cannot_be_read(header: str, problem: str) -> None:
    """Another scheme and a malformed header are rejected with a text that does not repeat the signature."""
    with pytest.raises(ValueError, match=problem) as caught:
        parse_authorization(header)
    assert "secret" not in str(caught.value)


def test_keys_are_base64() -> None:
    """A key is decoded strictly, and never shown."""
    assert decode_key("Zm9vYmFyYmF6cXV4") == KEY

    for bad in ["", "Zm9", "Zm9vYmFy YmF6cXV4", "clé"]:
        with pytest.raises(ValueError, match="account key") as caught:
            decode_key(bad)
        assert not bad or bad not in str(caught.value)


def test_dates() -> None:
    """A date is good for 15 minutes either way, in the zone that it names; what is no date is rejected."""
    now = dt.datetime(2024, 2, 29, 12, 34, 56, tzinfo=dt.UTC)

    assert date_fault(DATE, now) is None
    assert date_fault(DATE, now + dt.timedelta(minutes=15)) is None
    assert date_fault(DATE, now - dt.timedelta(minutes=15)) is None
    assert date_fault("Thu, 29 Feb 2024 13:34:56 +0100", now) is None
    assert date_fault("Thu, 29 Feb 2024 12:34:56 -0000", now) is None
    assert "15 minutes" in str(date_fault(DATE, now + dt.timedelta(minutes=15, seconds=1)))
    assert "15 minutes" in str(date_fault(DATE, now - dt.timedelta(minutes=15, seconds=1)))
    for bad in ["", "yesterday", "2024-02-29T12:34:56Z", "Thu, 99 Feb 2024 12:34:56 GMT"]:
        assert "is not a date" in str(date_fault(bad, now))


@given(st.text(st.sampled_from('Thu, 29Feb:GMT+-()"\\\0é\ud800')))
def test_any_date_is_answered(text: str) -> None:
    """Whatever a request has for a date, the answer is a sentence."""
    assert date_fault(text, dt.datetime(2024, 2, 29, tzinfo=dt.UTC))


async def test_a_read_that_fails_over() -> None:
    """The request that the service's own client repeats at the secondary verifies, whichever path it was signed for."""
    options: dict[str, Any] = {"retry_total": 1, "retry_backoff_factor": 0, "retry_to_secondary": True}
    async with Stub() as stub:
        stub.answers = [Answer(500)]
        credential = AzureNamedKeyCredential("stub", STUB_KEY)
        async with TableServiceClient(stub.url, credential=credential, **options) as service:
            people: Any = service.get_table_client("People")
            with pytest.raises(Exception, match="Error"):
                await people.get_entity("p", "r")

    first, second = stub.requests
    assert (first.target.split("/")[1], second.target.split("/")[1]) == ("stub", "stub-secondary")
    for request in stub.requests:
        path, date = request.target.partition("?")[0], request.headers["x-ms-date"]
        parts = SignedParts(verb="GET", account="stub", path=path, date=date)
        assert verify(parse_authorization(request.headers["authorization"]), parts, [decode_key(STUB_KEY)])
