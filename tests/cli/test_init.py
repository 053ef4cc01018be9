"""
`tableorm init`.
"""

import errno
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.commandline import run_command as tableorm


def test_a_new_project_passes_its_tests(tmp_path: Path) -> None:
    """It is complete and formatted: its tests pass, and its service runs. A second one replaces nothing."""
    folder = tmp_path / "my staff"
    made = tableorm("init", str(folder))
    assert (made.returncode, made.stderr, made.stdout.count("\n")) == (0, "", 1)
    # It can be pasted into a shell, and installs nothing that PyPI lacks.
    assert f" cd '{folder}' && python -m pip install pytest pytest-asyncio && " in made.stdout

    commands = ["pytest -q -p no:cacheprovider", "my_staff.service"]
    commands += ["ruff format --check ."] * (find_spec("ruff") is not None)  # as where the code is checked
    for command in commands:
        done = subprocess.run(
            [sys.executable, "-m", *command.split()], cwd=folder, capture_output=True, encoding="utf-8", check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr

    (folder / "my_staff/models.py").write_text("mine", encoding="utf-8")
    again = tableorm("init", str(folder))
    assert (again.returncode, "already exists" in again.stderr) == (1, True)
    assert (folder / "my_staff/models.py").read_text(encoding="utf-8") == "mine"


@pytest.mark.parametrize(("fault", "status"), [(KeyboardInterrupt(), 130), (OSError(errno.ENOSPC, "full"), 1)])
def test_a_part_of_a_project(
    fault: BaseException, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an interrupt, or on a full disk, no file is left, so that the same command works later."""
    write = Path.write_text

    def fail(path: Path, text: str, **options: Any) -> int:
        if path.name == "service.py":
            raise fault
        return write(path, text, **options)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_text", fail)
        failed = tableorm("init", str(tmp_path / "staff"))
    left = [path for path in tmp_path.rglob("*") if path.is_file()]
    again = tableorm("init", str(tmp_path / "staff"))

    assert (failed.returncode, failed.stderr.count("\n"), left) == (status, 1, [])
    assert again.returncode == 0
