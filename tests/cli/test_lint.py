"""
The command `tableorm lint`: what is found, as text and as JSON, and the exit status.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

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
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TABLEORM_URL", "local::memory:")
    (tmp_path / "shop_models.py").write_text(MODELS, encoding="utf-8")


def lint(*arguments: str) -> tuple[int, str, str]:
    command = [sys.executable, "-m", "tableorm.cli", "lint", *arguments]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", check=False)
    return done.returncode, done.stdout, done.stderr


def test_what_is_found() -> None:
    """A module means all of its models; each finding is a line, and the exit status 1."""
    status, said, problems = lint("shop_models")

    assert (status, problems) == (1, "")
    assert said.startswith("Order.row_key: number has no width (unpadded-number): ")
    assert said.count("\n") == 1


def test_json() -> None:
    """Each finding is an object with the declaration, what was found, and the rule."""
    status, said, _ = lint("--json", "shop_models:Order")

    found = json.loads(said)
    assert status == 1
    assert (found["subject"], found["code"]) == ("Order.row_key", "unpadded-number")
    assert found.keys() == {"subject", "detail", "code", "finds", "reason", "remedy", "section"}


def test_nothing_is_found() -> None:
    """The exit status is 0, also where all that was found is ignored."""
    assert lint("shop_models:Item") == (0, "", "")
    assert lint("--ignore", "unpadded-number", "shop_models") == (0, "", "")
    assert lint("--ignore=one-partition", "--ignore=unpadded-number:Order.row_key", "shop_models") == (0, "", "")


def test_an_unknown_rule() -> None:
    """It is named, with the nearest one."""
    status, said, problems = lint("--ignore", "unpadded", "shop_models")

    assert (status, said) == (1, "")
    assert problems.startswith("tableorm: lint(ignore='unpadded') is refused")
    assert "'unpadded-number'" in problems
