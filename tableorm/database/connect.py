"""
`connect`: from a URL to a database, through the backends that are installed.
"""

import inspect
import re
from collections.abc import Iterable
from difflib import get_close_matches
from functools import cache
from importlib.metadata import EntryPoints, entry_points
from typing import Any, cast

from ..connection.observe import Hook, Watch
from ..errors import ModelError, NotSupported, shown
from ..shapes.encrypted import Encryption
from ..stores import Backend, PrefixedBackend, RetryPolicy
from .database import Database

GROUP = "tableorm.backends"
"""The entry-point group that backends are found in."""

_SCHEME = re.compile(r"[a-z][a-z+.-]{0,15}:", re.IGNORECASE)

_EXAMPLES = (
    "write 'local:PATH' for a file, 'local::memory:' for a database in memory, or the URL of an account: "
    "'https://ACCOUNT.table.core.windows.net'"
)

# Backends that come with tableorm, but need the packages of the extra with their name.
EXTRAS = {"azure": ("azure", "aiohttp", "yarl")}


def connect(
    url: str,
    *,
    timeout: float = 30.0,
    retry: RetryPolicy | None = None,
    queues: str | None = None,
    blobs: str | None = None,
    prefix: str = "",
    echo: bool = False,
    on_request: Hook | None = None,
    show_values: bool = False,
    slow: float | None = None,
    tracer_provider: Any = None,
    encryption: Encryption | None = None,
    **options: Any,
) -> Database:
    """
    Create a database for a URL, using the installed backend that opens it. `async with` opens the database.

        async with connect("local:shop.tables") as db: ...

    Args:
        url: `local:PATH` for the embedded engine, or `local::memory:` for a database in memory. With `tableorm[azure]`,
            the tables of an account: `https://ACCOUNT.table.core.windows.net`, `http://HOST:PORT/ACCOUNT`, or a
            connection string. Backends of other packages open other URLs.
        timeout: The maximum duration of a request in seconds, including retries.
        retry: How to retry requests after transient faults; by default up to 12 attempts within `timeout`. The embedded
            engine has nothing to retry: its calls wait for other processes instead.
        queues: The URL of the queues, if they aren't in the same account as the tables.
        blobs: The URL of the blobs, if they aren't in the same account as the tables.
        prefix: A prefix for the names of all tables, queues and containers in the store; the program uses the names
            without it. Up to 60 letters and digits, beginning with a letter. No prefix should be the beginning of
            another one.
        echo: Whether to print every request when it has finished. With this or `slow`, the first query of a model that
            finds nothing in a partition also looks for rows without a kind, and logs a hint to `tableorm.queries`.
        on_request: A plain, fast function that is called with every finished request (`ObservedRequest`). If it raises,
            the error is logged and has no other effect.
        show_values: Whether property values appear in these outputs and in logs. Keys always appear.
        slow: Log a warning to `tableorm.slow` for queries and other requests that take longer than this many seconds,
            and for table scans.
        tracer_provider: The OpenTelemetry provider that gets a span for every request. Defaults to the provider of the
            process, if there is one when the database is opened.
        encryption: The keys of encrypted fields; None if you read and write none.
        options: Arguments for the backend of `url`: `create=` for the embedded engine; `credential=` and more for
            Azure; and for both, `sas=`, a token or an async function that returns one whenever a new one is needed, and
            `key=`, an account key. Options that it doesn't know go to the backend of `queues` or `blobs`, if that is a
            different one. Passing None is the same as omitting an option.

    Raises:
        NotSupported: No installed backend opens such a URL, or it is not the URL of an account.
        ModelError: The URL is empty or has no scheme, an argument has the wrong type, or `prefix` is not valid.
        TypeError: The backend doesn't know an option, or `on_request` is not a plain function.
        ValueError: An option is too small.
    """
    if type(timeout) not in (int, float) or not timeout > 0:
        error = ValueError if type(timeout) in (int, float) else ModelError
        raise error(f"connect(timeout={shown(timeout)}) is rejected: give seconds above 0, as in timeout=30.0")
    if not isinstance(cast("object", retry), RetryPolicy | None):
        raise ModelError(f"connect(retry={shown(retry)}) is rejected: give a RetryPolicy(...), or leave it out")
    if not isinstance(cast("object", encryption), Encryption | None):
        raise ModelError(f"connect(encryption={shown(encryption)}) is rejected: give an Encryption(keys)")
    policy = retry or RetryPolicy(deadline=timeout)
    options = {name: value for name, value in options.items() if value is not None}
    kind = find_backend(url)
    apart: dict[str, Backend] = {}
    elsewhere: set[str] = set()
    for argument, place in (("queues", queues), ("blobs", blobs)):
        if place is None:
            continue
        other = find_backend(place, argument)
        joint: bool = getattr(other, "joint", False)
        if joint and other is kind:
            options[argument] = place
        else:
            # A joint backend has all three kinds of stores, and its URL may not tell which one is meant.
            own = {argument: place} if joint else {}
            known = _known_options(other)
            theirs = options.keys() & known - getattr(kind, "known_options", known)
            elsewhere |= theirs
            own |= {name: options[name] for name in theirs}
            apart[argument] = other.from_url(place, timeout=timeout, options=_with_retry(own, known, policy))
    options = {name: value for name, value in options.items() if name not in elsewhere}
    _refuse_misspelled(options.keys() - {"queues", "blobs"} - _known_options(kind), _known_options(kind))
    tables = kind.from_url(url, timeout=timeout, options=_with_retry(options, _known_options(kind), policy))
    if prefix:
        tables, apart = _prefixed(tables, prefix), {name: _prefixed(each, prefix) for name, each in apart.items()}
    return Database(
        tables,
        queues=apart.get("queues"),
        blobs=apart.get("blobs"),
        retry=policy,
        encryption=encryption,
        watch=Watch(
            echo=echo, on_request=on_request, show_values=show_values, slow=slow, tracer_provider=tracer_provider
        ),
    )


