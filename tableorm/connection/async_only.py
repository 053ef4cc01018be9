"""
What programs use in `async with`, and what they do not await. An error says what to write instead.
"""

from typing import TYPE_CHECKING, Any, NoReturn, cast

from ..errors import ModelError


class AsyncOnly:
    """A base of classes that work in `async with`, and neither in `with` nor in `await`."""

    __slots__ = ()

    if not TYPE_CHECKING:  # a checker finds these mistakes by itself, and shall go on to find them
        _in_place_of_await = "write async with"

        def __enter__(self) -> NoReturn:
            raise ModelError(f"a {type(self).__name__} cannot be used by with; write async with")

        def __exit__(self, *error: Any) -> None:
            """Nothing: Python looks for it before `__enter__`, which says what to write."""

        def __await__(self) -> NoReturn:
            raise ModelError(f"a {type(self).__name__} cannot be awaited; {self._in_place_of_await}")


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
