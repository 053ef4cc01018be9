"""
The documentation does what it says: every page runs as a program.
"""

import asyncio
import re
import struct
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from weakref import WeakValueDictionary

import pytest

from scripts import docs_pages, pictures
from scripts.docs_pages import ROOT
from tableorm import Entity, connect
from tableorm.advice import lint
from tableorm.models import placement
from tableorm.models.entity import schema_of
from tableorm.models.schema import concrete
from tableorm.stores import CLOCK
from tests.azurite import Azurite
from tests.docs.programs import run_program

MOST_LINES = 480
MOST_COLUMNS = 80
WRAPPED = {"text", "json"}
"""Blocks of these languages are wrapped: what programs print, and rows."""

ADVISED_AGAINST = {
    "operation/lint.md": {
        ("Login.partition_key", "growing-partition-key"),
        ("Login.row_key", "unpadded-number"),
        ("Login.by_country", "keys-only-index"),
    },
    "derived/indexes.md": {("Employee.by_name", "keys-only-index")},
    "writing/expiry.md": {("Offer.by_expiry", "keys-only-index")},
    "changes/adopting.md": {("AnyReading.row_key", "mixed-ranges"), ("Reading.row_key", "mixed-ranges")},
    "changes/keys.md": {
        ("DayOrder.partition_key", "growing-partition-key"),
        ("Reading.partition_key", "growing-partition-key"),
    },
    "models/encryption.md": {("OldGuest.row_key", "mixed-ranges"), ("Guest.row_key", "mixed-ranges")},
}
"""
What lint finds on pages that show it on purpose: the page of lint, keys that get better ones, a model as it was before,
and indexes whose reads fetch each entity, as a sweep has to.
"""


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """A page is a program of its own: models and modules that have the names of its own are not those of others."""
    monkeypatch.setattr(placement, "_declared", WeakValueDictionary[object, object]())
    monkeypatch.setattr(placement, "_staged", {})
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield
    for name, module in list(sys.modules.items()):
        if (module.__dict__.get("__file__") or "").startswith(str(tmp_path)):
            del sys.modules[name]
    monkeypatch.setattr(subprocess, "run", run_program)


