"""
The parser of every command: one-line errors that name what could be meant, examples in the help, a URL that may be left
out, and the options of all commands.
"""

import inspect
import os
import re
import textwrap
from argparse import SUPPRESS, Action, ArgumentError, ArgumentParser, HelpFormatter, Namespace
from collections.abc import Iterable, Iterator, Sequence
from importlib.metadata import entry_points
from typing import Any, NoReturn

from ..database.connect import GROUP
from ..errors import near
from .output import report, show

URL = "TABLEORM_URL"
"""The variable with the URL of commands that are given none."""

_MISSING = "the following arguments are required: "  # what argparse says of them
_NAME = re.compile(r"[\w.$]+(:[\w.]+)?")  # of a table, a module or a model


class _Help(HelpFormatter):
    """A help formatter that keeps the lines of examples whole."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        wrap = textwrap.TextWrapper(width, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)
        return "\n".join(line if line.startswith(" ") else wrap.fill(line) for line in text.splitlines())


class CommandParser(ArgumentParser):
    """Parses the arguments of a command, or of a group of commands, which prints its help if none is given."""

    def __init__(self, **options: Any) -> None:
        super().__init__(allow_abbrev=False, conflict_handler="resolve", formatter_class=_Help, **options)
        self.color = False  # of Python 3.14, which prints escapes of its own
        # Suppressed when absent, or the default would overwrite the option before the command.
        self.add_argument("--json", action="store_true", default=SUPPRESS, help="print lines of JSON")
        self.add_argument("--traceback", action="store_true", default=SUPPRESS, help="show where an error comes from")
        self.set_defaults(parser=self)
        self._commands: Any = None
        self._given = set[Action]()

    def add_subparsers(self, **options: Any) -> Any:
        """Return what commands are added to."""
        self._commands = super().add_subparsers(**options)
        return self._commands

    def words(self) -> Iterator[tuple[str, list[str]]]:
        """Yield what can follow each command, its commands or choices and its options, and the choices of an option."""
        found = list[str]()
        for action in self._actions:
            if action.choices and not action.option_strings:
                found += action.choices
            elif action.choices:
                yield f"{self.prog} {action.option_strings[-1]}", [*action.choices]
        yield self.prog, found + [each for each in self._option_string_actions if each.startswith("--")]
        commands: dict[str, CommandParser] = self._commands.choices if self._commands else {}
        for parser in commands.values():
            yield from parser.words()

    def parse_known_args(self, *args: Any, **options: Any) -> Any:
        """Parse the arguments, the URL of the environment before them if they begin with none."""
        given: list[str] = list(args[0])
        if not given and self._commands:
            self.print_help()
            self.exit()
        # Argparse itself would only miss the command.
        if (
            self._commands
            and given[0].startswith("-")
            and given[0].partition("=")[0] not in self._option_string_actions
        ):
            self.error(f"unknown argument {self._suggest(given[0])}")
        if self.get_default("needs_url") and not {"-h", "--help"} & set(given):
            first, url = self._find_first(given), os.environ.get(URL, "")
            if first is None or not _is_url(first):
                if first and not url:
                    self.error(f"{first!r} is not a URL; give one first, such as local:./hr.tables, or set {URL}")
                given = [url, *given]
        return super().parse_known_args(given, *args[1:], **options)

    def parse_command(self, arguments: Sequence[str]) -> Namespace:
        """Parse the arguments of a command, and refuse those that it does not have by the names of those it has."""
        args = Namespace(json=False)
        _, unknown = self.parse_known_args(arguments, args)
        parser: CommandParser = args.parser
        if unknown:
            parser.error(f"unknown argument {parser._suggest(unknown[0])}")
        return args

    def error(self, message: str) -> NoReturn:
        """End with a line that says what is wrong."""
        if message.startswith(_MISSING):
            names = message.removeprefix(_MISSING)
            message = f"{names} {'are' if ', ' in names else 'is'} missing"
        name = self.prog.partition(" ")[2]
        report(f"{name}{name and ': '}{message}; see {self.prog} --help")
        self.exit(2)

    def _print_message(self, message: str, file: Any = None) -> None:
        for line in message.splitlines():
            show(line, {"bold": "^[a-z]+:$"}, file)

    def _check_value(self, action: Action, value: Any) -> None:
        # Argparse itself would take the last value of an option, and silently ignore those before.
        if action.option_strings and type(action) is self._registry_get("action", "store"):
            if action in self._given:
                raise ArgumentError(action, "it is given twice")
            self._given.add(action)
        if action.choices is not None and value not in action.choices:
            noun = "choice" if action.option_strings else str(action.metavar).lower()
            message = f"there is no {noun} {value!r}: {near(value, action.choices, noun)}"
            raise ArgumentError(action if action.option_strings else None, message)

    def _suggest(self, text: str) -> str:
        """Return a text with the option that may be meant."""
        # Other texts are not shown: they may be a connection string in the wrong place, with a key in it.
        if not text.startswith("-"):
            return f"{repr(text) + ': ' if _NAME.fullmatch(text) else ''}in the wrong place, or one too many"
        name = text.partition("=")[0]
        return f"{name!r}: {near(name, [each for each in self._option_string_actions if each[:2] == '--'], 'option')}"

    def _find_first(self, arguments: Iterable[str]) -> str | None:
        """Return the first of the arguments that is no option; None if all are."""
        given = iter(arguments)
        for text in given:
            if not text.startswith("-"):
                return text
            action = self._option_string_actions.get(text)
            if action is not None and action.nargs != 0:
                next(given, None)
        return None


def _is_url(text: str) -> bool:
    """Return whether an argument is a URL, and no table, module or model."""
    scheme, colon, _ = text.partition(":")
    return not _NAME.fullmatch(text) or (bool(colon) and scheme in entry_points(group=GROUP).names)


def add_command(choices: Any, name: str, command: Any) -> CommandParser:
    """Add a command to a group. Its help ends with the examples of its docstring, in front of which its name stands."""
    examples = (inspect.getdoc(command) or "").partition("Examples:\n")[2]
    choice: CommandParser = choices.add_parser(name, help=command.help, description=command.help)
    choice.epilog = examples and f"examples:\n{examples}".replace("ACTION", name)
    command.configure(choice)
    return choice
