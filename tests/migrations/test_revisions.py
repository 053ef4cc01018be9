"""
Revisions as files: what is written of a change of models, and that the files of a folder are one line.
"""

from pathlib import Path
from typing import Any

import pytest

from tableorm import Count, Embedded, Entity, Index, IndexList, Int32, Mapped, ModelError, PropertyBag, field, upgrade
from tableorm_migrations import (
    BuildIndex,
    Repair,
    Revision,
    RevisionDraft,
    Rewrite,
    describe_models,
    load_revisions,
    read_snapshot,
    write_revision,
    write_snapshot,
)

TABLE = "RevisionItems"


class Base(Entity, table=TABLE, abstract=True, partition_key="{group}", row_key="item_{id:03d}"):
    group: Mapped[str]
    id: Mapped[int]


class First(Base, kind="Item"):
    note: Mapped[str] = field(default="")


class Second(Base, kind="Item", version=2):
    title: Mapped[str]
    by_title = Index(row_key="title_{title}_{id:03d}")


@upgrade(Second, from_version=1)
def name_title(bag: PropertyBag) -> PropertyBag:
    bag["title"] = bag.pop("note")
    return bag


class Typed(Base, kind="Item"):
    note: Mapped[Int32] = field(default=0)


class Rekeyed(Base, kind="Item", row_key="thing_{id:03d}"):
    note: Mapped[str] = field(default="")


class Beside(Base, row_key="beside_{id:03d}"):
    by_id = Index(row_key="other_{id:05d}")
    decided = Index(row_key="decided_{id:05d}", building=False)
    listed = IndexList(row_key="list_{id:05d}")
    decided_list = IndexList(row_key="decided_list_{id:05d}", building=False)


class Elsewhere(Base, table="RevisionOthers", kind="Other"):
    pass


def revise(folder: Path, *models: type[Entity], message: str = "a change") -> RevisionDraft:
    return write_revision(models, folder / "revisions", message, snapshot=folder / "kept.json")


def load(folder: Path) -> list[Revision]:
    return load_revisions(folder / "revisions")


def test_a_line_of_revisions(tmp_path: Path) -> None:
    """The first one has all models and no steps; each other has what has changed, before and after, and the steps."""
    first = revise(tmp_path, First, Elsewhere, message="The first: Models!")
    second = revise(tmp_path, Second, Elsewhere, message="titles")

    assert first.path == tmp_path / "revisions" / "0001_the_first_models.py"
    assert second.path == tmp_path / "revisions" / "0002_titles.py"
    one, two = load(tmp_path)
    assert (one.name, one.follows, one.steps, one.before) == ("0001_the_first_models", None, (), {})
    assert {*one.after} == {"Elsewhere", "First"}
    assert (two.name, two.follows) == ("0002_titles", "0001_the_first_models")
    assert two.steps == second.steps == (Rewrite("Second"), BuildIndex("Second", "by_title"))
    assert ({*two.before}, {*two.after}) == ({"First"}, {"Second"})
    assert two.before["First"] == one.after["First"]
    assert two.after["Second"] == describe_models([Second]).models[0]
    assert two.after["Second"].identity == one.after["First"].identity


def test_a_file_is_for_people_and_imports_no_model(tmp_path: Path) -> None:
    """It says what has changed and why, and names no module but that of revisions."""
    revise(tmp_path, First)
    path = revise(tmp_path, Second, message='with """ and \\ and \0').path

    assert path is not None
    text = path.read_text(encoding="utf-8")
    assert text.startswith(
        '"""\nwith \\"\\"\\" and \\\\ and \\\\u0000\n\n- Second: First becomes Second (class-renamed): needs nothing'
    )
    assert "- Second: version 1 becomes 2 (version-raised): needs rewrite:" in text
    assert [line for line in text.splitlines() if "import" in line and not line.startswith(("-", " "))] == [
        "from tableorm_migrations import BuildIndex, Revision, Rewrite"
    ]
    assert all(len(line) <= 120 for line in text.splitlines())


def test_what_is_written_is_what_is_kept(tmp_path: Path) -> None:
    """The snapshot is that of the models afterwards, with the names that were removed."""
    revise(tmp_path, First)
    revise(tmp_path, Second)

    kept = read_snapshot(tmp_path / "kept.json").models[0]
    assert [*kept.removed_fields] == ["note"]
    assert load(tmp_path)[1].after["Second"].removed_fields == {}


def test_nothing_is_written_where_nothing_has_changed(tmp_path: Path) -> None:
    """Neither a file nor the snapshot."""
    revise(tmp_path, First)
    before = (tmp_path / "kept.json").read_bytes()

    assert revise(tmp_path, First) == RevisionDraft(path=None, differences=())
    assert len(load(tmp_path)) == 1
    assert (tmp_path / "kept.json").read_bytes() == before


