"""
The faults that `scripts/mutate.py` puts into the code.
"""

import gc
from pathlib import Path
from types import FunctionType

from scripts.faults import draw_faults, find_faults
from scripts.swap_code import swap_code

MODULE = b'''"""A toy."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["save"]


async def save(rows: "Iterable[str]", etag: str | None, *, repeat: bool = False) -> int:
    """Save them."""
    count = 0
    for row in rows:
        if row == "" or not etag:
            continue
        try:
            await send("merge", row, if_match=etag)
        except (OSError, ValueError):
            count += 1
            if count > 3:
                raise TimeoutError("it takes too long") from None
            await pause(
                count,
                repeat,
            )
    return count
'''


def changes(kind: str) -> set[str]:
    """The faults of one kind, as their diffs without indentation."""
    found = [fault for fault in find_faults("toy.py", MODULE) if fault.kind == kind]
    return {"\n".join(line[0] + line[1:].strip() for line in fault.diff(MODULE).splitlines()) for fault in found}


def test_faults_of_every_kind() -> None:
    """Each kind of fault is found where it can be made."""
    assert {fault.kind for fault in find_faults("toy.py", MODULE)} == {
        "and/or",
        "argument",
        "await",
        "comparison",
        "constant",
        "early return",
        "etag",
        "exception",
        "negation",
        "statement",
    }
    assert '-await send("merge", row, if_match=etag)\n+await send("merge", row, if_match="*")' in changes("etag")
    assert "-if count > 3:\n+if (count >= 3):" in changes("comparison")
    assert "-except (OSError, ValueError):\n+except (ValueError,):" in changes("exception")
    assert "-await pause(\n-count,\n-repeat,\n-)\n+pass" in changes("await")
    assert "-continue\n+pass" in changes("statement")
    assert "+return" in changes("early return")


def test_what_does_not_act_is_left_alone() -> None:
    """Docstrings, annotations, lists of exported names, imports for types and empty functions stay as they are."""
    assert find_faults("toy.py", b'def wait(seconds: int = ...) -> int:\n    """Wait."""\n    ...\n') == []
    touched = {line for fault in find_faults("toy.py", MODULE) for line in fault.diff(MODULE).splitlines()}

    assert not [line for line in touched if line.startswith("-") and ("toy" in line or "Save" in line)]
    assert not [line for line in touched if line.startswith("-") and ("__all__" in line or "TYPE_CHECKING" in line)]
    assert not [line for line in touched if line.startswith("+") and line.startswith("async def") and "str" not in line]


def test_a_seed_draws_the_same_faults(tmp_path: Path) -> None:
    """Whoever repeats a run tries the same faults; each of them compiles, and changes the code."""
    (tmp_path / "toy.py").write_bytes(MODULE)

    faults = draw_faults(tmp_path, ["toy.py"], 30, seed=3)

    assert faults == draw_faults(tmp_path, ["toy.py"], 30, seed=3)
    assert faults != draw_faults(tmp_path, ["toy.py"], 30, seed=4)
    assert len(set(faults)) == 30
    for fault in faults:
        compile(fault.apply(MODULE), "toy.py", "exec")
        assert fault.diff(MODULE)


def test_faults_on_import() -> None:
    """What the import executes is known: every test of the module may see a change of it."""
    faults = find_faults(
        "toy.py", b"LIMIT = 5\n\n\nclass Toy:\n    size = 6\n\n    def f(self, n=7):\n        return n + 8\n"
    )

    assert {(fault.text, fault.on_import) for fault in faults if fault.kind == "constant"} == {
        *((text, True) for text in ("6", "4", "7", "5", "8", "6")),
        *((text, False) for text in ("9", "7")),
    }


def test_lines_are_those_that_run() -> None:
    """A fault in a condition is seen by tests that reach the condition, not only by those that reach its body."""
    texts = MODULE.decode().splitlines()
    shown = {(fault.kind, texts[line - 1].strip()) for fault in find_faults("toy.py", MODULE) for line in fault.lines}

    assert ("comparison", "if count > 3:") in shown
    assert ("exception", "except (OSError, ValueError):") in shown
    assert ("exception", "try:") not in shown
    assert ("await", "repeat,") in shown


SWAPPED = b"""
def limit(most):
    def fits(rows, *, key=lambda row: row >= 0):
        return all(map(key, rows)) and len(rows) < most
    return fits

class Rows:
    def first(self): return [row for row in (1, 2) if row > 1]

fits = limit(3)
"""


def test_functions_that_exist_get_the_code_of_a_fault(tmp_path: Path) -> None:
    """A module need not be imported again for a fault: closures, lambdas and methods that exist are changed."""
    path = tmp_path / "swapped.py"

    def run(old: bytes, new: bytes) -> tuple[bool, object]:
        module: dict[str, object] = {}
        exec(compile(SWAPPED, str(path), "exec"), module)
        found = [each for each in gc.get_objects() if type(each) is FunctionType and each.__globals__ is module]
        assert len(found) == 4
        taken = swap_code(found, path, SWAPPED, SWAPPED.replace(old, new))
        return taken, eval("[fits([0]), fits([1, 1, 1]), fits([-1]), Rows().first()]", module)

    assert run(b"", b"") == (True, [True, False, False, [2]])
    assert run(b"< most", b"<= most") == (True, [True, True, False, [2]])
    assert run(b"row >= 0", b"row > 0") == (True, [False, False, False, [2]])
    assert run(b"row > 1", b"row < 2") == (True, [True, False, False, [1]])
    assert run(b"        return all", b"        return\n        return all") == (True, [None, None, None, [2]])


def test_a_function_that_cannot_take_the_code_of_a_fault_is_told(tmp_path: Path) -> None:
    """The variables that a function has from outside are bound when it is made, so they must stay the same."""
    path = tmp_path / "swapped.py"
    module: dict[str, object] = {}
    exec(compile(SWAPPED, str(path), "exec"), module)
    found = [each for each in gc.get_objects() if type(each) is FunctionType and each.__globals__ is module]
    assert not swap_code(found, path, SWAPPED, SWAPPED.replace(b"< most", b"< 5"))
    assert not swap_code(found, path, SWAPPED, SWAPPED.replace(b", key=lambda row: row >= 0", b", key=bool"))
