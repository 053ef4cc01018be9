"""
What programs use in `async with`, and what they do not await. An error says what to write instead.
"""

from functools import partial
from types import FunctionType
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast

from ..errors import ModelError

C = TypeVar("C", bound=type[Any])


def give_methods(helper: type[Any], cls: C) -> C:
    """
    Give a class its own copies of the methods of a helper, which only say what to write instead, and return it.

    The helper is no base: a checker finds these mistakes by itself, and shall go on to find them, and `help` shows
    users no class that they cannot use.
    """
    for name, method in vars(helper).items():
        if isinstance(method, FunctionType):
            own = FunctionType(method.__code__, method.__globals__)
            own.__module__, own.__qualname__ = cls.__module__, f"{cls.__qualname__}.{name}"
            setattr(cls, name, own)
    return cls


class _AsyncOnly:
    """Methods of classes that work in `async with`, and neither in `with` nor in `await`."""

    def __enter__(self) -> NoReturn:
        """Raise ModelError: write `async with`."""
        raise ModelError(f"a {type(self).__name__} cannot be used by with; write async with")

    def __exit__(self, *error: object) -> None:
        """Do nothing: Python looks for it before `__enter__`, which says what to write."""

    def __await__(self) -> NoReturn:
        """Raise ModelError: write `async with`."""
        instead = getattr(self, "_in_place_of_await", "write async with")
        raise ModelError(f"a {type(self).__name__} cannot be awaited; {instead}")


async_only = partial(give_methods, _AsyncOnly)
"""Decorates a class that works in `async with`, and neither in `with` nor in `await`."""


class _NotAwaited:
    """What a call returns that only collects, at run time: an `await` of it says so."""

    __slots__ = ()

    if not TYPE_CHECKING:

        def __await__(self) -> NoReturn:
            raise ModelError(
                "a transaction collects what it writes, and sends it when the block ends: leave out the await, as in "
                "tx.insert(entity)"
            )

        def __bool__(self) -> bool:
            return False

        def __repr__(self) -> str:
            return "None"


NOT_AWAITED = cast("None", _NotAwaited())
"""What the verbs of a transaction return, in place of None."""
