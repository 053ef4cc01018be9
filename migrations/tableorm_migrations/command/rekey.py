"""
The actions that give the entities of a model other keys: `tableorm migrate plan`, `move`, `verify`, `seal`, `finalize`
and `rollback`.
"""

import argparse
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import attrs

from tableorm import Database, Entity, NotSupported
from tableorm.cli import Command
from tableorm.cli.arguments import (
    DATABASE,
    OwnCommand,
    count,
    flag,
    models,
    open_existing,
    option,
    pick,
    run_options,
    shared_run,
)
from tableorm.cli.output import emit
from tableorm.cli.progress import print_report
from tableorm.jobs.report import RunReport
from tableorm.rekey.rekeying import rekeying_of

from ..rekey.offline import roll_back_rekey, run_rekey
from ..rekey.online import finalize_move, roll_back_move, run_move, seal_move, verify_move
from ..rekey.plan import plan_rekey
from ..rekey.verify import finalize_rekey, verify_rekey
from .bars import show_run


async def _plan(args: argparse.Namespace) -> int:
    """
    `tableorm migrate plan URL MODULE:MODEL` prints what a re-key will read and write, and what prevents it. The
    exit status is 1 if something does.

    Examples:
        tableorm migrate plan local:./hr.tables hr.models:Employee
        tableorm migrate plan local:./hr.tables hr.models:Employee --full
    """
    new = _find_model(args)
    old = _older(new)
    async with open_existing(args) as db, _open_target(args) as target:
        plan = await plan_rekey(
            db,
            old,
            new,
            target=target,
            online=not args.offline,
            **pick(args, "full", "sample", "rejected"),
        )
    lines, values = str(plan).split("\n"), plan.to_dict()
    if args.request_price is not None:
        values["cost"] = plan.cost(request_price=args.request_price)
        lines.append(f"  cost of the requests: {values['cost']:.2f}")
    if args.requests_per_second is not None:
        values["seconds"] = plan.seconds(requests_per_second=args.requests_per_second)
        lines.append(f"  time: {values['seconds']:.0f} s")
    emit(args, values, *lines)
    return 0 if plan.complete else 1


class _Flag(NamedTuple):
    """
    An option of an action.

    Args:
        option: The option.
        what: What it says.
        offline: Whether it is for a re-key while nobody writes, or for one while programs go on; None for both.
        argument: The argument of the function that it gives, and its value; None for that of its name, as True.
    """

    option: str
    what: str
    offline: bool | None
    argument: tuple[str, str] | None = None


