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


class AwaitedCalls(list["CoroutineType[Any, Any, Any]"]):
    """
    The `awaited` calls of an object that have not ended, and perhaps others. The object has them as `_calls`, and its
    block calls `refuse_forgotten` when it ends.
    """

    def note(self, call: "CoroutineType[Any, Any, Any]") -> None:
        """Add a call, in place of those that have ended."""
        if len(self) < _MAX_NOTED:
            self.append(call)
        elif self[0].cr_frame is None:
            self[:] = [*(each for each in self if each.cr_frame is not None), call]

    def refuse_forgotten(self, name: str) -> None:
        """
        Refuse calls that were never awaited.

        Args:
            name: What the object is usually called: "bulk".
        """
        forgotten = [call for call in self if inspect.getcoroutinestate(call) == inspect.CORO_CREATED]
        for call in forgotten:
            call.close()
        if forgotten:
            verb = f"{name}.{forgotten[0].__name__}(...)"
            raise ModelError(f"{verb} was called without await, so it has written nothing; write `await {verb}`")


P = ParamSpec("P")
R = TypeVar("R")


def awaited(
    verb: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]:
    """Note the calls of a method, so that the end of the block refuses those that were not awaited."""

    @wraps(verb)
    def call(owner: Any, /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        coroutine = verb(owner, *args, **kwargs)
        made: Any = coroutine
        calls: AwaitedCalls = owner._calls
        if calls and calls[-1].cr_frame is None:  # it has ended: most calls are awaited before the next is made
            calls[-1] = made
        else:
            calls.note(made)
        return coroutine

    return call
