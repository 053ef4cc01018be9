"""
The actions that give the entities of a model other keys: `tableorm migrate plan`, `move`, `verify`, `seal`, `finalize`
and `rollback`.
"""

import argparse
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

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
    shared_run,
)
from tableorm.cli.output import emit
from tableorm.cli.progress import run_job
from tableorm.jobs.report import RunReport
from tableorm.rekey.rekeying import rekeying_of

from ..rekey.offline import roll_back_rekey, run_rekey
from ..rekey.online import finalize_move, roll_back_move, run_move, seal_move, verify_move
from ..rekey.plan import plan_rekey
from ..rekey.verify import finalize_rekey, verify_rekey


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
    emit(args, values, *lines, wrap=True)
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


_OFFLINE = (
    flag("--offline", "confirm that nobody writes in the meantime, or reads the new keys"),
    option(
        "--target", metavar="URL", help="with --offline: the database that receives the entities, if it's another one"
    ),
)


def _step(
    help_text: str,
    online: Callable[..., Awaitable[RunReport]],
    offline: Callable[..., Awaitable[RunReport]] | None = None,
    *flags: _Flag,
    parallel: int = 8,
) -> Command:
    """
    Return the action that does a step of a re-key.

    Args:
        help_text: What it does.
        online: Does it while programs go on.
        offline: Does it while nobody writes; None if that has no such step.
        flags: Its own options.
        parallel: How many ranges it works on if not told.
    """

    async def run(args: argparse.Namespace) -> int:
        """
        `tableorm migrate ACTION URL MODULE:MODEL` does a step of a re-key as a shared run, and shows its progress. The
        exit status is 1 if something differs, could not be moved, or had to stay.

        Examples:
            tableorm migrate ACTION local:./hr.tables hr.models:Employee
        """
        async with _open_target(args) as target:
            options: dict[str, object] = {} if target is None else {"target": target}
            is_offline = "offline" in args and args.offline
            for each in flags:
                name = each.option.removeprefix("--").replace("-", "_")
                if getattr(args, name) and each.offline in (None, is_offline):
                    argument, value = each.argument or (name, True)
                    options[argument] = value
            model = _find_model(args)
            both = (_older(model), model) if is_offline else (model,)
            work = offline if is_offline and offline else online
            return await run_job(args, work, *both, **options)

    own = (flag(each.option, each.what) for each in flags)
    return OwnCommand(help_text, run, *DATABASE, models(), *(_OFFLINE if offline else ()), *shared_run(parallel), *own)


REKEY_ACTIONS: dict[str, Command] = {
    "plan": OwnCommand(
        "print what a re-key of a model with moved_from= will do, and what prevents it",
        _plan,
        *DATABASE,
        models(),
        *_OFFLINE,
        flag("--full", "read all entities, which takes memory for each"),
        count("--sample", "otherwise, read about N entities; default: 10000", 10_000),
        option(
            "--rejected",
            metavar="FILE",
            type=Path,
            help="write a line of JSON for each entity that cannot be converted or collides",
        ),
        option("--request-price", metavar="PRICE", type=float, help="price of 10,000 requests; prints the cost"),
        count("--requests-per-second", "rate of all processes; prints the time it takes"),
    ),
    "move": _step(
        "give the entities of a model with moved_from= their newer keys",
        run_move,
        run_rekey,
        _Flag(
            "--no-blind-writers",
            "confirm that no program that has only the older model writes without an ETag",
            False,
        ),
        _Flag("--writers-stopped", "with --offline: confirm that no program writes these models", True),
        _Flag(
            "--skip-collisions",
            "continue when two entities have the same key; both stay as they are",
            None,
            ("on_collision", "skip"),
        ),
        parallel=32,
    ),
    "verify": _step("compare the entities of both models of a re-key", verify_move, verify_rekey),
    "seal": _step(
        "verify a re-key again, and end all reads of the older keys",
        seal_move,
        None,
        _Flag("--no-old-programs", "confirm that no program is left that has only the older model", False),
    ),
    "finalize": _step("delete what a re-key has left at the older keys", finalize_move, finalize_rekey),
    "rollback": _step(
        "give the entities of a re-key their older keys again, unless it is sealed",
        roll_back_move,
        roll_back_rekey,
        _Flag(
            "--no-new-programs",
            "with --offline: confirm that no program of the newer model is left, and none that copies",
            True,
        ),
        _Flag(
            "--delete-changed",
            "with --offline: also delete entities of the newer model that are not what the older ones give",
            True,
            ("on_difference", "delete"),
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