@pytest.mark.parametrize("page", docs_pages.pages(), ids=lambda page: page.relative_to(ROOT).as_posix())
def test_page(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every Python block of the page runs, and prints what the page shows; its models are as lint advises."""
    expected = sum(block.runs for block in docs_pages.blocks(page))
    found: set[tuple[str, str]] = set()
    monkeypatch.chdir(tmp_path)

    def look(names: Mapping[str, object]) -> None:
        classes = [each for each in names.values() if isinstance(each, type) and each is not Entity]
        models = [each for each in classes if issubclass(each, Entity)]
        if any(concrete(schema_of(each)) for each in models):
            found.update((each.subject, each.rule.code) for each in lint(*models))

    assert docs_pages.run(page, look) == expected
    assert found == ADVISED_AGAINST.get(page.relative_to(ROOT).as_posix().removeprefix("docs/"), set())


@pytest.mark.parametrize("name", ["derived/change-feed", "reading/log-tails", "programs/logs", "programs/periods"])
def test_page_on_azurite(name: str, azurite: Azurite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The guide's expense claims, login attempts and logs of a queue, and a change feed do the same on the emulator."""
    monkeypatch.chdir(tmp_path)
    try:
        docs_pages.run(ROOT / "docs" / f"{name}.md", url=azurite.connection_string)
    finally:
        asyncio.run(delete_all(azurite.connection_string))


async def delete_all(url: str) -> None:
    """Delete what a page has made, since the emulator outlives it."""
    CLOCK.reset()
    async with connect(url) as db:
        for table in await db.tables():
            await db.drop_table(table)
        for container in await db.blobs.list_containers():
            await db.blobs.delete_container(container)


def test_readme_has_a_quickstart() -> None:
    """There is code to run: the README's quickstart with what it prints."""
    first, second = docs_pages.blocks(ROOT / "README.md")[1:3]

    assert (first.marker, first.language, first.runs) == ("quickstart", "python", True)
    assert (second.marker, second.language) == ("output", "text")


def test_pages_are_short() -> None:
    """A page is about one subject; a longer one is divided."""
    lengths = {page: len(page.read_text(encoding="utf-8").splitlines()) for page in docs_pages.pages()}

    assert {page: length for page, length in lengths.items() if length > MOST_LINES} == {}


def test_pages_install_alike() -> None:
    """Every page installs tableorm from the checkout, since it isn't on PyPI, with extras that exist."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    text = "".join(page.read_text(encoding="utf-8") for page in docs_pages.pages())
    installed = re.findall(r"""pip install ["']?(\w+)\[([\w,]+)\]""", text)

    assert {what for what, _ in installed} == {"PATH_OF_THE_CHECKOUT"}
    assert {extra for _, extras in installed for extra in extras.split(",")} == {*project["optional-dependencies"]}


def test_code_fits() -> None:
    """Code that a page shows is no wider than a page on a screen of 1,280 pixels."""
    wide: list[str] = []
    for page in docs_pages.pages()[1:]:
        lines = page.read_text(encoding="utf-8").splitlines()
        for block in docs_pages.blocks(page):
            # A line before the fence opens the comment that hides a block.
            if block.language not in WRAPPED and not re.match("<!--(?!.*-->)", lines[block.line - 3]):
                wide.extend(f"{block}: {line}" for line in block.text.splitlines() if len(line) > MOST_COLUMNS)

    assert wide == []


def test_pictures_are_drawn() -> None:
    """Each picture is as its description says, and is shown on a page with a text for those who do not see it."""
    shown = "".join(page.read_text(encoding="utf-8") for page in docs_pages.pages())
    for source in pictures.FOLDER.glob("*.txt"):
        picture = source.with_suffix(".svg")

        assert picture.read_text(encoding="utf-8") == pictures.draw(source.read_text(encoding="utf-8"))
        assert re.search(rf"!\[[^]]+\]\([./]*pictures/{picture.name}\)", shown)


def test_search_leaves_out_pages_for_contributors() -> None:
    """The pages of the section Internals, and only these, are left out of the search, so that guides come first."""
    hidden = "---\nsearch:\n  exclude: true\n---\n"
    left_out = {page for page in docs_pages.pages() if page.read_text(encoding="utf-8").startswith(hidden)}
    internals = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("  - Internals:\n")[2].partition("\n\n")[0]

    assert {page.relative_to(ROOT / "docs").as_posix() for page in left_out} == set(
        re.findall(r": (\S+\.md)", internals)
    )


def test_guides_lead_to_the_reference() -> None:
    """A page to which the reference links has a link to a page of the reference."""
    reference = sorted((ROOT / "docs" / "reference").glob("*.md"))
    links = {
        link for page in reference for link in re.findall(r"\(\.\./([^)#]+\.md)", page.read_text(encoding="utf-8"))
    }
    guides = [ROOT / "docs" / link for link in sorted(links)]

    assert len(guides) > 30
    assert [guide for guide in guides if "reference/" not in guide.read_text(encoding="utf-8")] == []


def test_card_shows_what_is_printed() -> None:
    """The picture that other sites show with a link shows output of the first page, in the size that they take."""
    card = ROOT / "docs" / "assets" / "card.svg"
    printed = re.findall('"code printed"[^>]*>([^<]+)<', card.read_text(encoding="utf-8"))

    assert len(printed) == 2
    assert {line for line in printed if line not in (ROOT / "docs" / "index.md").read_text(encoding="utf-8")} == set()
    assert struct.unpack(">II", card.with_suffix(".png").read_bytes()[16:24]) == (1200, 630)


def test_pages_are_found() -> None:
    """Every page is in the navigation, and linked from the overview or, in the reference, from its first page."""
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    lost: list[str] = []
    for page in docs_pages.pages()[1:]:
        name = page.relative_to(ROOT / "docs").as_posix()
        first = page.parent / "index.md" if page.parent.name == "reference" else ROOT / "docs" / "pages.md"
        link = f"({page.relative_to(first.parent).as_posix()}"
        if f": {name}\n" not in navigation or (page != first and link not in first.read_text(encoding="utf-8")):
            lost.append(name)

    assert lost == []
