"""
Messages in the words of the command line. Errors name the functions and arguments that programs call; people at the
prompt have commands and options instead.
"""

import re

# Each looks at a long word once: it begins where a word does, or ends at the next bracket.
_PHRASES = {
    r"^select_raw\(.*?\)\.where\(\)": "--where",
    r"^select_raw": "query",
    r"^PropertyBag: ": "",
    r"^<select\((\w+)\).*?>(?= would| is rejected|: )": r"the query of \1",
    # The call that a message begins with, and its first argument.
    r"^(?:run_)?(\w+?)(?:_rows|_table|_move)?\((.*?)\)(?= is rejected|: )": r"\1 \2",
    r"\(\)(?= works| needs)": "",
    r"^drop_periods": "drop-periods",
    r"^build_index": "migrate build-index",
    r"^connect (: )?": "",
    r"^(\w+ )?(\w+)=": r"\1--\2 ",
    r": blobs=": ": --delete-blobs ",
    # What a message advises.
    r"use connect\(url, encryption=.*?\)\)": "give --encryption MODULE:NAME",
    r"connect\(url, (\w+)=\.\.\.\)(, for example \w+=\0\d+\0)?": r"--\1 URL",
    r"or create it with tableorm\.connect\(\)": "or let `tableorm import` or `tableorm copy` create it",
    r"format=(?=\0)": "--format ",
    r"\b\w+=True(?: or (?=--)| \(the command: (.*?)\))": r"\1",
    r"\b\w+\.(\w+ [=>]= \.\.\.)": r"\1",
    r"(== \.\.\.), (?=\w+ ==)": r"\1 and ",
    r", to the query or the relation": "",
    r"\.where\(([^()]*)\)": r'"\1" to --where',
    r"conditions that determine one PartitionKey": "\"PartitionKey eq '...'\" to --where",
    r"\.allow_scan\([^()]*\)": "--all",
    r"db\.select\(([^()]*)\)": r"`query URL MODULE:\1`",
    r"db\.get_many\(keys\)": "`get`",
    r"db\.build_index\(([^()]*), no_older_writers=True\)": r"`migrate build-index URL MODULE:\1 --no-older-writers`",
    r"PropertyBag\.key\(([^(),]*), ([^(),]*), ([^(),]*)\)": r"`get URL \1 PartitionKey=\2 RowKey=\3`",
    r"PropertyBag (?=\()": "row ",
}
_QUOTED = re.compile(r"""(?<!\w)(['"])(?:\\.|(?!\1).)*\1(?!\w)""")
"""Values and names that a message shows, whatever they say."""


def in_options(message: str) -> str:
    """Return a message with commands and options in place of the calls and arguments that it names."""
    values: list[str] = []

    def hide(quoted: re.Match[str]) -> str:
        values.append(quoted[0])
        return f"\0{len(values) - 1}\0"

    message = _QUOTED.sub(hide, message)
    for phrase, words in _PHRASES.items():
        message = re.sub(phrase, words, message)
    return re.sub(r"\0(\d+)\0", lambda place: values[int(place[1])], message)
