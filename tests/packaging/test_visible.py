"""
What an editor and the reference show of a class: what programs use, and nothing else.

An editor knows what stands in the source of a class and of its bases. So that is looked at, and not what `dir` returns.
"""

import ast
import inspect
import pkgutil
import pydoc
import re
import textwrap
from collections.abc import Iterator
from enum import Enum, auto
from functools import cache
from itertools import pairwise

import attrs

import tableorm
from scripts.docs_pages import ROOT

DOCS = ROOT / "docs"
PAGES = [page for page in sorted(DOCS.rglob("*.md")) if page.parent.name != "reference" and page.stem != "architecture"]
"""The pages for people who write programs."""


INTERFACES = ("tableorm.stores.", "tableorm.protocol.", "tableorm_local.")
"""What authors of backends and servers find in the reference alone."""


def public_classes(*, but: tuple[str, ...] = ()) -> list[type]:
    """Return the classes of the reference, and those that `tableorm` exports, `but` for those of some packages."""
    reference = "".join(page.read_text(encoding="utf-8") for page in sorted((DOCS / "reference").glob("*.md")))
    names = {*re.findall(r"^::: (\S+)$", reference, re.MULTILINE), *(f"tableorm.{name}" for name in tableorm.__all__)}
    found = [pkgutil.resolve_name(path) for path in sorted(names) if not path.startswith(but)]
    return [each for each in found if inspect.isclass(each)]


class Sort(Enum):
    METHOD = auto()
    PROPERTY = auto()
    FIELD = auto()


@attrs.frozen
class Member:
    """A name that a class has, and whether it is described where it stands."""

    name: str
    sort: Sort
    described: bool


def members_of(kind: type) -> Iterator[Member]:
    """Yield what the sources of a class and its bases define, and set on `self`, but for private names."""
    for base in kind.__mro__:
        if base.__module__.startswith("tableorm"):
            yield from (member for member in members_of_source(base) if not member.name.startswith("_"))


@cache
def members_of_source(kind: type) -> list[Member]:
    source = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
    assert isinstance(source, ast.ClassDef)
    members: list[Member] = []
    for statement, after in pairwise([*source.body, None]):
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            decorators = {ast.unparse(each) for each in statement.decorator_list}
            if "overload" not in decorators:
                described = ast.get_docstring(statement) is not None
                members.append(
                    Member(statement.name, Sort.PROPERTY if "property" in decorators else Sort.METHOD, described)
                )
        elif isinstance(statement, ast.Assign | ast.AnnAssign):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            # The values of an enumeration need no more words than the text that they are.
            described = issubclass(kind, Enum) or (
                isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
            )
            names = [each.id for each in targets if isinstance(each, ast.Name)]
            members += [Member(name, Sort.FIELD, described) for name in names]
    for each in ast.walk(source):
        if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store) and ast.unparse(each.value) == "self":
            members.append(Member(each.attr, Sort.FIELD, described=False))
    return members


def test_what_is_shown_is_described() -> None:
    """Each public member has a docstring, or is named in that of its class."""
    missing: list[str] = []
    for kind in public_classes():
        described = " ".join(inspect.getdoc(base) or "" for base in kind.__mro__ if base is not object)
        members = [member.name for member in members_of(kind) if not member.described]
        missing += [f"{kind.__name__}.{name}" for name in members if not re.search(rf"\b{name}\b", described)]

    assert missing == []


def test_what_is_shown_is_in_the_documentation() -> None:
    """A method that no page calls is none for programs, and a property that no page names: they belong elsewhere."""
    pages = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    patterns = {Sort.METHOD: r"\.{}\(", Sort.PROPERTY: r"[.`]{}\b", Sort.FIELD: ""}

    assert [
        f"{kind.__name__}.{member.name}"
        for kind in public_classes(but=INTERFACES)
        for member in members_of(kind)
        if not re.search(patterns[member.sort].format(member.name), pages)
    ] == []


def test_no_base_is_there_for_errors_alone() -> None:
    """`help` shows each base of a class: those of public classes have public names, and say what they are."""
    bases = {base for kind in public_classes() for base in kind.__mro__ if base.__module__.startswith("tableorm")}
    collecting = (tableorm.Transaction, tableorm.Bulk, tableorm.Worker, tableorm.ChangeStream, tableorm.Database)

    assert [base.__name__ for base in bases if base.__name__.startswith("_") or not base.__doc__] == []
    assert [kind.__name__ for kind in collecting if kind.__mro__ != (kind, object)] == []
    for kind in (*collecting, tableorm.Select):
        shown = pydoc.plain(pydoc.render_doc(kind))
        assert "Raise ModelError: write `a" in shown and "async_only" not in shown and "misuse" not in shown


def test_help_shows_no_internal_base() -> None:
    """Each class that `help(tableorm)` shows, as a base too, is one that `tableorm` exports."""
    shown = pydoc.plain(pydoc.render_doc(tableorm))
    tree = shown.partition("\nCLASSES\n")[2].partition("\n    class ")[0]
    orders = re.findall(r"Method resolution order:\n((?: +\|      \S+\n)+)", shown)
    inherited = re.findall(r"inherited from (\S+):", shown)
    names = re.findall(r"\btableorm\.[\w.]*\b(\w+)\b", "\n".join([tree, *orders, *inherited]))

    assert {"Derivation", "IndexOf", "Relation", "Select"} <= set(names)
    assert len(orders) > 50 and len(inherited) > 50
    assert set(names) <= set(tableorm.__all__)
