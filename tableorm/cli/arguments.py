"""
What several commands share: arguments, and how they are parsed.
"""

import importlib
import inspect
import os
import re
import sys
from argparse import Action, ArgumentError, ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from importlib.machinery import PathFinder
from itertools import chain
from logging import ERROR, getLogger
from pathlib import Path
from traceback import extract_tb
from types import ModuleType
from typing import Any
from urllib.parse import urlsplit

from ..database.connect import connect, find_backend
from ..database.database import Database
from ..errors import AccessDenied, ModelError, NotSupported, TableNotFound, TableOrmError, near
from ..models.derivation import DerivationOf, IndexOf
from ..models.entity import Entity, schema_of
from ..shapes.encrypted import Encryption
from ..stores import RetryPolicy
from .output import report
from .parser import URL

_ENVIRONMENT = "TABLEORM"
_MODEL = re.compile(r"[\w.]+(:[\w.]+)?")
_TABLE = re.compile(r"\$?[A-Za-z][A-Za-z0-9]{2,62}")  # those of metrics begin with $
_OURS = Path(__file__).parents[1]
_NO_TOKEN = "the credential got no token"  # noqa: S105 - what the Azure backend says of a failed login
_RETRY = RetryPolicy(attempts=8)  # some seconds, since somebody waits at the prompt
_OWN_CREDENTIAL = re.compile(r"\?|(?:accountkey|sharedaccesssignature|usedevelopmentstorage)=", re.IGNORECASE)
_CREDENTIALS = ("key", "sas")


Argument = Callable[[ArgumentParser], object]
"""Declares an argument in the parser of a command."""


class OwnCommand:
    """
    A command that is a function.

    Args:
        help: The line that `tableorm --help` shows.
        run: Runs it, as `Command.run` does. Its docstring ends with examples for the help.
        arguments: Its arguments, in order.
    """

    def __init__(
        self,
        help: str,  # noqa: A002 - as argparse calls it
        run: Callable[[Namespace], int | Coroutine[Any, Any, int]],
        *arguments: Argument,
    ) -> None:
        self.help, self.run, self._arguments = help, run, arguments
        self.__doc__ = run.__doc__

    def configure(self, parser: ArgumentParser) -> None:
        """Declare the arguments."""
        for declare in self._arguments:
            declare(parser)


def option(*names: str, **options: Any) -> Argument:
    """Return an argument; see `ArgumentParser.add_argument`."""
    return lambda parser: parser.add_argument(*names, **options)


def flag(name: str, what: str) -> Argument:
    """Return an option without a value."""
    return option(name, action="store_true", help=what)


def count(name: str, what: str, default: int | None = None) -> Argument:
    """Return an option that is a whole number from 1 up."""
    return option(name, metavar="N", type=_parse_count, default=default, help=what)


def number(
    noun: str, least: int, most: float = sys.float_info.max, kind: type[int | float] = int
) -> Callable[[str], Any]:
    """
    Return what parses a number of the command line.

    Args:
        noun: What it is, for the message that rejects another text.
        least: The smallest such number.
        most: The largest one; infinity and NaN are none.
        kind: Its type.
    """

    def parse(text: str) -> Any:
        with suppress(ValueError):
            # `int` would also take "1_0" and " 5 ".
            if (kind is float or text.isdecimal()) and least <= kind(text) <= most:
                return kind(text)
        raise ArgumentTypeError(f"{text!r} is not {noun}")

    return parse


_parse_count = number("a whole number from 1 up", 1)
parse_port = number("a port, 0 to 65535", 0, 65535)
"""Returns a port to listen at; 0 for any that is free."""


def resume(how: str) -> Argument:
    """Return what sets the line that Ctrl-C prints."""
    return lambda parser: parser.set_defaults(resume=how)


# From names to what they name


def parse_table(text: str) -> str:
    """Return the name of a table that a command-line argument gives."""
    if not _TABLE.fullmatch(text):
        # What has another form is not shown: it may be a connection string in the wrong place, with a key in it.
        raise ArgumentTypeError(
            "this is not the name of a table, 3 to 63 letters and digits; give URL and TABLE next to each other"
        )
    return text


