"""
Writing a revision: what has changed since the snapshot becomes a file, and the snapshot that of the models.
"""

import re
import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from pprint import pformat

import attrs
import msgspec
from msgspec import structs

from tableorm import Entity, ModelError
from tableorm.protocol.redaction import escape_unprintable

from ..evolution import Difference, carry_removed, compare_snapshots
from ..rules import Verdict
from ..snapshot import HAVE_STATES, Identity, ModelLayout, Snapshot, describe_models, read_snapshot, write_snapshot
from .line import check_snapshot, load_revisions
from .revision import BuildIndex, Repair, Rewrite, Step

_WIDTH = 100
_REPAIRED = ("maintained-changed", "derived-removed")  # in two roll-outs, after which an audit puts rows right


@attrs.frozen(kw_only=True)
class RevisionDraft:
    """
    What `write_revision` has derived from the changes of models.

    Args:
        path: The file that was written; None if nothing has changed, or a change is rejected or needs a re-key.
        differences: The changes.
        steps: The changes of stored rows that they need.
    """

    path: Path | None
    differences: tuple[Difference, ...]
    steps: tuple[Step, ...] = ()

    @property
    def refused(self) -> bool:
        """Whether a change is rejected, or needs a re-key."""
        return any(each.rule.verdict in (Verdict.REFUSED, Verdict.REKEY) for each in self.differences)


def write_revision(models: Iterable[type[Entity]], directory: Path, message: str, *, snapshot: Path) -> RevisionDraft:
    """
    Write the changes of models to a new revision file, and update the snapshot.

        draft = write_revision(
            [Employee], Path("revisions"), "add email", snapshot=Path("models.json")
        )

    Args:
        models: All models of the program; an abstract base stands for all of its subclasses.
        directory: The folder of the revisions. A missing folder is created.
        message: A short description of the change.
        snapshot: The snapshot file.

    Raises:
        ModelError: The message has no letter or digit, or the revisions don't form a single line or don't lead to the
            snapshot.
        OSError: A file can't be read or written.
    """
    message = escape_unprintable(" ".join(message.split()))
    slug = re.sub(r"[^a-z0-9]+", "_", message.lower()).strip("_")[:60]
    if not slug:
        raise ModelError(f"the message {message!r} has no letter from a to z and no digit, which name the file")
    line = load_revisions(directory)
    before = read_snapshot(snapshot) if snapshot.exists() else None
    check_snapshot(line, before, directory, snapshot)
    now = describe_models(models)
    differences = () if before is None else tuple(compare_snapshots(before, now))
    before = before or Snapshot(models=())
    draft = RevisionDraft(path=None, differences=differences)
    if draft.refused or (line and not differences):
        return draft
    old, new = _layouts(before), _layouts(now)
    after = _name_layouts(layout for identity, layout in new.items() if not line or old.get(identity) != layout)
    name = f"{len(line) + 1:04d}_{slug}"
    steps = _find_steps(differences, after, {layout.table for layout in old.values()})
    text = _format_revision(
        name,
        line[-1].name if line else None,
        message,
        differences,
        steps,
        before=_name_layouts(layout for identity, layout in old.items() if new.get(identity) != layout),
        after=after,
    )
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{name}.py"
    with path.open("x", encoding="utf-8", newline="\n") as file:
        file.write(text)
    write_snapshot(snapshot, structs.replace(carry_removed(before, now), revision=name))
    return attrs.evolve(draft, path=path, steps=steps)


def _layouts(snapshot: Snapshot) -> dict[Identity, ModelLayout]:
    """Return the models of a snapshot, without what was removed of them."""
    return {each.identity: structs.replace(each, removed_fields={}, removed_derived={}) for each in snapshot.models}


def _name_layouts(layouts: Iterable[ModelLayout]) -> dict[str, ModelLayout]:
    """Return layouts by the names of their classes, with the table where two classes have one name."""
    found = [*layouts]
    times = Counter(layout.name for layout in found)
    return {each.name if times[each.name] == 1 else ".".join(each.identity): each for each in found}


def _find_steps(
    differences: Sequence[Difference], after: Mapping[str, ModelLayout], tables: set[str]
) -> tuple[Step, ...]:
    """
    Return what differences need done to stored rows.

    Args:
        differences: What has changed.
        after: The layouts of the models that have changed, by name.
        tables: The tables that there were before.
    """
    names = {layout.identity: name for name, layout in after.items()}
    steps: dict[Step, None] = {}
    for each in differences:
        name, verdict = names.get(each.model.identity, ""), each.rule.verdict
        if verdict is Verdict.BUILD_INDEX:
            steps[BuildIndex(name, each.member)] = None
        elif verdict is Verdict.REWRITE and each.rule.code != "upgrade-removed":
            steps[Rewrite(name)] = None
        elif verdict is Verdict.REPAIR or each.rule.code in _REPAIRED:
            steps[Repair(name)] = None
        elif each.rule.code == "model-added" and each.model.table in tables:
            # It has no rows, and the table is old, so that nothing else says that its indexes are complete.
            decided = {*each.model.building, *each.model.unasked}
            for index, derived in each.model.derived.items():
                if derived["pattern"] in HAVE_STATES and index not in decided:
                    steps[BuildIndex(name, index)] = None
    return tuple(steps)


def _format_revision(
    name: str,
    follows: str | None,
    message: str,
    differences: Sequence[Difference],
    steps: Sequence[Step],
    *,
    before: Mapping[str, ModelLayout],
    after: Mapping[str, ModelLayout],
) -> str:
    """Return the source of a file."""
    wrap = textwrap.TextWrapper(_WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
    changes = [wrap.fill(f"- {each}") for each in differences]
    about = "\n".join([message, *([""] if changes else []), *changes])
    imported = sorted({"Revision", *(type(step).__name__ for step in steps)})
    arguments = {"name": name, "follows": follows, "steps": tuple(steps)}
    arguments |= {"before": msgspec.to_builtins(before), "after": msgspec.to_builtins(after)}
    body = ""
    for argument, value in arguments.items():
        start = f"    {argument}="
        lines = pformat(value, width=_WIDTH - len(start), sort_dicts=False).replace("\n", "\n" + " " * len(start))
        body += f"{start}{lines},\n"
    escaped = about.replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
    head = f'"""\n{escaped}\n"""\n\nfrom tableorm_migrations import {", ".join(imported)}\n'
    return f"{head}\nREVISION = Revision(\n{body})\n"