@pytest.mark.parametrize(("model", "code"), [(Typed, "type-changed"), (Rekeyed, "row-key-changed")])
def test_nothing_is_written_of_what_is_refused(tmp_path: Path, model: type[Entity], code: str) -> None:
    """A change that is rejected, or needs a re-key, makes no revision."""
    revise(tmp_path, First)
    before = (tmp_path / "kept.json").read_bytes()
    draft = revise(tmp_path, model)

    assert draft.refused and draft.path is None
    assert code in [each.rule.code for each in draft.differences]
    assert len(load(tmp_path)) == 1
    assert (tmp_path / "kept.json").read_bytes() == before


def test_a_project_that_has_a_snapshot_begins_with_revisions(tmp_path: Path) -> None:
    """The first revision has all models, and the steps of what has changed since the snapshot."""
    write_snapshot(tmp_path / "kept.json", describe_models([First, Elsewhere]))
    draft = revise(tmp_path, Second, Elsewhere)

    assert draft.steps == (Rewrite("Second"), BuildIndex("Second", "by_title"))
    (one,) = load(tmp_path)
    assert ({*one.before}, {*one.after}) == ({"First"}, {"Second", "Elsewhere"})


def test_indexes_of_a_new_model_of_an_old_table_are_built(tmp_path: Path) -> None:
    """Nobody has said that they are complete; those of a new table are from the beginning."""
    revise(tmp_path, First)
    assert revise(tmp_path, First, Beside).steps == (BuildIndex("Beside", "by_id"), BuildIndex("Beside", "listed"))

    other = tmp_path / "other"
    other.mkdir()
    revise(other, Elsewhere)
    assert revise(other, Elsewhere, Beside).steps == ()


def make_namesake() -> type[Entity]:
    class Elsewhere(Base, table="RevisionAparts", kind="Item"):
        pass

    return Elsewhere


def test_classes_of_one_name_are_told_apart_by_their_tables(tmp_path: Path) -> None:
    """Two models of different tables may have one name."""
    revise(tmp_path, Elsewhere, make_namesake())

    (one,) = load(tmp_path)
    assert {*one.after} == {"RevisionOthers.Other", "RevisionAparts.Item"}


class Team(Entity, table="RevisionTeams", partition_key="{team}", row_key="team"):
    team: Mapped[str]
    name: Mapped[str] = field(default="")
    members: Mapped[int] = field(default=0, maintained=True)


class AnyMember(Entity, table="RevisionTeams", abstract=True, partition_key="{team}", row_key="m_{id}"):
    team: Mapped[str]
    id: Mapped[int]


class Bare(AnyMember, kind="Member"):
    pass


class Member(AnyMember):
    counted = Count(lambda: Team.members, team="{team}")


def test_counts_are_built(tmp_path: Path) -> None:
    """As indexes are."""
    revise(tmp_path, Team, Bare)

    assert revise(tmp_path, Team, Member).steps == (BuildIndex("Member", "counted"),)


@pytest.mark.parametrize("message", ["", "  ", "äöü", "--"])
def test_a_message_names_the_file(tmp_path: Path, message: str) -> None:
    """It needs a letter or a digit."""
    with pytest.raises(ModelError, match="which name the file"):
        revise(tmp_path, First, message=message)


def test_a_snapshot_that_revisions_do_not_lead_to(tmp_path: Path) -> None:
    """A change would be lost that is in no revision; so would it be without the snapshot."""
    revise(tmp_path, First)
    kept = (tmp_path / "kept.json").read_bytes()
    write_snapshot(tmp_path / "kept.json", describe_models([Second]))
    with pytest.raises(ModelError, match=r"kept\.json is not what revision 0001_a_change leads to: Second: First be"):
        revise(tmp_path, Second)

    (tmp_path / "kept.json").unlink()
    with pytest.raises(ModelError, match="has revisions, and there is no snapshot"):
        revise(tmp_path, Second)

    (tmp_path / "kept.json").write_bytes(kept)
    assert revise(tmp_path, Second).path is not None


def test_revisions_that_are_missing(tmp_path: Path) -> None:
    """The snapshot names the last one: a folder without it is rejected, also if it is empty or not there."""
    revise(tmp_path, First)
    revise(tmp_path, Second, message="titles")
    path = tmp_path / "kept.json"
    snapshot = read_snapshot(path)
    assert snapshot.revision == "0002_titles"
    (tmp_path / "revisions" / "0002_titles.py").unlink()

    for folder in ("revisions", "nowhere"):
        with pytest.raises(ModelError, match=f"with revision 0002_titles, which is not in .*{folder}; restore it"):
            write_revision([Typed], tmp_path / folder, "more", snapshot=path)
    assert read_snapshot(path) == snapshot


