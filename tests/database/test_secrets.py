"""
Whatever is wrong with what `connect` is given, no key and no token is shown: not in errors, nor in what they come from.
"""

import logging
import traceback
from typing import Any

import pytest

from tableorm import TableOrmError, connect
from tableorm.connection.connection import connection_of

pytestmark = pytest.mark.limit(10)  # what hangs shall fail soon

KEY = "Zm9vYmFyc2VjcmV0a2V5MTIzNDU2Nzg5MA=="
SIGNATURE = "S3cr3tS1gnatur3Va1u3"
TOKEN = f"sv=2019-02-02&tn=T&sp=r&se=2099-01-01&sig={SIGNATURE}%2Babc%3D"
SLASHED = f"{KEY[:16]}/{KEY[16:]}"
PARTS = (KEY[:8], KEY[8:16], KEY[16:24], KEY[24:32], SIGNATURE[:10], SIGNATURE[10:])

URLS = [
    f"https://acc.table.core.windows.net/{TOKEN}",
    f"https://acc.table.core.windows.net/?{TOKEN}",
    f"https://acc.table.core.windows.net/{TOKEN}/Table",
    f"https://acc.table.core.windows.net#{TOKEN}",
    f"https://acc.table.core.windows.net:{KEY}",
    f"https://acc.table.core.windows.net {KEY}",
    f"http://127.0.0.1:1/acc/{TOKEN}",
    f"http://127.0.0.1:1/acc?{TOKEN}",
    f"http://127.0.0.1:1/acc/{KEY}",
    f"http://127.0.0.1:1/{KEY}",
    f"http://acc:{KEY}@127.0.0.1:1",
    f"http://acc:{KEY}@127.0.0.1:1/acc",
    f"http://{KEY}@127.0.0.1:1/acc",
    f"http://acc:{KEY[:12]}/{KEY[12:]}@127.0.0.1:1/acc",
    f"http://acc:{KEY[:12]}?{KEY[12:]}@127.0.0.1:1/acc",
    f"http://acc:{KEY[:12]}#{KEY[12:]}@127.0.0.1:1/acc",
    f"http://acc:{KEY}@[::1",
    f"http://acc:{KEY}\u2100@127.0.0.1",  # which urlsplit takes apart differently, and so refuses
    f"http://127.0.0.1\u2100{KEY}",
    f"http://acc:{KEY}",
    f"http://{KEY}",
    f"http://{SLASHED}",
    f"https://{SLASHED}/acc",
    f"ftp://acc:{KEY}@127.0.0.1",
    f"acc:{KEY}@127.0.0.1",
    f"{KEY}:acc",
    KEY,
    TOKEN,
    f"{TOKEN}:x",
    f"local:hr.tables?{TOKEN}",
    f"local:hr.tables/{TOKEN}",
    f"local:{TOKEN}",
    *(f"local:x?sv=1&{name}{SIGNATURE}" for name in ("SIG=", "Sig=", "sig%3D", "%73ig=", "sig%253D")),
    *(f"local:x?sv=1&{name}{SIGNATURE}" for name in ('sig="', "sig='", "sig[]=", "s%00ig=", "s\0ig=", '{"sig":"')),
    f"local:x?Authorization=SharedKey acc:{KEY}",
    f"local:x;SharedKeyLite%20acc:{KEY}",
    f"local:x?AccountKey%3D{KEY}",
    f"local://acc:{KEY}@127.0.0.1",
    f"local://acc:{SLASHED}@127.0.0.1",
    f"local:AccountName=acc;AccountKey={KEY}",
    f"http://127.0.0.1:1/acc?sv=1&sig%3D{SIGNATURE}",
    f"http://127.0.0.1:1/acc?sv=1%26sig={SIGNATURE}",
    f"https://acc.table.core.windows.net?{KEY}",
    f"TableEndpoint=http://127.0.0.1:1/acc;SharedAccessSignature=sv=1&sig%3D{SIGNATURE}",
    f"AccountName=acc;{KEY}",
    f"AccountName=acc;AccountKey:{KEY}",
    f"AccountName=acc AccountKey={KEY}",
    f"AccountName=acc,AccountKey={KEY}",
    f"AccountName={KEY};AccountKey=a2V5",
    f"AccountName=acc;AccountKey={KEY[:-1]}",
    f"AccountName=acc;AccountKey={KEY};TableEndpoint=x",
    f"AccountName=acc;AccountKey={KEY};TableEndpoint=https://acc:{KEY}@h",
    f"AccountName=acc;DefaultEndpointsProtocol=https AccountKey={KEY}",
    f"AccountName=acc;AccountKey=a2V5;EndpointSuffix=core.windows.net AccountKey={KEY}",
    f"TableEndpoint=https://127.0.0.1/acc;SharedAccessSignature={TOKEN}",
    f"TableEndpoint=https://127.0.0.1/acc?{TOKEN};SharedAccessSignature=x",
    f"TableEndpoint=https://127.0.0.1/acc/{TOKEN};SharedAccessSignature=x",
    f"UseDevelopmentStorage=true;DevelopmentStorageProxyUri=http://acc:{KEY}@127.0.0.1",
    f"UseDevelopmentStorage=true;DevelopmentStorageProxyUri=http://{KEY}",
]


