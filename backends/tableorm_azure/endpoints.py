"""
Endpoints: reads the endpoints and the credential of an account from a URL or a connection string.

Pure functions; nothing here does I/O. Messages never show a key or a SAS.
"""

import ipaddress
import re
from urllib.parse import SplitResult, urlsplit

import attrs

EMULATOR_ACCOUNT = "devstoreaccount1"
# Published, and the same in every emulator. Source: "Use the Azurite emulator for local Azure Storage development".
EMULATOR_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
_EMULATOR_PORTS = {"table": 10002, "queue": 10001, "blob": 10000}

_SERVICES = ("table", "queue", "blob")
# ACCOUNT.SERVICE.REST, where SERVICE tells which of an account's endpoints it is. A DNS zone or a private link stands
# between. Source: "Storage account overview", endpoints; "Use private endpoints for Azure Storage".
_HOST = re.compile(r"([a-z0-9-]+)(?:\.(?:z\d+|privatelink))?\.(table|tables|queue|blob)\.(.+)")
# How Cosmos DB's REST begins, the old name after the new. Source: azure-data-tables, `_is_cosmos_endpoint`.
_COSMOS = ("cosmos.", "cosmosdb.")
# Who has one of these hosts is an account of Azure, so that a token of Entra ID reaches nobody else.
_AZURE = (
    ".core.windows.net",
    ".core.usgovcloudapi.net",
    ".core.chinacloudapi.cn",
    ".storage.azure.net",
    ".table.cosmos.azure.com",
    ".table.cosmos.azure.us",
    ".table.cosmos.azure.cn",
)
# An account's copy in another region, which is read under the account's own name.
_SECONDARY = "-secondary"
_PATH_STYLE = re.compile(r"/([a-z0-9-]+)")
_SCHEME_AND_HOST = re.compile(r"https?://(?:[\w.-]+|\[[0-9a-f:.]+\])", re.IGNORECASE)
_PORT = re.compile(r"(?::(\d*))?(?=[/?#]|\Z)")
_MAX_PORT = 65535
_ACCOUNT_NAME = re.compile(r"[A-Za-z0-9-]*")
_ENDPOINT_SUFFIX = re.compile(r"[\w.:-]+")
_SETTING = re.compile(r"[A-Za-z]{1,30}")
_KNOWN = {
    "accountkey",
    "accountname",
    "blobendpoint",
    "defaultendpointsprotocol",
    "developmentstorageproxyuri",
    "endpointsuffix",
    "queueendpoint",
    "sharedaccesssignature",
    "tableendpoint",
    "usedevelopmentstorage",
    # Settings of other services in the same account; they are ignored.
    "blobsecondaryendpoint",
    "dfsendpoint",
    "fileendpoint",
    "filesecondaryendpoint",
    "queuesecondaryendpoint",
    "tablesecondaryendpoint",
    "webendpoint",
}


@attrs.frozen(kw_only=True)
class Account:
    """
    An account's endpoints, without a slash at the end, and the credential in its connection string or URL.

    Args:
        name: Its name; empty if the host does not tell it.
        table: URL of the tables; None if there are none.
        queue: URL of the queues; None if there are none.
        blob: URL of the blobs; None if there are none.
        key: The account key, base64.
        sas: A shared access signature, as a query string without `?`.
    """

    name: str = ""
    table: str | None = None
    queue: str | None = None
    blob: str | None = None
    key: str | None = attrs.field(default=None, repr=False)
    sas: str | None = attrs.field(default=None, repr=False)

    @property
    def cosmos(self) -> bool:
        """
        Whether the tables are Cosmos DB's, by their host, or its emulator's, which is `localhost` without an account.
        Source: "Azure Cosmos DB for Table", endpoint names.
        """
        parts = urlsplit(self.table or "")
        found = _HOST.fullmatch(parts.hostname or "")
        if found is not None:
            return found.group(3).startswith(_COSMOS)
        return parts.hostname == "localhost" and not parts.path and parts.port != _EMULATOR_PORTS["table"]

    @property
    def emulated(self) -> bool:
        """Whether this is the account of the emulators, which enforce fewer limits than the service."""
        return self.name == EMULATOR_ACCOUNT

    @property
    def on_this_machine(self) -> bool:
        """Whether every endpoint has a host that stands for this machine wherever it is looked up."""
        return all(_is_this_machine(place.hostname or "") for place in self._places())

    @property
    def in_azure(self) -> bool:
        """Whether every endpoint is one of Azure's own, and is asked with TLS."""
        return all(place.scheme == "https" and (place.hostname or "").endswith(_AZURE) for place in self._places())

    def _places(self) -> list[SplitResult]:
        return [urlsplit(url) for url in (self.table, self.queue, self.blob) if url is not None]


def handles(url: str) -> bool:
    """Return whether `url` is an HTTP URL or a connection string of an account."""
    if url.lower().startswith(("http://", "https://")):
        return True
    names = {part.partition("=")[0].strip().lower() for part in url.split(";") if "=" in part}
    return bool(names & {"usedevelopmentstorage", "accountname", "sharedaccesssignature"})