@attrs.frozen(kw_only=True)
class _RekeyAction:
    """
    `tableorm migrate ACTION URL MODULE:MODEL` does a step of a re-key as a shared run, and shows its progress. The exit
    status is 1 if something differs, could not be moved, or had to stay.

    Args:
        help: What it does.
        online: Does it while programs go on.
        offline: Does it while nobody writes; None if that has no such step.
        flags: Its own options.
        parallel: How many ranges it works on if not told.

    Examples:
        tableorm migrate ACTION local:./hr.tables hr.models:Employee
    """

    help: str
    online: Callable[..., Awaitable[RunReport]]
    offline: Callable[..., Awaitable[RunReport]] | None = None
    flags: Sequence[_Flag] = ()
    parallel: int = 8

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Declare the arguments."""
        offline = () if self.offline is None else _OFFLINE
        flags = [flag(each.option, each.what) for each in self.flags]
        for declare in (*DATABASE, models(), *offline, *shared_run(self.parallel), *flags):
            declare(parser)

    async def run(self, args: argparse.Namespace) -> int:
        """Do it, show its progress, and print what was done."""
        async with open_existing(args) as db, _open_target(args) as target:
            options = run_options(args) | ({} if target is None else {"target": target})
            offline = self.offline if "offline" in args and args.offline else None
            for each in self.flags:
                name = each.option.removeprefix("--").replace("-", "_")
                if getattr(args, name) and each.offline in (None, offline is not None):
                    argument, value = each.argument or (name, True)
                    options[argument] = value
            model = _find_model(args)
            both = (model,) if offline is None else (_older(model), model)
            report = await (offline or self.online)(db, *both, on_progress=show_run(args), **options)
        return print_report(report, args)


_OFFLINE = (
    flag("--offline", "nobody writes meanwhile, and nobody reads the new keys"),
    option("--target", metavar="URL", help="with --offline: the database that gets the entities, if it is another one"),
)

REKEY_ACTIONS: dict[str, Command] = {
    "plan": OwnCommand(
        "print what a re-key of a model with moved_from= will do, and what prevents it",
        _plan,
        *DATABASE,
        models(),
        *_OFFLINE,
        flag("--full", "read all entities, which takes memory for each"),
        count("--sample", "how many entities to read otherwise; 10000 if not given", 10_000),
        option(
            "--rejected",
            metavar="FILE",
            type=Path,
            help="write a line of JSON for each entity that cannot be converted or collides",
        ),
        option("--request-price", metavar="PRICE", type=float, help="of 10,000 requests, to print the cost"),
        count("--requests-per-second", "of all processes, to print the time it takes"),
    ),
    "move": _RekeyAction(
        help="give the entities of a model with moved_from= their newer keys",
        online=run_move,
        offline=run_rekey,
        flags=(
            _Flag("--no-blind-writers", "say that no program of the older model alone writes without an ETag", False),
            _Flag("--writers-stopped", "with --offline: say that no program writes these models", True),
            _Flag(
                "--skip-collisions",
                "go on after two entities of one key; both stay as they are",
                None,
                ("on_collision", "skip"),
            ),
        ),
        parallel=32,
    ),
    "verify": _RekeyAction(
        help="compare the entities of both models of a re-key", online=verify_move, offline=verify_rekey
    ),
    "seal": _RekeyAction(
        help="verify a re-key again, and end all reads of the older keys",
        online=seal_move,
        flags=(_Flag("--no-old-programs", "say that no program of the older model alone is left", False),),
    ),
    "finalize": _RekeyAction(
        help="delete what a re-key has left at the older keys", online=finalize_move, offline=finalize_rekey
    ),
    "rollback": _RekeyAction(
        help="give the entities of a re-key their older keys again, unless it is sealed",
        online=roll_back_move,
        offline=roll_back_rekey,
        flags=(
            _Flag(
                "--no-new-programs",
                "with --offline: say that no program of the newer model is left, and none that copies",
                True,
            ),
            _Flag(
                "--delete-changed",
                "with --offline: delete also entities of the newer model that are not what the older ones give",
                True,
                ("on_difference", "delete"),
            ),
        ),
    ),
}
"""The actions of re-keys, by name."""


def _find_model(args: argparse.Namespace) -> type[Entity]:
    """
    Return the newer model.

    Raises:
        NotSupported: No model was named that says in `moved_from=` what the older one is.
    """
    found: list[type[Entity]] = [each for each in args.models if rekeying_of(each.__schema__) is not None]
    if len(found) != 1:
        raise NotSupported(f"give one model with moved_from=, as MODULE:MODEL; {len(found)} were found")
    return found[0]


def _older(model: type[Entity]) -> type[Entity]:
    """Return the model whose entities a model takes over."""
    rekeying = rekeying_of(model.__schema__)
    assert rekeying is not None
    older: Any = rekeying.old.model
    found: type[Entity] = older
    return found


@asynccontextmanager
async def _open_target(args: argparse.Namespace) -> AsyncGenerator[Database | None]:
    """Open the database that gets the entities; None if it is the same."""
    if getattr(args, "target", None) is None:
        yield None
        return
    if not args.offline:
        raise NotSupported("--target is rejected: entities go to another database only with --offline")
    place = argparse.Namespace(url=args.target, prefix=args.prefix)
    async with open_existing(place) as target:
        yield target
