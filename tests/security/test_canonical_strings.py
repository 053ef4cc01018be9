"""
The strings that are signed, in hostile hands: no two tokens and no two requests have the same one, and nothing that was
altered on its way is taken for what was signed.
"""

from random import Random
from typing import Any
from urllib.parse import unquote

import attrs
from hypothesis import given
from hypothesis import strategies as st

from tableorm.protocol.sas import AccountSas, TableSas, parse_sas, sign_sas, verify_sas
from tableorm.protocol.shared_key import Scheme, SignedParts, decode_key
from tableorm_local.server import DEVELOPMENT_KEY

KEY = decode_key(DEVELOPMENT_KEY)

VERSIONS = st.sampled_from(["2012-02-12", "2014-02-14", "2015-02-21", "2015-04-05", "2019-02-02", "2020-12-06"])
MOMENTS = st.sampled_from([None, "2024-01-01", "2030-01-01", "2030-01-01T00:00Z", "2030-01-01T00:00:00Z"])
# Among the texts are some that stand elsewhere in the string too, so that a value could be taken for its neighbour.
TEXTS = st.one_of(
    st.none(),
    st.sampled_from(
        ["", "r", "/", "acc", "2019-02-02", "2030-01-01", "https", "/table/acc/people", "%0A", "\u2028", "\x85"]
    ),
    st.text(st.characters(blacklist_categories=("Cc", "Cs")), max_size=3),
)


@st.composite
def tokens(draw: st.DrawFn) -> TableSas | AccountSas:
    """Return any token that can be made."""
    common: dict[str, Any] = {"sv": draw(VERSIONS), "st": draw(MOMENTS), "se": draw(MOMENTS)}
    common |= {"sip": draw(st.sampled_from([None, "1.2.3.4"])), "spr": draw(st.sampled_from([None, "https"]))}
    try:
        if draw(st.booleans()):
            letters = {"ss": "t", "srt": draw(st.sampled_from(["o", "co"])), "sp": draw(st.sampled_from(["r", "rw"]))}
            return AccountSas(**common, **letters)
        names = ("si", "spk", "srk", "epk", "erk")
        table = draw(st.sampled_from(["people", "People", "people/r", "acc/people"]))
        keys: dict[str, Any] = {name: draw(TEXTS) for name in names}
        return TableSas(**common, tn=table, sp=draw(st.sampled_from([None, "r", "raud"])), **keys)
    except ValueError:
        return TableSas(sv="2019-02-02", tn="people", sp="r", se="2030-01-01")


def meaning(token: TableSas | AccountSas) -> tuple[Any, ...]:
    """Return what a token opens; a token for no row, and an empty last key, are not made, see `sign_sas`."""
    values = {name: value or None for name, value in attrs.asdict(token).items()}
    if isinstance(token, TableSas):
        values["tn"] = token.tn.lower()
    return type(token), values


@given(tokens(), tokens())
def test_no_two_tokens_are_signed_alike(one: TableSas | AccountSas, two: TableSas | AccountSas) -> None:
    """Tokens that open different rows, or for different times or operations, have different strings to sign."""
    assert (one.text("acc") == two.text("acc")) <= (meaning(one) == meaning(two))


@given(tokens(), st.data())
def test_a_value_is_not_taken_for_its_neighbour(token: TableSas | AccountSas, data: st.DataObject) -> None:
    """A token of which two parameters change places, or one goes to the next one, has another string."""
    values = attrs.asdict(token)
    one, two = data.draw(st.tuples(*[st.sampled_from(sorted(values))] * 2))
    first, second = values[one], values[two]
    moved = data.draw(st.sampled_from([(second, first), (None, (first or "") + (second or "")), ("", first)]))
    try:
        other = attrs.evolve(token, **{one: moved[0], two: moved[1]})
    except (ValueError, TypeError):
        return

    assert (token.text("acc") == other.text("acc")) <= (meaning(token) == meaning(other))