def parse(url: str, service: str | None = "table") -> Account:
    """
    Read a URL or a connection string of an account.

    Args:
        url: `https://ACCOUNT.table.core.windows.net`, `http://HOST:PORT/ACCOUNT`, either with a SAS as its query, or a
            connection string.
        service: "table", "queue" or "blob": the service that a URL is given for; None if any will do.

    Raises:
        ValueError: It is not one. The message says what is wrong, without secrets.
    """
    return _from_url(url, service) if url.lower().startswith(("http://", "https://")) else _from_string(url)


def _from_url(url: str, service: str | None) -> Account:
    # Of a URL with a mistake nothing is shown: a key or a token may be anywhere, also in place of the host. What the
    # library says of a URL that it cannot take apart shows more, so it gets none of these.
    begun = _SCHEME_AND_HOST.match(url)
    if "@" in url.partition("?")[0]:
        raise ValueError("the URL has a user in front of the host; give key= or credential= instead")
    if begun is None:
        raise ValueError("the URL has no host; an endpoint looks like https://ACCOUNT.table.core.windows.net")
    port = _PORT.match(url, begun.end())
    if port is None or int(port.group(1) or 0) > _MAX_PORT:
        raise ValueError(
            f"the URL has a port that is not a number up to {_MAX_PORT}, or something else behind its host"
        )
    parts = urlsplit(url)
    path, host = parts.path.rstrip("/"), parts.hostname or ""
    # One spelling for one place, by which a copy of a database to itself is found.
    netloc = parts.netloc.lower().removesuffix(":443" if parts.scheme == "https" else ":80").removesuffix(":")
    base = f"{parts.scheme}://{netloc}{path}"
    sas = parts.query or None
    found = _HOST.fullmatch(host)
    if found is not None and not path:
        name, label, rest = found.groups()
        kind = label.removesuffix("s")
        if service not in (kind, None):
            place = base.replace(f".{label}.", f".{service}.", 1)
            raise ValueError(f"{base} is where the {kind}s of an account are; give the URL of its {service}s: {place}")
        if rest.startswith(_COSMOS):
            return Account(name=name, table=base, sas=sas)
        return Account(name=name.removesuffix(_SECONDARY), sas=sas, **_find_siblings(base, netloc, label))
    style = _PATH_STYLE.fullmatch(path)
    if path and style is None:
        raise ValueError(
            "the URL has a path that is not an account; an endpoint ends with the host, or with /ACCOUNT; a token is "
            "given as ?TOKEN or sas="
        )
    return Account(name=style.group(1) if style else "", sas=sas, **{service or "table": base})


def _is_this_machine(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _find_siblings(base: str, netloc: str, service: str) -> dict[str, str]:
    """Return the endpoints of an account in the cloud, which differ in one label of the host."""
    return {other: base.replace(netloc, netloc.replace(f".{service}.", f".{other}.", 1)) for other in _SERVICES}


def _from_string(text: str) -> Account:
    settings: dict[str, str] = {}
    for part in filter(None, (part.strip() for part in text.split(";"))):
        name, equals, value = part.partition("=")
        if not equals or name.strip().lower() not in _KNOWN:
            shown = "a part without =" if not equals else "a part"
            if equals and _SETTING.fullmatch(name):  # anything else may be a key
                shown = repr(name)
            raise ValueError(
                f"the connection string has {shown}, which is not a known setting; a connection string looks like "
                "DefaultEndpointsProtocol=https;AccountName=NAME;AccountKey=KEY;EndpointSuffix=core.windows.net"
            )
        settings[name.strip().lower()] = value.strip()
    if settings.get("usedevelopmentstorage", "").lower() == "true":
        return _emulator(settings.get("developmentstorageproxyuri"))
    name = settings.get("accountname", "")
    protocol = settings.get("defaultendpointsprotocol", "https").lower()
    suffix = settings.get("endpointsuffix", "core.windows.net")
    if not _ACCOUNT_NAME.fullmatch(name):
        raise ValueError("the connection string has an AccountName that is not letters, digits and hyphens alone")
    if protocol not in ("http", "https") or not _ENDPOINT_SUFFIX.fullmatch(suffix):
        raise ValueError(
            "the connection string has a DefaultEndpointsProtocol that is not http or https, or an EndpointSuffix that "
            "is not the name of a host"
        )
    sas = settings.get("sharedaccesssignature")
    endpoints: dict[str, str | None] = {}
    for service in _SERVICES:
        given = settings.get(f"{service}endpoint")
        if given is not None:
            place = _from_url(given, service)
            endpoints[service] = getattr(place, service)
            name, sas = name or place.name, sas or place.sas
        elif name and "tableendpoint" not in settings:
            endpoints[service] = f"{protocol}://{name}.{service}.{suffix}"
    if not endpoints:
        raise ValueError("the connection string says neither AccountName nor an endpoint such as TableEndpoint")
    return Account(name=name, key=settings.get("accountkey"), sas=sas.lstrip("?") if sas else None, **endpoints)


def _emulator(proxy: str | None) -> Account:
    host = proxy.rstrip("/") if proxy else "http://127.0.0.1"
    places = {each: f"{host}:{_EMULATOR_PORTS[each]}/{EMULATOR_ACCOUNT}" for each in _SERVICES}
    _from_url(places["table"], "table")  # refuses what is not a host
    return Account(name=EMULATOR_ACCOUNT, key=EMULATOR_KEY, **places)