def _known_options(backend: type[Backend]) -> frozenset[str]:
    """Return the options that a backend says that it knows."""
    known: frozenset[str] = getattr(backend, "known_options", frozenset())
    return known


def _refuse_misspelled(unknown: Iterable[str], known: Iterable[str]) -> None:
    """Refuse an option whose name is nearly that of an argument of `connect`, or of an option of the backend."""
    names = [*inspect.signature(connect).parameters, *known] if unknown else []
    for name in unknown:
        if near := get_close_matches(name, names, 1, 0.8):
            raise TypeError(f"connect({name}=...) is rejected: there is no option {name}; did you mean {near[0]!r}?")


def _with_retry(options: dict[str, Any], known: frozenset[str], policy: RetryPolicy) -> dict[str, Any]:
    """Return the options of a backend, with the policy if it repeats requests itself."""
    return {**options, "retry": policy} if "retry" in known else options


def _prefixed(backend: Backend, prefix: str) -> Backend:
    try:
        return cast(Backend, PrefixedBackend(backend, prefix))
    except ValueError as error:
        raise ModelError(f"connect(prefix={prefix!r}): no name begins so; {error}") from None


@cache
def _installed() -> EntryPoints:
    # Reading what every installed package declares takes milliseconds; a later one needs another process anyway.
    return entry_points(group=GROUP)


def find_backend(url: str, argument: str = "url") -> type[Backend]:
    """Return the installed backend that opens a URL. `argument` is its name in errors."""
    if not isinstance(cast("object", url), str) or not url.strip():
        given = "an empty string" if isinstance(cast("object", url), str) else f"of type {type(url).__name__}"
        raise ModelError(f"connect(): {argument} is {given}; {_EXAMPLES}")
    # The backend with the name of the URL's scheme is asked first: importing the others takes a while.
    found = sorted(_installed(), key=lambda entry: (not url.startswith(f"{entry.name}:"), entry.name))
    missing: list[str] = []
    for entry in found:
        try:
            backend: type[Backend] = entry.load()
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] not in EXTRAS.get(entry.name, ()):
                raise
            missing.append(f"Backend {entry.name!r} lacks packages: install tableorm with its extra {entry.name!r}. ")
            continue
        if backend.handles(url):
            return backend
    names = ", ".join(entry.name for entry in found) or "none"
    # The rest may be a key or a token, and so may a URL that does not begin with a scheme.
    scheme = _SCHEME.match(url)
    if scheme is None or len(scheme.group()) == 2:  # the drive of a path
        raise ModelError(f"connect(): {argument} does not begin with a scheme; {_EXAMPLES}")
    raise NotSupported(
        f"no installed backend opens {scheme.group()!r}; installed are: {names}. {''.join(missing)}The embedded engine "
        "is 'local:PATH' or 'local::memory:'; a backend for other URLs is a package with an entry point in the group "
        f"{GROUP!r}"
    )
