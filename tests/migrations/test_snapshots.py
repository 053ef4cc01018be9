"""
Snapshots: what is kept of models, that removed names never come back with another meaning, and the command.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

from tableorm import Entity, Index, Mapped, ModelError, field
from tableorm_migrations import (
    RULES,
    Verdict,
    carry_removed,
    compare_snapshots,
    describe_models,
    read_snapshot,
    write_snapshot,
)
from tests.commandline import run_command

from . import test_evolution_fields, test_evolution_models
from .turns import Case


def test_each_rule_is_shown() -> None:
    """There is no rule of which no case shows two programs."""
    cases: list[Case] = [*test_evolution_fields.CASES.values(), *test_evolution_models.CASES.values()]
    assert {code for case in cases for code in case.codes} == {*RULES}
    assert len(RULES) >= 25


def test_what_is_refused_or_needs_something_says_what_to_do() -> None:
    """Only what needs nothing has no remedy."""
    assert {each.code for each in RULES.values() if not each.remedy} <= {
        each.code for each in RULES.values() if each.verdict in (Verdict.NOTHING, Verdict.SAFE)
    }


@attrs.define
class Part:
    name: str
    size: int | None = None


class Base(Entity, table="SnapshotItems", abstract=True, partition_key="{group}", row_key="item_{id:03d}"):
    group: Mapped[str]
    id: Mapped[int]


class Noted(Base, abstract=True):
    note: Mapped[str] = field(default="")

    by_note = Index(row_key="note_{note}_{id:03d}", where=lambda item: item.id > 0)


class First(Noted, kind="Item"):
    parts: Mapped[list[Part] | None] = field(default=None, name="Parts")


class Second(Base, kind="Item"):
    pass


class Third(Base, kind="Item"):
    note: Mapped[int | None] = field(default=None)

    by_note = Index(row_key="other_{id:03d}")


class Fourth(Noted, kind="Item"):
    pass


class Thing(Base, row_key="thing_{id:03d}"):
    pass


def test_a_snapshot_is_written_and_read(tmp_path: Path) -> None:
    """As JSON that people can read, and that differs only where the models do."""
    path = tmp_path / "models.json"
    snapshot = describe_models([First, Thing])
    write_snapshot(path, snapshot)

    assert read_snapshot(path) == snapshot
    assert compare_snapshots(read_snapshot(path), describe_models([Thing, First])) == []
    item = json.loads(path.read_text(encoding="utf-8"))["models"][0]
    assert item["fields"]["parts"] == {
        "type": "list[Part]",
        "edm": "Edm.String",
        "property": "Parts",
        "optional": True,
        "default": True,
        "classes": {"Part": {"name": "str", "size": "int | None"}},
    }
    assert item["derived"]["by_note"] == {
        "pattern": "Index",
        "table": "SnapshotItems",
        "partition_key": "{group}",
        "row_key": "note_{note}_{id:03d}",
        "unique": False,
        "include": "all",
        "where": True,
        "consistency": None,
    }


def codes(model: type[Entity], kept: Path) -> list[str]:
    """How a model differs from the snapshot that is kept, which is written anew."""
    before, now = read_snapshot(kept), describe_models([model])
    write_snapshot(kept, carry_removed(before, now))
    return [each.rule.code for each in compare_snapshots(before, now) if each.rule.code != "class-renamed"]


def test_removed_names_do_not_come_back_as_something_else(tmp_path: Path) -> None:
    """A property of another type, an index of other keys; as it was a property may come back, and an index may not."""
    kept = tmp_path / "models.json"
    write_snapshot(kept, describe_models([First]))
    assert codes(Second, kept) == ["field-removed", "field-removed", "derived-removed"]
    again = kept.read_bytes()
    assert codes(Third, kept) == ["field-added", "type-changed", "made-optional", "derived-changed"]

    kept.write_bytes(again)
    assert codes(Fourth, kept) == ["field-added", "index-returned"]


def test_removed_kinds_do_not_come_back_as_something_else(tmp_path: Path) -> None:
    """Their rows may be there still, so that they are compared with what was removed."""
    kept = tmp_path / "models.json"
    write_snapshot(kept, describe_models([First]))
    assert codes(Thing, kept) == ["model-added", "model-removed"]
    assert codes(Third, kept) == [
        "model-added",
        "type-changed",
        "made-optional",
        "field-removed",
        "derived-changed",
        "model-removed",
    ]


@pytest.mark.parametrize(
    "text",
    [b"", b"{}", b"[]", b'{"format": 9, "models": []}', b'{"models": [], "more": 1}', b'"\xff"', b'{"models":' * 9999],
)
def test_files_that_are_no_snapshots(tmp_path: Path, text: bytes) -> None:
    """They are rejected by name."""
    path = tmp_path / "models.json"
    path.write_bytes(text)
    with pytest.raises(ModelError, match=r"models\.json"):
        read_snapshot(path)


def test_a_base_without_classes_has_no_snapshot() -> None:
    """There must be something to describe."""
    with pytest.raises(ModelError, match="no model to describe"):
        describe_models([])


MODELS = """
from tableorm import Entity, Mapped, field

