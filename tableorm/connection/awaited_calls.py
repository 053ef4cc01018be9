"""
Calls that must be awaited before their block ends. One that is not does nothing, and Python only warns of it.
"""

import inspect
from collections.abc import Callable, Coroutine
from functools import wraps
from types import CoroutineType
from typing import Any, Concatenate, ParamSpec, TypeVar

from ..errors import ModelError

_MAX_NOTED = 1_000  # calls that were begun together; further ones are not looked at


class AwaitsCalls:
    """A base of classes whose `awaited` calls belong to a block, which calls `_refuse_forgotten` when it ends."""

    def __init__(self) -> None:
        self._calls: list[CoroutineType[Any, Any, Any]] = []  # those that have not ended, and perhaps others

    def _note_call(self, call: "CoroutineType[Any, Any, Any]") -> None:
        calls = self._calls
        if len(calls) < _MAX_NOTED:
            calls.append(call)
        elif calls[0].cr_frame is None:
            self._calls = [*(each for each in calls if each.cr_frame is not None), call]

    def _refuse_forgotten(self, name: str) -> None:
        """
        Refuse calls that were never awaited.

        Args:
            name: What the object is usually called: "bulk".
        """
        forgotten = [call for call in self._calls if inspect.getcoroutinestate(call) == inspect.CORO_CREATED]
        for call in forgotten:
            call.close()
        if forgotten:
            verb = f"{name}.{forgotten[0].__name__}(...)"
            raise ModelError(f"{verb} was called without await, so it has written nothing; write `await {verb}`")


A = TypeVar("A", bound=AwaitsCalls)
P = ParamSpec("P")
R = TypeVar("R")


def awaited(
    verb: Callable[Concatenate[A, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[A, P], Coroutine[Any, Any, R]]:
    """Note the calls of a method, so that the end of the block refuses those that were not awaited."""

    @wraps(verb)
    def call(owner: A, /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        coroutine = verb(owner, *args, **kwargs)
        made: Any = coroutine
        calls = owner._calls  # pyright: ignore[reportPrivateUsage]
        if calls and calls[-1].cr_frame is None:  # it has ended: most calls are awaited before the next is made
            calls[-1] = made
        else:
            owner._note_call(made)  # pyright: ignore[reportPrivateUsage]
        return coroutine

    return call
