"""
Short tracebacks of methods that do many things, such as `audit`: they end where the program has called.
"""

from functools import wraps
from inspect import iscoroutinefunction
from typing import Any, TypeVar

from ..errors import TableOrmError, without_own_frames

T = TypeVar("T")


def short_tracebacks(cls: type[T]) -> type[T]:
    """
    Decorate a class, from whose methods errors of tableorm come without the frames that lead to them.

    It's not for methods that take a few microseconds, such as `get`: the call of another coroutine would show.
    """
    for name, method in list(vars(cls).items()):
        if iscoroutinefunction(method):
            setattr(cls, name, _shortened(method))
    return cls


def _shortened(method: Any) -> Any:
    @wraps(method)
    async def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return await method(*args, **kwargs)
        except TableOrmError as error:
            raise without_own_frames(error) from error.__cause__

    return call
