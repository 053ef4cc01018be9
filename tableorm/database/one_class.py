"""
One class that is written in several files.
"""

from types import FunctionType
from typing import TypeVar, cast

T = TypeVar("T")

_OF_EACH_CLASS = {"__annotations__", "__dict__", "__slots__", "__weakref__"}


def one_class(written: type[T]) -> type[T]:
    """
    Return a class that has all that its bases have, and no bases. No method may use `super()`.

    So `help` lists the methods of a class in one place, whichever file they are in, and names no class that users never
    meet.
    """
    members: dict[str, object] = {}
    for base in reversed(written.__mro__[:-1]):
        members.update((name, member) for name, member in vars(base).items() if name not in _OF_EACH_CLASS)
    for name, member in members.items():
        if isinstance(member, FunctionType):
            member.__module__, member.__qualname__ = written.__module__, f"{written.__name__}.{name}"
    return cast(type[T], type(written.__name__, (), members))