def find_targets(module: str, *kinds: type) -> list[Any]:
    """
    Return the models and the like of a module, those that it imports included; each once.

    Args:
        module: Its name; modules in the working directory are found, as by `python -m`.
        kinds: Classes whose subclasses and instances are meant.

    Raises:
        TableOrmError: The module cannot be imported.
        ModelError: It has none.
    """
    found = [each for each in vars(_import(module)).values() if _is_target(each, kinds)]
    if not found:
        raise ModelError(f"{module!r} has no models; name the module that declares or imports them")
    return _once(found)


def _once(found: Iterable[Any]) -> list[Any]:
    return list({id(each): each for each in found}.values())


def _import(module: str) -> ModuleType:
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        return importlib.import_module(module)
    except (Exception, SystemExit) as error:
        # No ModelError, which argparse takes for wrong usage, as it is a TypeError.
        raise TableOrmError(f"{module!r} cannot be imported: {_describe(error)}") from error


def _describe(error: BaseException) -> str:
    """Return what is wrong with a module, and in which of its lines."""
    ours = str(_OURS), "<", importlib.__path__[0]
    theirs = [each for each in extract_tb(error.__traceback__) if not each.filename.startswith(ours)]
    place = "".join(f" ({os.path.relpath(each.filename)}, line {each.lineno})" for each in theirs[-1:])
    return f"{type(error).__name__}: {error}{place}"


def _is_target(found: Any, kinds: tuple[type, ...]) -> bool:
    if isinstance(found, type):
        return issubclass(found, kinds) and found not in kinds and not issubclass(found, DerivationOf)
    return isinstance(found, kinds) and not isinstance(found, Entity)


def parse_target(text: str) -> Any:
    """Return the name of a table, or the model or index that an argument names."""
    if ":" in text:
        return load_targets(text, Entity, IndexOf)[0]
    if all(map(str.isidentifier, text.split("."))) and not _TABLE.fullmatch(text):
        raise ArgumentTypeError(f"{text!r} is not the name of a table; for a model write MODULE:MODEL")
    return parse_table(text)


def load_targets(text: str, *kinds: type, left_out: set[type] | None = None) -> list[Any]:
    """
    Return what `module:Model` names, or all that a module alone has but for abstract models.

    Args:
        text: The argument.
        kinds: Classes whose subclasses and instances are meant.
        left_out: If given, a module alone means its models without a table for each period. The others are added to
            this set, and reported if they are not in it yet.

    Raises:
        ArgumentTypeError: The argument is none of these.
        TableOrmError: The module cannot be imported.
    """
    if not _MODEL.fullmatch(text):
        # What has another form is not shown: it may be a connection string in the wrong place, with a key in it.
        raise ArgumentTypeError("the argument is not a model; give MODULE:MODEL, such as hr.models:Employee")
    module, _, name = text.partition(":")
    try:
        if not name:
            return [each for each in find_targets(module, *kinds) if _is_meant(each, left_out)]
        target: Any = _import(module)
        for part in name.split("."):
            target = _find_member(target, part, kinds)
    except ModelError as error:
        raise ArgumentTypeError(f"{text!r} cannot be loaded: {error}") from error
    if not _is_target(target, kinds):
        raise ArgumentTypeError(f"{text!r} is not a model, but {target!r}")
    return [target]


def _is_meant(target: Any, left_out: set[type] | None) -> bool:
    """Return whether the name of its module means a target; see `load_targets`."""
    if not (isinstance(target, type) and issubclass(target, Entity)):
        return True
    schema = schema_of(target)
    if schema.abstract or left_out is None or schema.periods is None:
        return not schema.abstract
    if target not in left_out:
        left_out.add(target)
        report(f"{target.__name__} is left out: it has a table for each period", "dim")
    return False


def _find_member(holder: Any, name: str, kinds: tuple[type, ...]) -> Any:
    """Return a member of a module or a class. Raises ModelError, with the members that could be meant."""
    if hasattr(holder, name):
        return getattr(holder, name)
    known = [each for each in dir(holder) if _is_target(getattr(holder, each, None), kinds)]
    raise ModelError(f"{holder.__name__} has no attribute {name!r}: {near(name, known, 'name')}")


class _StoreModels(Action):
    """Stores the models that several arguments name, each once."""

    def __call__(self, _: object, namespace: Namespace, values: Any, __: object = None) -> None:
        found = _once(chain.from_iterable(values))
        if values and not found:
            raise ArgumentError(None, "no model is left; name others")
        setattr(namespace, self.dest, found)


