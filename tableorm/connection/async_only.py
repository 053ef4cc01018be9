"""
Classes that programs use in `async with`. An error says so where a program writes `with`.
"""

from typing import TYPE_CHECKING, Any, NoReturn

from ..errors import ModelError

__all__ = ["AsyncOnly"]


class AsyncOnly:
    """A base of classes that work in `async with`, and not in `with`."""

    __slots__ = ()

    if not TYPE_CHECKING:  # a checker finds the mistake by itself, and shall go on to find it

        def __enter__(self) -> NoReturn:
            raise ModelError(f"a {type(self).__name__} cannot be used by with; write async with")

        def __exit__(self, *error: Any) -> None:
            """Exist, because Python looks for it before it enters."""
