"""
The pages of the design say what is so: each example is stored, and what they name is there.
"""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, cast

from scripts import docs_pages
from scripts.docs_pages import ROOT

DESIGN = ROOT / "docs" / "design"
FILES = ROOT / "tests" / "stored" / "files"
PACKAGES = ("", "tableorm", "backends", "migrations", "migrations/tableorm_migrations")
PATHS = re.compile(r"`([a-z_]+(?:/[a-z_]+)*/[a-z_]+\.py)(?:::(\w+))?`")


def objects_in(value: Any) -> Iterator[dict[str, Any]]:
    """Yield the objects of a value of JSON, and those of its texts that are JSON themselves."""
    if isinstance(value, str) and value[:1] in ("{", "["):
        try:
            value = json.loads(value)
        except ValueError:
            return
    if isinstance(value, dict):
        found = cast("dict[str, Any]", value)
        yield found
        for member in found.values():
            yield from objects_in(member)
    elif isinstance(value, list):
        for member in cast("Sequence[Any]", value):
            yield from objects_in(member)


def test_each_example_is_stored() -> None:
    """What the page of stored forms shows is in the files that a program has written, member by member."""
    stored = [each for file in sorted(FILES.glob("[0-9]*.json")) for each in objects_in(json.loads(file.read_text()))]
    pages = [DESIGN / "stored-formats.md", DESIGN / "stored-fields.md"]
    shown = [block for page in pages for block in docs_pages.blocks(page) if block.language == "json"]
    examples = [json.loads(block.text) for block in shown]

    assert len(examples) > 20
    assert [each for each in examples if not any(each.items() <= found.items() for found in stored)] == []


def test_pages_name_what_is_there() -> None:
    """The modules and tests that pages name exist, and each protocol in tests/protocols has a page that names it."""
    named = [(page.name, *found) for page in sorted(DESIGN.glob("*.md")) for found in PATHS.findall(page.read_text())]
    lost = [each for each in named if not _is_there(each[1], each[2])]
    paths = {path for _, path, _ in named}
    protocols = {f"tests/protocols/{each.name}" for each in (ROOT / "tests" / "protocols").glob("test_*.py")}

    assert lost == []
    assert protocols <= paths


def test_pages_name_each_property() -> None:
    """Of rows that are tableorm's own; those of entities, which some of them hold, are their models'."""
    text = (DESIGN / "stored-formats.md").read_text()
    missing = set[str]()
    for file in FILES.glob("[0-9]*.json"):
        for table, rows in json.loads(file.read_text())["tables"].items():
            whole = table.lower().startswith("tableorm")
            own = [each for each in rows if whole or each.get("EntityType", "").startswith("#")]
            names = {name.partition("@")[0] for row in own for name in row} - {"Timestamp", "odata.etag"}
            missing |= {f"{table}: {name}" for name in names if not re.search(rf"[`\"]{name}[`\"]", text)}

    assert missing == set()


def test_each_rule_is_left_out_in_a_run() -> None:
    """What a page lists as the run that shows why there is a rule is in a model of a protocol."""
    models = " ".join(file.read_text() for file in (ROOT / "tests" / "protocols").glob("*.py"))
    models, rules = " ".join(models.split()), list[str]()
    for page in DESIGN.glob("*.md"):
        for table in re.findall(r"(?:^\|.*\n)+", page.read_text(), re.MULTILINE):
            head, _, *rows = table.splitlines()
            if re.search("left out|broken", head):
                rules += [row.split("|")[2] for row in rows]
    runs = [part.strip().replace("`", '"') for rule in rules for part in re.split(r"; |, \.\.\. | \(", rule)]

    assert len(runs) > 60
    assert [each for each in runs if each not in models and f"def {each[1:-1]}(" not in models] == []


def _is_there(path: str, name: str) -> bool:
    """Return whether a file exists, and has the test that is named behind it."""
    files = [file for package in PACKAGES if (file := ROOT / package / path).is_file()]
    return any(not name or re.search(rf"def {name}\(", file.read_text()) for file in files)
