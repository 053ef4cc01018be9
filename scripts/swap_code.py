"""
Give functions that exist the code of a changed text, so that a module need not be imported again.
"""

from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType

__all__ = ["swap_code"]


def swap_code(functions: list[FunctionType], path: Path, old: bytes, new: bytes) -> bool:
    """Give the functions of a module the code of a changed text. Return False if a function cannot take it."""
    before, after = (list(_codes(compile(source, str(path), "exec", dont_inherit=True))) for source in (old, new))
    if [code.co_qualname for code in before] != [code.co_qualname for code in after]:
        return False
    codes = {_identity(code): other for code, other in zip(before, after, strict=True)}
    try:
        for each in functions:
            code = codes[_identity(each.__code__)]
            if code.co_freevars != each.__code__.co_freevars:
                return False
            each.__code__ = code
    except KeyError:
        return False
    return bool(functions)


def _codes(code: CodeType) -> Iterator[CodeType]:
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield each
            yield from _codes(each)


def _identity(code: CodeType) -> tuple[str, int, bytes]:
    """Return what tells two functions of one name apart, also on one line: the columns of their code."""
    return code.co_qualname, code.co_firstlineno, code.co_linetable
