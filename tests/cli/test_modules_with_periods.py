"""
Commands that take all models of a module, among which is one with a table for each period.
"""

from pathlib import Path

import pytest

from tests.commandline import insert_all, run_command, write_module

MODELS = """
import datetime as dt

from tableorm import Entity, Mapped, field


class {start}Page(Entity, table="{start}Pages", partition_key="p", row_key="{{id}}"):
    id: Mapped[str]
    expires: Mapped[dt.datetime | None] = field(default=None, expiry=True)


class {start}Visit(Entity, table="{start}Visits{{at:%Y%m%d}}", partition_key="{{user}}", row_key="{{at:ticks}}"):
    user: Mapped[str]
    at: Mapped[dt.datetime]
    expires: Mapped[dt.datetime | None] = field(default=None, expiry=True)
"""
COMMANDS = [("audit",), ("sweep",), ("worker", "--drain"), ("migrate", "rewrite")]


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a module with both kinds of models, for a database whose tables exist."""
    write_module(tmp_path, "mixed_models", MODELS.format(start="Mixed"), monkeypatch)
    url = f"local:{tmp_path}/a.tables"
    monkeypatch.setenv("TABLEORM_URL", url)
    insert_all(url, "MixedPages")
    return "mixed_models"


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_module_alone_leaves_them_out(
    command: tuple[str, ...], module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    The command works on the other models, and says on stderr which one it has left out: once, also if two modules have
    it, or one module is named twice.
    """
    write_module(tmp_path, "imports_mixed", f"from {module} import *\n", monkeypatch)

    done = run_command(*command, module, module, "imports_mixed")

    assert done.returncode == 0
    assert done.stderr.count("MixedVisit is left out: it has a table for each period\n") == 1


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_model_that_is_named_is_refused(command: tuple[str, ...], module: str) -> None:
    """The message names the verb, the model and what to do."""
    name, *options = command

    done = run_command(name, *options, f"{module}:MixedVisit", f"{module}:MixedPage")

    assert done.returncode == 1
    verb = options[0] if name == "migrate" else name
    assert f"{verb} MixedVisit is rejected: MixedVisit has a table for each period, and " in done.stderr
    assert f"{verb} works on plain tables only; leave MixedVisit out" in done.stderr


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_module_without_other_models(command: tuple[str, ...], module: str, tmp_path: Path) -> None:
    """Where no model is left, the usage is wrong."""
    (tmp_path / "period_only.py").write_text(f"from {module} import MixedVisit\n", encoding="utf-8")
    name, *options = command

    done = run_command(name, *options, "period_only")

    assert done.returncode == 2
    assert "MixedVisit is left out: it has a table for each period\n" in done.stderr
    assert "no model is left; name others" in done.stderr