def write(folder: Path, name: str, follows: str | None, text: str = "") -> None:
    (folder / f"{name}.py").write_text(
        text
        or "from tableorm_migrations import Revision\n"
        f"REVISION = Revision(name={name!r}, follows={follows!r}, steps=(), before={{}}, after={{}})\n",
        encoding="utf-8",
    )


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (
            {"1_a": None, "2_b": "1_a", "2_c": "1_a"},
            "revisions 2_b and 2_c both follow 1_a, but revisions are one line; ",
        ),
        ({"1_a": None, "1_b": None}, "revisions 1_a and 1_b are both the first, but revisions are one line; "),
        ({"1_a": None, "3_c": "2_b"}, "revision 3_c follows 2_b, which is not there; restore its file"),
        ({"1_a": None, "2_b": "3_c", "3_c": "2_b"}, "revisions 2_b, 3_c follow each other in a circle"),
    ],
)
def test_revisions_are_one_line(tmp_path: Path, line: dict[str, str | None], problem: str) -> None:
    """Where two follow the same one, or one is missing, the names are said, and what to do."""
    for name, follows in line.items():
        write(tmp_path, name, follows)

    with pytest.raises(ModelError, match=problem):
        load_revisions(tmp_path)


def test_the_order_is_that_of_following(tmp_path: Path) -> None:
    """Names say nothing about it; files that begin with an underscore do not count, nor does a missing folder."""
    write(tmp_path, "a", "b")
    write(tmp_path, "b", None)
    write(tmp_path, "c", "a")
    write(tmp_path, "_d", None, "import nowhere")

    assert [each.name for each in load_revisions(tmp_path)] == ["b", "a", "c"]
    assert load_revisions(tmp_path / "nowhere") == []


LAYOUT: dict[str, Any] = {
    "A": {"name": "A", "table": "Things", "kind": "A", "partition_key": "{x}", "row_key": "a", "fields": {}}
}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("import nowhere_at_all", r"1_a\.py cannot be loaded: ModuleNotFoundError: "),
        ("x =", r"1_a\.py cannot be loaded: SyntaxError: "),
        ("x = 1", r"1_a\.py has no REVISION = Revision\(\.\.\.\)"),
        (
            "REVISION = Revision(name='1_b', follows=None)",
            "holds the revision '1_b'; file and revision must have the s",
        ),
        (
            "REVISION = Revision(name='1_a', follows=None, after={'A': {'name': 'A'}})",
            r"1_a\.py cannot be loaded: ModelError: the layouts are not those of models: Object missing required field",
        ),
        (
            "REVISION = Revision(name='1_a', follows=None, steps=(Rewrite('A'),))",
            r"the step Rewrite\(model='A'\) is of a model that is not in after=\{\.\.\.\}",
        ),
        (
            f"REVISION = Revision(name='1_a', follows=None, steps=(BuildIndex('A', 'by_x'),), after={LAYOUT})",
            r"BuildIndex\(model='A', name='by_x'\) is of a declaration that A has not in after",
        ),
    ],
)
def test_files_that_are_no_revisions(tmp_path: Path, text: str, problem: str) -> None:
    """They are named, with what is wrong."""
    write(tmp_path, "1_a", None, f"from tableorm_migrations import BuildIndex, Revision, Rewrite\n{text}\n")

    with pytest.raises(ModelError, match=problem):
        load_revisions(tmp_path)


class Source(Entity, table="RevisionSources", tracked=True, partition_key="{group}", row_key="source"):
    group: Mapped[str]
    name: Mapped[str] = field(default="")


class Holder(Base, table="RevisionSources", row_key="holder_{id}"):
    pass


class HolderWithCopy(Base, table="RevisionSources", kind="Holder", row_key="holder_{id}"):
    name: Mapped[str | None] = field(default=None, maintained=True)
    source = Embedded(lambda: Source, {"name": "name"}, group="{group}")


def test_what_is_left_of_a_removed_index_is_deleted(tmp_path: Path) -> None:
    """By an audit: entities that nobody writes keep their entries."""
    revise(tmp_path, Elsewhere, Beside)

    class Without(Base, kind="Beside", row_key="beside_{id:03d}"):
        pass

    assert revise(tmp_path, Elsewhere, Without).steps == (Repair("Without"),)


def test_copies_are_repaired(tmp_path: Path) -> None:
    """Embedded copies that are new come by an audit."""
    revise(tmp_path, Source, Holder)

    assert Repair("HolderWithCopy") in revise(tmp_path, Source, HolderWithCopy).steps
