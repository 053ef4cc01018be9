"""
The actions that give the entities of a model other keys: `tableorm migrate plan`, `move`, `verify`, `seal`, `finalize`
and `rollback`.
"""

import argparse
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import attrs

from tableorm import Database, Entity, NotSupported
from tableorm.cli import Command
from tableorm.cli.arguments import add_count, add_database, add_flag, add_models, add_run, open_existing, run_options
from tableorm.cli.output import emit
from tableorm.jobs.report import RunReport
from tableorm.rekey.rekeying import rekeying_of

from ..rekey.finalize import finalize_rekey
from ..rekey.offline import run_rekey
from ..rekey.online import finalize_move, roll_back_move, run_move, seal_move, verify_move
from ..rekey.plan import plan_rekey
from ..rekey.rollback import roll_back_rekey
from ..rekey.verify import verify_rekey
from .bars import print_run, show_run


class _PlanAction:
    """
    `tableorm migrate plan URL MODULE:MODEL` prints what a re-key will read and write, and what stands against it. The
    exit status is 1 if something does.

    Examples:
        tableorm migrate plan local:./hr.tables hr.models:Employee
        tableorm migrate plan local:./hr.tables hr.models:Employee --full
    """

    help = "print what a re-key of a model with moved_from= will do, and what stands against it"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Declare the arguments."""
        add_database(parser)
        add_models(parser)
        _add_offline(parser)
        add_flag(parser, "--full", "read all entities, which takes memory for each")
        add_count(parser, "--sample", "how many entities to read otherwise; 10000 if not given", 10_000)
        parser.add_argument(
            "--rejected",
            metavar="FILE",
            type=Path,
            help="write a line of JSON for each entity that cannot be converted or collides",
        )
        parser.add_argument(
            "--request-price", metavar="PRICE", type=float, help="of 10,000 requests, to print the cost"
        )
        add_count(parser, "--requests-per-second", "of all processes, to print the time it takes")

    async def run(self, args: argparse.Namespace) -> int:
        """Print it."""
        new = _find_model(args)
        old = _older(new)
        async with open_existing(args) as db, _open_target(args) as target:
            plan = await plan_rekey(
                db,
                old,
                new,
                target=target,
                online=not args.offline,
                full=args.full,
                sample=args.sample,
                rejected=args.rejected,
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


@attrs.frozen(kw_only=True)
class _RekeyAction:
    """
    `tableorm migrate ACTION URL MODULE:MODEL` does a step of a re-key as a shared run, and shows its progress. The exit
    status is 1 if something differs, could not be moved, or had to stay.

    Args:
        help: What it does.
        call: Does it.
        flags: Its own arguments, each with what it says.
        offline: Whether it can be done while nobody writes.
        parallel: How many ranges it works on if not told.

    Examples:
        tableorm migrate ACTION local:./hr.tables hr.models:Employee
    """

    help: str
    call: Callable[..., Awaitable[RunReport]]
    flags: Mapping[str, str] = attrs.Factory(dict[str, str])
    offline: bool = True
    parallel: int = 8

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Declare the arguments."""
        add_database(parser)
        add_models(parser)
        if self.offline:
            _add_offline(parser)
        add_run(parser, self.parallel)
        for flag, what in self.flags.items():
            add_flag(parser, flag, what)

    async def run(self, args: argparse.Namespace) -> int:
        """Do it, show its progress, and print what was done."""
        async with open_existing(args) as db, _open_target(args) as target:
            options = run_options(args) | ({} if target is None else {"target": target})
            report = await self.call(args, db, _find_model(args), on_progress=show_run(args), **options)
        return print_run(args, report)


def _move(args: argparse.Namespace, db: Database, model: type[Entity], **options: Any) -> Awaitable[RunReport]:
    on_collision: Literal["stop", "skip"] = "skip" if args.skip_collisions else "stop"
    if args.offline:
        stopped: bool = args.writers_stopped
        return run_rekey(db, _older(model), model, writers_stopped=stopped, on_collision=on_collision, **options)
    return run_move(db, model, no_blind_writers=args.no_blind_writers, on_collision=on_collision, **options)


def _verify(args: argparse.Namespace, db: Database, model: type[Entity], **options: Any) -> Awaitable[RunReport]:
    return verify_rekey(db, _older(model), model, **options) if args.offline else verify_move(db, model, **options)


def _seal(args: argparse.Namespace, db: Database, model: type[Entity], **options: Any) -> Awaitable[RunReport]:
    return seal_move(db, model, no_old_programs=args.no_old_programs, **options)


def _finalize(args: argparse.Namespace, db: Database, model: type[Entity], **options: Any) -> Awaitable[RunReport]:
    return finalize_rekey(db, _older(model), model, **options) if args.offline else finalize_move(db, model, **options)


def _roll_back(args: argparse.Namespace, db: Database, model: type[Entity], **options: Any) -> Awaitable[RunReport]:
    if not args.offline:
        return roll_back_move(db, model, **options)
    return roll_back_rekey(
        db,
        _older(model),
        model,
        no_new_programs=args.no_new_programs,
        on_difference="delete" if args.delete_changed else "keep",
        **options,
    )


REKEY_ACTIONS: dict[str, Command] = {
    "plan": _PlanAction(),
    "move": _RekeyAction(
        help="give the entities of a model with moved_from= their newer keys",
        call=_move,
        flags={
            "--no-blind-writers": "say that no program of the older model alone writes without an ETag",
            "--writers-stopped": "with --offline: say that no program writes these models",
            "--skip-collisions": "go on after two entities of one key; both stay as they are",
        },
        parallel=32,
    ),
    "verify": _RekeyAction(help="compare the entities of both models of a re-key", call=_verify),
    "seal": _RekeyAction(
        help="verify a re-key again, and let nobody look at the older keys any more",
        call=_seal,
        flags={"--no-old-programs": "say that no program of the older model alone is left"},
        offline=False,
    ),
    "finalize": _RekeyAction(help="delete what a re-key has left at the older keys", call=_finalize),
    "rollback": _RekeyAction(
        help="give the entities of a re-key their older keys again, unless it is sealed",
        call=_roll_back,
        flags={
            "--no-new-programs": "with --offline: say that no program of the newer model is left, and none that copies",
            "--delete-changed": "with --offline: delete also entities of the newer model that are not what the older "
            "ones give",
        },
    ),
}
"""The actions of re-keys, by name."""


def _add_offline(parser: argparse.ArgumentParser) -> None:
    add_flag(parser, "--offline", "nobody writes meanwhile, and nobody reads the new keys")
    parser.add_argument(
        "--target", metavar="URL", help="with --offline: the database that gets the entities, if it is another one"
    )


def _find_model(args: argparse.Namespace) -> type[Entity]:
    """
    Return the newer model.

    Raises:
        NotSupported: No model was named that says in `moved_from=` what the older one is.
    """
    models: list[type[Entity]] = [each for each in args.models if rekeying_of(each.__schema__) is not None]
    if len(models) != 1:
        raise NotSupported(f"give one model with moved_from=, as MODULE:MODEL; {len(models)} were found")
    return models[0]


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
    place = argparse.Namespace(url=args.target, queues=None, blobs=None, prefix=args.prefix)
    async with open_existing(place) as target:
        yield target
