"""
What a server is made of: data, addresses, accounts, limits, rules of CORS and metrics.
"""

from pathlib import Path

import pytest

from tableorm_local.server import Account, serve
from tableorm_local.server.security.accounts import Accounts, read_keys
from tableorm_local.server.serving import bind, data_files
from tests.local.server.client import KEYS


def test_the_data_of_accounts(tmp_path: Path) -> None:
    """A folder has a file for each account, a file is that of a single one, and no name or `:memory:` is memory."""
    file = tmp_path / "data.tables"
    assert data_files(None, ["a", "b"]) == data_files(":memory:", ["a", "b"]) == {"a": None, "b": None}
    assert data_files(file, ["a"]) == data_files(str(file), ["a"]) == {"a": file}
    assert data_files(tmp_path, ["a"]) == {"a": tmp_path / "a.tables"}
    assert data_files(tmp_path, ["a", "b"]) == {"a": tmp_path / "a.tables", "b": tmp_path / "b.tables"}
    with pytest.raises(ValueError, match="is not a folder, and there are 2 accounts"):
        data_files(file, ["a", "b"])
    with pytest.raises(ValueError, match="the data has no name"):
        data_files("", ["a"])


def test_the_urls_of_a_server() -> None:
    """Before it runs the URLs have the port that was asked for; an address of IPv6 stands in brackets."""
    accounts = [Account(name=name, keys=KEYS[:1]) for name in ("first", "second")]
    server = serve(None, host="::1", port=5, accounts=accounts)

    assert (server.port, server.url) == (5, "http://[::1]:5/first")
    assert server.urls == ["http://[::1]:5/first", "http://[::1]:5/second"]
    assert serve(None).url == "http://127.0.0.1:10002/devstoreaccount1"
    server.replace_certificate("none", None)  # there is none to replace
    with pytest.raises(ValueError, match="a private key alone is not enough"):
        serve(None, cert_key="key.pem")


def test_keys_are_replaced_together_or_not() -> None:
    """If one of several accounts does not exist, or has a key that cannot be used, none is changed."""
    accounts = Accounts([Account(name=name, keys=KEYS[:1]) for name in ("first", "second")])
    mistakes: list[dict[str, list[str]]] = [
        {"first": KEYS[1:], "third": KEYS[:1]},
        {"first": KEYS[1:], "second": ["?"]},
        {"first": []},
    ]
    for wrong in mistakes:
        with pytest.raises(ValueError):  # noqa: PT011 - each for another reason
            accounts.replace_keys(wrong)
        assert [accounts.keys(name) for name in accounts.names] == [(bytes(64),)] * 2
    accounts.replace_keys({"second": KEYS[1:]})
    assert [len(accounts.keys(name)) for name in ("first", "second")] == [1, 2]


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("", 0),
        ("# {0}\n\n", 0),
        ("{0}\n", 1),
        (" {0} \n# {2}\n\n{1}", 2),
        ("{0}\n{1}\n{2}", 3),
        ("?", 1),
        ("\udcff", 0),
    ],
)
def test_files_of_keys(tmp_path: Path, text: str, count: int) -> None:
    """A key stands in a line; blank lines and remarks do not count; the problem names the file, and shows no key."""
    path = tmp_path / "keys"
    path.write_bytes(text.format(*KEYS).encode("utf-8", "surrogateescape"))
    if count in (1, 2) and text != "?":
        assert read_keys(path) == tuple(KEYS[:count])
        return
    with pytest.raises(ValueError, match=f"^{path}: ") as caught:
        read_keys(path)
    assert not any(key in str(caught.value) for key in KEYS)


def test_a_port_is_shared_only_if_that_is_asked_for() -> None:
    """Two servers may listen at one address if both say so; otherwise the second one is rejected."""
    first = bind("127.0.0.1", 0, share=True)
    port = first.getsockname()[1]
    second = bind("127.0.0.1", port, share=True)
    for each in (first, second):
        each.listen()
    with pytest.raises(OSError, match="in use"):
        bind("127.0.0.1", port, share=False)
    for each in (first, second):
        each.close()
