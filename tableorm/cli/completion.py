"""
The command `tableorm completion`, which prints a script that completes commands, options and their values in a shell.
"""

import argparse

from .arguments import OwnCommand, option
from .command_line import make_parser
from .output import emit

# Each script finds the command before the cursor, then offers the values of the option before the cursor, or else what
# can follow the command. Where nothing is known, the shell completes files.
_POSIX = """\
_tableorm_words() {
    case "$1" in
CASES
        *) return 1 ;;
    esac
}
"""
_BASH = """\
_tableorm() {
    local name=tableorm word current="${COMP_WORDS[COMP_CWORD]}" left_out=()
    for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
        [[ $word != -* ]] && _tableorm_words "$name $word" > /dev/null && name="$name $word"
    done
    word=$(_tableorm_words "$name ${COMP_WORDS[COMP_CWORD-1]}" || _tableorm_words "$name")
    [[ $current == -* ]] || left_out=(-X '-*')
    COMPREPLY=($(compgen -W "$word" "${left_out[@]}" -- "$current"))
}
complete -o default -F _tableorm tableorm"""
_ZSH = """\
_tableorm() {
    local name=tableorm word found
    for word in ${words[2,CURRENT-1]}; do
        [[ $word != -* ]] && _tableorm_words "$name $word" > /dev/null && name="$name $word"
    done
    found=(${=$(_tableorm_words "$name ${words[CURRENT-1]}" || _tableorm_words "$name")})
    [[ $PREFIX == -* ]] || found=(${found:#-*})
    if (( $#found )); then
        compadd -a found
    else
        compset -P 'local:'
        _files
    fi
}
(( $+functions[compdef] )) || { autoload -Uz compinit && compinit -i }
compdef _tableorm tableorm"""
_FISH = """\
function __tableorm_words
    switch "$argv[1]"
CASES
        case '*'
            return 1
    end
end
function __tableorm
    set -l before (commandline -opc)
    set -l name tableorm
    for word in $before[2..]
        not string match -q -- '-*' $word
        and __tableorm_words "$name $word" > /dev/null
        and set name "$name $word"
    end
    set -l found (__tableorm_words "$name $before[-1]"; or __tableorm_words $name)
    if string match -q -- '-*' (commandline -ct)
        printf "%s\\n" $found
    else
        string match -v -- '-*' $found
    end
end
complete -c tableorm -n '__tableorm > /dev/null' -f
complete -c tableorm -a '(__tableorm)'"""
_POSIX_CASE = '        "{}") printf "%s\\n" {} ;;'
_SCRIPTS = {
    "bash": (_POSIX + _BASH, _POSIX_CASE),
    "zsh": (_POSIX + _ZSH, _POSIX_CASE),
    "fish": (_FISH, '        case "{}"\n            printf "%s\\n" {}'),
}
"""The script for each shell, and its case of what can follow a command."""


def _print_script(args: argparse.Namespace) -> int:
    """
    `tableorm completion bash|zsh|fish` prints a script for the shell, which then needs no Python to complete.

    Examples:
        tableorm completion bash > ~/.tableorm-completion
        tableorm completion fish | source
    """
    script, case = _SCRIPTS[args.shell]
    cases = [case.format(name, " ".join(found)) for name, found in make_parser([]).words()]
    script = script.replace("CASES", "\n".join(cases))
    emit(args, {"script": script}, *script.split("\n"))
    return 0


COMPLETION = OwnCommand(
    "print a script that completes commands, options and values in a shell",
    _print_script,
    option("shell", metavar="SHELL", choices=tuple(_SCRIPTS), help="bash, zsh or fish"),
)