# Arguments that several commands have


def _url(name: str, what: str, metavar: str = "URL") -> Argument:
    return option(name, metavar=metavar, type=_parse_url, help=what)


def _parse_url(text: str) -> str:
    """Return the URL that a command-line argument or the environment gives; refuse the empty one of neither."""
    if not text:
        raise ArgumentTypeError(f"it is missing; give it first, such as local:./hr.tables, or set {URL}")
    return text


def _load_encryption(text: str) -> Encryption:
    """Return the keys that `module:name` names."""
    module, _, name = text.partition(":")
    found: Any = getattr(_import(module), name, None)
    try:
        found = found() if inspect.isfunction(found) else found
    except TableOrmError as error:
        raise ArgumentTypeError(f"{text!r} cannot be loaded: {error}") from error
    if not isinstance(found, Encryption):
        raise ArgumentTypeError(f"{text!r} is not an Encryption, nor a function that returns one")
    return found


DATABASE: tuple[Argument, ...] = (
    lambda parser: parser.set_defaults(needs_url=True),
    _url("url", f"what to open, as for tableorm.connect: local:./hr.tables; default: ${URL}"),
    _url("--queues", "where the queues are, if elsewhere"),
    _url("--blobs", "where the blobs are, if elsewhere"),
    option(
        "--encryption",
        metavar="MODULE:NAME",
        type=_load_encryption,
        help="the Encryption with the keys of encrypted fields, or a function that returns it: hr.keys:encryption",
    ),
    option("--prefix", default="", help="prefix of all table names, as for tableorm.connect"),
)
"""Which database to open."""

SOURCE_AND_TARGET = (
    _url("url", "what to read, as for tableorm.connect", "FROM"),
    _url("target", "what to write to; a missing file is created", "TO"),
    option("--prefix", default="", help="prefix of all table names in FROM"),
    option("--to-prefix", metavar="PREFIX", default="", help="prefix of all table names in TO"),
    _url("--blobs", "where the blobs of FROM are, if elsewhere"),
    _url("--to-blobs", "where those of TO are, if elsewhere"),
)
"""Which two databases to open."""

NAME = option("--name", metavar="NAME", help="name of the run, the same for all processes that share it")
"""The name of a shared run."""

TABLE = option("table", metavar="TABLE", type=parse_table, help="name of the table")
"""The table that a command is for."""

TABLES = option("tables", metavar="TABLE", nargs="+", type=parse_table, help="name of a table")
"""The tables that a command is for, as the last arguments."""

ANY_TABLES = option(
    "tables", metavar="TABLE", nargs="*", default=[], type=parse_table, help="name of a table; all if none is given"
)
"""Likewise, where none means all."""


def models(*others: type, plain_tables: bool = False, optional: bool = False) -> Argument:
    """
    Return the models that a command is for, as the last arguments.

    Args:
        others: Classes of which the command takes subclasses and instances too.
        plain_tables: Whether models with a table for each period are left out; see `load_targets`.
        optional: Whether there may be none.
    """

    def declare(parser: ArgumentParser) -> None:
        left_out = set[type]() if plain_tables else None
        parser.add_argument(
            "models",
            metavar="MODULE[:MODEL]",
            nargs="*" if optional else "+",
            default=[],
            type=lambda text: load_targets(text, Entity, *others, left_out=left_out),
            action=_StoreModels,
            help="such as hr.models:Employee; a module by itself means all of its models, including those it imports"
            + (", except those with a table for each period" if plain_tables else ""),
        )

    return declare


def shared_run(parallel: int = 8) -> tuple[Argument, ...]:
    """Return the arguments of jobs that processes share, with how many ranges they work on if not told."""
    return (
        resume("the same command resumes where it stopped"),
        count("--parallel", f"number of key ranges to process in parallel; default: {parallel}", parallel),
        count("--rate", "process at most N rows per second"),
        option(
            "--lease",
            metavar="SECONDS",
            type=_parse_count,
            default=30,
            help="if this process dies, others take over after this many seconds; default: 30",
        ),
    )


def state(what: str) -> tuple[Argument, ...]:
    """Return the file that keeps how far something got."""
    return (
        resume("with --name or --state, the same command resumes where it stopped"),
        option(
            "--state", metavar="FILE", type=Path, help=f"file that saves progress, so that a later {what} can resume"
        ),
    )


