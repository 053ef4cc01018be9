"""
`tableorm completion`, in the shells that are installed.
"""

import os
import select
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from tableorm.cli.command_line import make_parser
from tests.commandline import posix_only
from tests.commandline import run_command as tableorm

COMPLETIONS = {
    "sh": "show",
    "outbox re": "outbox retry",
    "outbox list --tok": "outbox list --token",
    "--js": "--json",
    "--json sh": "--json show",
    "show --partition x --li": "show --partition x --limit",
    "import a b c --if-exists re": "import a b c --if-exists replace",
    "import --if-exists skip --form": "import --if-exists skip --format",
    "completion z": "completion zsh",
    "query hr.tables tables --exp": "query hr.tables tables --explain",
    "check hr.t": "check hr.tables",
    "tables local:./h": "tables local:./hr.tables",
}
"""What is typed after the name of the program, and what it becomes."""
_PATIENCE = 60.0  # seconds, after which a shell says nothing more
INTERACTIVE = {"bash": ["--norc", "-i"], "zsh": ["-f", "-i"]}


def _type_lines(shell: str, lines: Iterable[str]) -> Iterator[str]:
    """Type lines in a terminal, with a tab after each; yield the arguments that the program gets."""
    import pty

    main, side = pty.openpty()
    command = [shell, *INTERACTIVE[shell]]
    with (
        subprocess.Popen(command, stdin=side, stdout=side, stderr=side, start_new_session=True) as process,
        os.fdopen(main, "r+b", buffering=0) as stream,
    ):
        os.close(side)
        stream.write(b'PS1=; source ./script; tableorm() { echo; echo "given: $*"; }; set -o emacs\r')
        for line in lines:
            stream.write(f"tableorm {line}\t\r".encode())
            shown = b""
            while b"\ngiven: " not in shown or not shown.endswith(b"\n"):
                assert select.select([stream], [], [], _PATIENCE)[0], shown
                shown += stream.read(1)
            yield shown.rpartition(b"given: ")[2].decode().strip()
        process.kill()


def _ask_fish(lines: Iterable[str]) -> Iterator[str]:
    """Yield lines as fish completes them, if there is only one way."""
    for line in lines:
        command = "source ./script; complete -C $argv[1]"
        done = subprocess.run(["fish", "-N", "-c", command, f"tableorm {line}"], capture_output=True, check=True)
        yield " ".join([*line.split()[:-1], *done.stdout.decode().split()])


@posix_only
@pytest.mark.parametrize(
    "shell",
    [
        pytest.param(
            shell,
            marks=pytest.mark.skipif(shutil.which(shell) is None, reason=f"capability: {shell} is not installed"),
        )
        for shell in ("bash", "zsh", "fish")
    ],
)
def test_completion(shell: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The shell completes commands, actions, options, their values, files, and URLs of files."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("TERM", "dumb")
    (tmp_path / "script").write_text(tableorm("completion", shell).stdout, encoding="utf-8")
    (tmp_path / "hr.tables").touch()

    done = list(_ask_fish(COMPLETIONS) if shell == "fish" else _type_lines(shell, COMPLETIONS))

    assert dict(zip(COMPLETIONS, done, strict=True)) == COMPLETIONS


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_script_is_complete(shell: str) -> None:
    """It has every command, every option and every choice."""
    script = tableorm("completion", shell).stdout
    words = {word for found in dict(make_parser([]).words()).values() for word in found}

    assert {"outbox", "--token", "replace"} <= words
    assert [word for word in words if f" {word}" not in script] == []