@given(tokens(), st.randoms(use_true_random=False))
def test_an_altered_token_is_refused(token: TableSas | AccountSas, random: Random) -> None:
    """A query string that was altered is rejected, or read as the token that was signed."""
    try:
        query = sign_sas(token, "acc", KEY)
    except ValueError:
        return
    for _ in range(random.randrange(1, 4)):
        query = alter(query, random)
    try:
        found, signature = parse_sas(query)
        good = verify_sas(found, signature, "acc", [KEY])
    except ValueError:
        return

    assert good <= (meaning(found) == meaning(token)), query


def alter(query: str, random: Random) -> str:
    """Return a query string with something changed that a server might overlook."""
    parts = query.split("&")
    number = random.randrange(len(parts))
    name, _, value = parts[number].partition("=")
    other = random.choice(parts)
    match random.randrange(9):
        case 0:
            parts.pop(number)
        case 1:
            parts.append(f"{name}={random.choice(('', 'z', 'raud', '2099-01-01', value + 'z'))}")
        case 2:
            parts[number] = f"{name}={random.choice(('', 'z', 'raud', '2099-01-01', value[:-1], value + 'z'))}"
        case 3:
            parts[number] = f"{name}={value}%0A{other}"
        case 4:
            parts[number] = f"{name.upper()}={value}"
        case 5:
            parts[number] = f"{name}={''.join(f'%{ord(each):02x}' for each in unquote(value) if ord(each) < 128)}"
        case 6:
            random.shuffle(parts)
        case 7:
            parts[number] = f"{other.partition('=')[0]}={value}"
        case _:
            parts.append(f"{random.choice(('epk', 'erk', 'spk', 'srk', 'si', 'ss', 'tn', 'ses'))}=z")
    return "&".join(parts)


# Requests

PATHS = st.sampled_from(
    ["/acc", "/acc/", "/acc/Tab", "/acc/Tab()", "/acc/Tab(PartitionKey='a',RowKey='b')", "/acc//Tab"]
)
HEADERS = st.sampled_from(["", "GET", "application/json", "/acc/acc/Tab", "Thu, 29 Feb 2024 12:34:56 GMT", "a b", "é"])


@st.composite
def requests(draw: st.DrawFn) -> SignedParts:
    """Return the signed parts of any request; no header has a line end, and no path a question mark."""
    return SignedParts(
        verb=draw(st.sampled_from(["GET", "PUT", "DELETE", "MERGE"])),
        account=draw(st.sampled_from(["acc", "a", "acc2"])),
        path=draw(st.one_of(PATHS, st.text("/aczT'()=,%23", max_size=8).map(lambda text: "/" + text))),
        date=draw(HEADERS),
        content_md5=draw(HEADERS),
        content_type=draw(HEADERS),
        comp=draw(st.sampled_from([None, "acl", "properties", "acl?comp=acl"])),
    )


@given(requests(), requests())
def test_no_two_requests_are_signed_alike(one: SignedParts, two: SignedParts) -> None:
    """Requests that differ in what is signed have different strings, for the account that is asked."""
    two = attrs.evolve(two, account=one.account)
    assert (one.text() == two.text()) == (one == two)
    lite = Scheme.SHARED_KEY_LITE
    same = (one.date, one.path, one.comp) == (two.date, two.path, two.comp)
    assert (one.text(lite) == two.text(lite)) == same


@given(requests(), st.sampled_from(["verb", "content_md5", "content_type", "date", "path"]), st.data())
def test_a_part_is_not_taken_for_its_neighbour(request: SignedParts, name: str, data: st.DataObject) -> None:
    """A request of which one part is lengthened by the next one has another string."""
    values = attrs.asdict(request)
    other = data.draw(st.sampled_from(["verb", "content_md5", "content_type", "date", "path"]))
    changed = attrs.evolve(request, **{other: "", name: values[name] + values[other]})

    assert (changed.text() == request.text()) <= (changed in (request, attrs.evolve(request, path="")))
