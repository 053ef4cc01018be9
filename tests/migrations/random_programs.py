"""
Programs that are drawn: what an operator and programs of both models do in the course of an online re-key.
"""

from typing import Literal

import attrs
from hypothesis import strategies as st

from tableorm.stores import Row
from tests.migrations.random_layouts import Layout, Values, extras

Who = Literal["older", "newer"]

VERBS = ("insert", "insert", "insert", "save", "save", "modify", "delete", "hold", "save held")
NEWER_VERBS = (*VERBS, "get", "refresh", "merge", "replace", "upsert", "transaction", "bulk")
OLDER_VERBS = (*VERBS, "raw", "blind")


@attrs.frozen(kw_only=True)
class Write:
    """
    A write of a program.

    Args:
        who: Which of the two models the program knows.
        verb: What it does.
        pick: Chooses the entity.
        values: What a new entity has, or what a present one gets.
        names: The fields that a present one gets.
        extra: The properties that neither model knows.
    """

    who: Who
    verb: str
    pick: int
    values: Values
    names: tuple[str, ...]
    extra: Row | None


@attrs.frozen(kw_only=True)
class Stage:
    """
    A step of the operator.

    Args:
        name: What is called: "move", "verify", "seal", "finalize" or "back".
        lives: How many requests each mover sends before it dies; None for one that ends.
        seed: In which order requests are sent, and what happens to them.
        faults: How many writes of the movers fail, between 0 and 1.
        meanwhile: What programs do at the same time.
    """

    name: str
    lives: tuple[int | None, ...]
    seed: int
    faults: float
    meanwhile: tuple[Write, ...]

    @property
    def ends(self) -> bool:
        """Whether nothing stops it."""
        return self.lives[0] is None and not self.faults


Step = Write | Stage


_WHO: st.SearchStrategy[Who] = st.sampled_from(("older", "newer"))


@st.composite
def _writes(draw: st.DrawFn, layout: Layout, who: Who | None = None) -> Write:
    by: Who = draw(_WHO) if who is None else who
    return Write(
        who=by,
        verb=draw(st.sampled_from(OLDER_VERBS if by == "older" else NEWER_VERBS)),
        pick=draw(st.integers(0, 7)),
        values=draw(layout.entities()),
        names=tuple(draw(st.lists(st.sampled_from(layout.changeable), max_size=3, unique=True))),
        extra=draw(st.none() | extras()),
    )


@st.composite
def programs(draw: st.DrawFn, layout: Layout) -> list[Step]:
    """Draw what is done with the entities of a layout, from the first ones to the end of the re-key or the way back."""

    def some(most: int, who: Who | None = None) -> list[Write]:
        return draw(st.lists(_writes(layout, who), max_size=most))

    first = draw(st.lists(_writes(layout, "older"), min_size=1, max_size=6))
    steps: list[Step] = [*(attrs.evolve(each, verb="insert") for each in first), *some(4)]
    path = draw(st.sampled_from([("move", "seal", "finalize"), ("move", "back"), ("move", "back", "move", "seal")]))
    for name in (*path, *(["finalize"] if path[-1] == "seal" else [])):
        who: Who | None = None if name in ("move", "back") else "newer"
        for _ in range(draw(st.sampled_from([0, 0, 1, 2]))):
            lives = draw(st.lists(st.integers(0, 60), min_size=1, max_size=2))
            faults = draw(st.sampled_from([0.0, 0.1, 0.4]))
            steps.append(_stage(draw, name, tuple(lives), faults, some(3, who)))
            steps += some(2, who)
        if name == "seal":
            steps.append(_stage(draw, "verify", (None,), 0, some(3)))
        steps.append(_stage(draw, name, draw(st.sampled_from([(None,), (None, None), (None, 9)])), 0, some(4, who)))
        steps += some(4, who)
    return steps


def _stage(draw: st.DrawFn, name: str, lives: tuple[int | None, ...], faults: float, writes: list[Write]) -> Stage:
    return Stage(name=name, lives=lives, seed=draw(st.integers(0, 9999)), faults=faults, meanwhile=tuple(writes))