JOB = (*DATABASE, models(plain_tables=True), NAME, *shared_run())
"""The arguments of a job on the rows of models, which processes share under a name."""


def run_options(args: Namespace) -> dict[str, Any]:
    """Return what `shared_run` and `NAME` declare as the arguments of a function."""
    return pick(args, "parallel", "rate", "lease", *(["name"] if "name" in args else []))


def pick(args: Namespace, *names: str) -> dict[str, Any]:
    """Return some arguments by name, for a function that calls them the same."""
    return {name: getattr(args, name) for name in names}


# Opening what they name


def open_target(args: Namespace) -> AbstractAsyncContextManager[Database]:
    """Open the database that is written to, with the credential in the variables TABLEORM_TO_KEY or TABLEORM_TO_SAS."""
    place = Namespace(url=args.target, blobs=args.to_blobs, prefix=args.to_prefix)
    return open_existing(place, f"{_ENVIRONMENT}_TO", create=True)


@asynccontextmanager
async def open_existing(
    args: Namespace, environment: str = _ENVIRONMENT, *, create: bool = False
) -> AsyncGenerator[Database]:
    """
    Open the database that the arguments name with the credential that the environment gives.

    Args:
        args: The arguments.
        environment: What the names of the variables begin with.
        create: Whether to create a file that does not exist.

    Raises:
        NotSupported: There are two credentials, nothing opens such a URL, or queues or blobs at another host would get
            the credential of the database.
    """
    local = args.url.startswith("local:")
    # A mistyped path must not become an empty database.
    options: dict[str, Any] = {"create": create} if local else {}
    variables = {name: f"{environment}_{name.upper()}" for name in _CREDENTIALS}
    # What stands beside the URL of the environment belongs to it: another host must not get that token.
    if not local and args.url == (os.environ.get(f"{environment}_URL") or args.url):
        options |= {name: os.environ[variable] for name, variable in variables.items() if os.environ.get(variable)}
    async with AsyncExitStack() as opened:
        find_credential: Callable[[str], Any] = getattr(find_backend(args.url), "find_credential", lambda _: None)
        credential = None if options else find_credential(args.url)
        for name in ("queues", "blobs", "encryption"):
            value = getattr(args, name, None)  # a copy and a re-key open a database for rows alone
            if value is None:
                continue
            # The identity of the machine is for all hosts of Azure.
            is_known = name == "encryption" or (credential and find_credential(value))
            if not is_known and _shares_credential(args.url, value):
                raise NotSupported(
                    f"--{name} names another host than the database's, which must not get the credential of that; give "
                    "a connection string, or a URL with a shared access signature"
                )
            options[name] = value
        if credential is not None:
            # Its warnings are pages about each kind of login that failed.
            getLogger("azure.identity").setLevel(ERROR)
            options["credential"] = await opened.enter_async_context(credential)
        try:
            db = connect(args.url, prefix=args.prefix, retry=_RETRY, **options)
        except TypeError as error:
            given = ", ".join(f"{name} is {variable}" for name, variable in variables.items())
            raise NotSupported(f"{error} ({given})") from error
        try:
            await opened.enter_async_context(db)
            yield db
        except TableNotFound as error:
            names = [] if create else await db.tables()
            if not error.table or error.table in names:
                raise
            name = error.table.removeprefix(args.prefix)
            is_module = name == getattr(args, "target", None) and PathFinder.find_spec(name, ["", *sys.path])
            hint = f"for a model write {name}:MODEL" if is_module else near(name, names, "table")
            raise TableNotFound(f"there is no table {name!r}; {hint}", error.code, name) from error
        except AccessDenied as error:
            if credential is None or _NO_TOKEN not in str(error):
                raise
            raise AccessDenied(
                "nobody is logged in to Azure here; run `az login`, or set "
                f"{' or '.join(variables.values())} beside {environment}_URL",
                error.code,
            ) from error


def _shares_credential(url: str, place: str) -> bool:
    """Return whether queues or blobs at another host than a database would be opened by its credential."""
    if find_backend(place) is not find_backend(url) or place.startswith("local:") or _OWN_CREDENTIAL.search(place):
        return False
    host = urlsplit(place).hostname
    return host is None or host != urlsplit(url).hostname
