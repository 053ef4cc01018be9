"""
The command `tableorm lint`: what is found, as text and as JSON, and the exit status.
"""

import json
from pathlib import Path

import pytest

from tests.commandline import posix_only, run_command, show_on_terminal, write_module

MODELS = """
from tableorm import Entity, Mapped


class Order(Entity, table="LintShop", partition_key="{shop}", row_key="order_{number}"):
    shop: Mapped[str]
    number: Mapped[int]


class Item(Entity, table="LintShop", partition_key="{shop}", row_key="item_{number:06d}"):
    shop: Mapped[str]
    number: Mapped[int]
"""


@pytest.fixture(autouse=True)
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_module(tmp_path, "lint_models", MODELS, monkeypatch)
    monkeypatch.setenv("TABLEORM_URL", "local::memory:")


def lint(*arguments: str) -> tuple[int, str, str]:
    done = run_command("lint", *arguments)
    return done.returncode, done.stdout, done.stderr


def test_what_is_found() -> None:
    """A module means all of its models; each finding is a line, and the exit status 1."""
    status, said, problems = lint("lint_models")

    assert (status, problems) == (1, "")
    assert said.startswith("Order.row_key: number has no width (unpadded-number): ")
    assert said.count("\n") == 1


@posix_only
def test_a_narrow_terminal() -> None:
    """A finding is wrapped between words."""
    lines = show_on_terminal(40, "lint", "lint_models", status=1).splitlines()

    assert lines[0] == "Order.row_key: number has no width"
    assert len(lines) > 2 and max(map(len, lines)) <= 40


def test_json() -> None:
    """Each finding is an object with the declaration, what was found, and the rule."""
    status, said, _ = lint("--json", "lint_models:Order")

    found = json.loads(said)
    assert status == 1
    assert (found["subject"], found["code"]) == ("Order.row_key", "unpadded-number")
    assert found.keys() == {"subject", "detail", "code", "finds", "reason", "remedy", "section"}


def test_nothing_is_found() -> None:
    """The exit status is 0, also where all that was found is ignored."""
    assert lint("lint_models:Item") == (0, "nothing was found\n", "")
    assert lint("--ignore", "unpadded-number", "lint_models") == (0, "nothing was found\n", "")
    assert lint("--ignore=one-partition", "--ignore=unpadded-number:Order.row_key", "lint_models")[0] == 0
