"""
The command `tableorm completion`, which prints a script that completes commands and options in a shell.
"""

import argparse
from collections.abc import Iterator

from .arguments import OwnCommand, option
from .command_line import make_parser

_BASH = """\
_tableorm_words() {{
    case "$1" in
{cases}
        *) return 1 ;;
    esac
}}
_tableorm() {{
    local name=tableorm word=1
    while ((word < COMP_CWORD)); do
        _tableorm_words "$name ${{COMP_WORDS[word]}}" > /dev/null && name="$name ${{COMP_WORDS[word]}}"
        ((word++))
    done
    COMPREPLY=($(compgen -W "$(_tableorm_words "$name")" -- "${{COMP_WORDS[COMP_CWORD]}}"))
}}
complete -o default -F _tableorm tableorm"""
_ZSH = "autoload -U +X compinit bashcompinit && compinit && bashcompinit\n"


def _print_script(args: argparse.Namespace) -> int:
    """
    `tableorm completion bash|zsh|fish` prints a script for the shell, which then needs no Python to complete.

    Examples:
        tableorm completion bash > ~/.tableorm-completion
        tableorm completion fish | source
    """
    words = dict(make_parser([]).words())
    if args.shell == "fish":
        print("\n".join(_fish(words)))
        return 0
    cases = "\n".join(f'        "{name}") echo "{" ".join(found)}" ;;' for name, found in words.items())
    print((_ZSH if args.shell == "zsh" else "") + _BASH.format(cases=cases))
    return 0


def _fish(words: dict[str, list[str]]) -> Iterator[str]:
    for name, found in words.items():
        seen = [f"__fish_seen_subcommand_from {each}" for each in name.split()[1:]] or ["__fish_use_subcommand"]
        for word in found:
            kind = "-l" if word.startswith("--") else "-a"
            yield f"complete -c tableorm -n '{'; and '.join(seen)}' {kind} {word.removeprefix('--')}"


COMPLETION = OwnCommand(
    "print a script that completes commands and options in a shell",
    _print_script,
    option("shell", metavar="SHELL", choices=("bash", "zsh", "fish"), help="bash, zsh or fish"),
)