async def supply() -> str:
    """Return a token of which the signature is encoded with its name."""
    return f"sv=1&sig%3D{SIGNATURE}"


OPTIONS: list[dict[str, Any]] = [
    {},
    {"key": "a2V5"},
    {"key": KEY},
    {"sas": TOKEN},
    {"sas": f"sv=1&sig%3D{SIGNATURE}"},
    {"sas": supply},
    {"nonsense": 1},
    {"timeout": 0},
]


def shown_by(error: BaseException) -> str:
    """Return all that an error and those behind it say, whether a traceback prints them or not."""
    text, waiting, seen = "", [error], set[int]()
    while waiting:
        each = waiting.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        text += "".join(traceback.format_exception_only(each))
        others = (each.__cause__, each.__context__, getattr(each, "fault", None))
        waiting += [other for other in others if other is not None]
    return text


async def use(url: str, place: str, options: dict[str, Any]) -> str:
    """Open a database that cannot be, and return all that is shown of that."""
    given: dict[str, Any] = {"timeout": 0.05, "url": "local::memory:", place: url, **options}
    try:
        db = connect(**given)
    except (TableOrmError, TypeError, ValueError) as error:
        return shown_by(error)
    shown = f"{db!r} {connection_of(db).backend!r} {vars(connection_of(db).backend)!r}"
    try:
        async with db:
            shown += repr(db.store)
            await db.tables()
    except (TableOrmError, TypeError, ValueError) as error:
        shown += shown_by(error)
    return shown


@pytest.mark.parametrize("url", URLS)
async def test_no_secret_is_shown(
    url: str, caplog: pytest.LogCaptureFixture, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key or token in the wrong place of a URL, or of a connection string, is in no error, log or repr."""
    monkeypatch.chdir(tmp_path)
    caplog.set_level(logging.DEBUG)
    cases = [("url", options) for options in OPTIONS] + [("queues", {}), ("blobs", {})]
    shown = [await use(url, place, options) for place, options in cases]

    for text in (*shown, caplog.text):
        assert not [part for part in PARTS if part.lower() in text.lower()], text


@pytest.mark.parametrize(
    "options",
    [{"key": KEY[:-1]}, {"account": KEY}, {"sas": TOKEN.encode()}, {"sas": {"sig": SIGNATURE}}],
)
@pytest.mark.parametrize("url", ["local:x.tables", "https://acc.table.core.windows.net"])
def test_options_that_are_wrong(url: str, options: dict[str, Any]) -> None:
    """An option of another type or form is rejected without its value."""
    with pytest.raises((TableOrmError, TypeError)) as caught:
        connect(url, **options)

    shown = shown_by(caught.value)
    assert not [part for part in PARTS if part in shown], shown