class Item(Entity, table="Items", partition_key="{group}", row_key="{id:03d}"):
    group: Mapped[str]
    id: Mapped[int]
"""


def migrate(*arguments: str) -> tuple[int, str]:
    """Run the command with the models as the folder has them now: status, and what it printed."""
    sys.modules.pop("shop", None)
    done = run_command("migrate", "check", *arguments)
    return done.returncode, done.stdout + done.stderr


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of a program, in which the command runs."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield tmp_path
    sys.modules.pop("shop", None)


def test_the_command(folder: Path) -> None:
    """It fails where models differ, writes what is not rejected, and leaves the file alone otherwise."""
    module = folder / "shop.py"
    module.write_text(MODELS, encoding="utf-8")
    status, said = migrate("shop")
    assert status == 1
    assert "write the first one with --write" in said
    assert migrate("shop", "--write") == (0, "models.snapshot.json was written; models: 1\n")
    assert migrate("shop") == (0, "nothing has changed since models.snapshot.json was written\n")

    module.write_text(MODELS + "    note: Mapped[str | None] = field(default=None)\n", encoding="utf-8")
    status, said = migrate("shop")
    assert status == 1
    assert said.startswith("Item.note: property 'note' is new (field-added): is safe while older programs run: ")
    assert migrate("shop", "--write") == (0, f"{said}models.snapshot.json was written anew\n")
    assert migrate("shop") == (0, "nothing has changed since models.snapshot.json was written\n")

    module.write_text(MODELS + "    note: Mapped[int]\n", encoding="utf-8")
    kept = (folder / "models.snapshot.json").read_bytes()
    status, said = migrate("shop", "--write")
    assert status == 1
    assert "Item.note: str becomes int (type-changed): is rejected: stored values are of the old type" in said
    assert "was not written" in said
    assert (folder / "models.snapshot.json").read_bytes() == kept


@pytest.mark.parametrize(("module", "problem"), [("nowhere", "ModuleNotFoundError"), ("json", "has no models")])
@pytest.mark.usefixtures("folder")
def test_modules_without_models(module: str, problem: str) -> None:
    """They are named."""
    status, said = migrate(module)
    assert status == 1
    assert problem in said


def test_files_that_cannot_be_read_or_written(folder: Path) -> None:
    """The file is named on one line, with what is wrong."""
    (folder / "shop.py").write_text(MODELS, encoding="utf-8")
    status, said = migrate("shop", "--snapshot", "nowhere/kept.json", "--write")
    assert (status, said) == (1, "tableorm: nowhere/kept.json.new: No such file or directory\n")
    (folder / "folder").mkdir()
    status, said = migrate("shop", "--snapshot", "folder")
    assert (status, said) == (1, "tableorm: folder: Is a directory\n")


def test_the_table_of_the_documentation() -> None:
    """It is made of the rules."""
    text = (Path(__file__).parents[2] / "docs" / "reference" / "changes.md").read_text(encoding="utf-8")
    head = "| change | what it needs | why | what to do |\n|---|---|---|---|\n"
    table = "".join(
        f"| {rule.change[0].upper()}{rule.change[1:]} | {rule.verdict} | {rule.reason} | {rule.remedy or '-'} |\n"
        for rule in RULES.values()
    )
    assert text.endswith("\n\n" + head + table.replace("| None", r"\| None"))
