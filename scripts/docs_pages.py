"""
The code in the documentation: finds the blocks of a page, and runs a page as a program.

A page is one program: its ```python blocks share a namespace and context variables, and run in order, with `await`
allowed at the top level, in a fresh folder. What a reader need not see stands in a comment, fence and all. A comment
before a block marks it:

    <!-- output -->             a ```text block: exactly what the ```python block before it prints
    <!-- output of CODE -->     a ```text block: exactly what CODE prints here, for example what was sent
    <!-- not run: REASON -->    a ```python block that is only type-checked: it needs an account, or stops the program
    <!-- quickstart -->         the ```python block that the tests run from an installed wheel as well

What only some readers want to see is folded away. Blank lines around what is inside let it be Markdown everywhere:

    <details markdown="1"><summary>What is sent</summary>

    Text and blocks.

    </details>
"""

import ast
import asyncio
import contextlib
import contextvars
import inspect
import io
import re
import sys
import textwrap
import types
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import attrs

ROOT = Path(__file__).resolve().parent.parent

_EMBEDDED = re.compile(r"""(["'])local:[^"']*\1""")
_FENCE = re.compile(r"(?P<indent> *)(?P<fence>`{3,}|~{3,}) *(?P<info>.*)")
_MARKER = re.compile(r" *<!-- *(?P<marker>.*?) *-->")
_OUTPUT = re.compile(r"output(?: of (?P<code>.+))?")
_FOLD_OPENS = re.compile(r'<details markdown="1"><summary>[^<>]+</summary>')
_FOLD_CLOSES = re.compile("</details>")


class PageError(AssertionError):
    """A page is not what it claims; the message begins with file and line."""


@attrs.frozen
class Block:
    """
    A fenced block.

    Args:
        page: The file.
        line: Number of its first line of code, from 1.
        language: First word after the fence.
        marker: Text of the comment on the line before, or "".
        text: The code, without the block's indentation.
    """

    page: Path
    line: int
    language: str
    marker: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def runs(self) -> bool:
        """Whether it is code that is executed."""
        return self.language == "python" and not self.marker.startswith("not run")

    @property
    def is_output(self) -> bool:
        """Whether it is what code prints."""
        return _OUTPUT.fullmatch(self.marker) is not None

    @property
    def printed_by(self) -> str:
        """The code in its marker, which prints it; "" if the block before it does."""
        found = _OUTPUT.fullmatch(self.marker)
        return (found["code"] or "") if found else ""


def pages(root: Path = ROOT) -> list[Path]:
    """The files whose code is checked."""
    return [root / "README.md", *sorted((root / "docs").rglob("*.md"))]


def blocks(page: Path) -> list[Block]:
    """
    Every fenced block of a page, in order.

    Raises:
        PageError: A fence or fold that is never closed, a marker that is misspelt or misplaced, Python under another
            name, a fold whose inside would not be Markdown.
    """
    found: list[Block] = []
    text = page.read_text(encoding="utf-8").splitlines()
    lines = enumerate(text, start=1)
    marker, folded = "", False
    for number, line in lines:
        if comment := _MARKER.fullmatch(line):
            marker = comment["marker"]
        elif opening := _FENCE.fullmatch(line):
            found.append(_block(page, number, opening, lines, marker))
            _check(found[-1], found[:-1])
            marker = ""
        elif line.strip():
            marker = ""
            if re.search("</?(details|summary)", line):
                folded = not folded
                _check_fold(page, number, text, opens=folded)
    if folded:
        raise PageError(f"{page}: a fold is never closed; end it with a line </details>")
    return found


def _check_fold(page: Path, number: int, lines: list[str], *, opens: bool) -> None:
    line = _FOLD_OPENS if opens else _FOLD_CLOSES
    if not line.fullmatch(lines[number - 1]):
        raise PageError(f"{page}:{number}: this is no line of a fold; see scripts/docs_pages.py")
    if any(around.strip() for around in [*lines[number - 2 : number - 1], *lines[number : number + 1]]):
        raise PageError(f"{page}:{number}: leave a blank line before and after each line of a fold")


def _block(page: Path, number: int, opening: re.Match[str], lines: Iterator[tuple[int, str]], marker: str) -> Block:
    indent, fence = len(opening["indent"]), opening["fence"]
    text: list[str] = []
    for _, line in lines:
        if line.strip() == fence:
            language = opening["info"].partition(" ")[0]
            return Block(page, number + 1, language, marker, "".join(part + "\n" for part in text))
        text.append(line[indent:] if not line[:indent].strip() else line)
    raise PageError(f"{page}:{number}: this fence is never closed; end it with a line {fence}")


def _check(block: Block, before: list[Block]) -> None:
    if not block.is_output and block.marker not in {"", "quickstart"} and not block.marker.startswith("not run"):
        raise PageError(f"{block}: marker {block.marker!r} is unknown; see scripts/docs_pages.py")
    if block.language != "python" and "py" in block.language:
        raise PageError(f"{block}: {block.language!r} would not be executed; write ```python")
    if block.marker.startswith("not run") and not re.fullmatch(r"not run: .+", block.marker):
        raise PageError(f"{block}: say why it is not run: <!-- not run: REASON -->")
    follows = block.printed_by or (before and before[-1].runs)
    if block.is_output and (block.language != "text" or not follows):
        raise PageError(f"{block}: output stands in a ```text block right after the ```python block that prints it")


def module_text(page: Path, found: list[Block]) -> str:
    """
    The Python of a page as one module, in which every line has the number that it has on the page.

    What awaits at the top level is put into a function: no type checker knows modules that do.
    """
    lines: list[str] = []
    for block in found:
        if block.language == "python":
            lines += [""] * (block.line - 1 - len(lines))
            lines += block.text.splitlines()
    text = "\n".join(lines) + "\n"
    code = compile(text, str(page), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    if not code.co_flags & inspect.CO_COROUTINE:
        return text
    # The first line is free: there is a fence on it, or more.
    return "async def page() -> None:" + textwrap.indent(text, "    ")


def run(page: Path, watch: Callable[[Mapping[str, object]], None] | None = None, url: str | None = None) -> int:
    """
    Run a page in the current folder and compare what it prints with what it shows.

    Args:
        page: The file.
        watch: Gets the names that are defined, after each block.
        url: What the page opens in place of each embedded database; None to open what it names.

    Returns:
        The number of blocks that ran.

    Raises:
        PageError: It prints something else.
        Exception: Whatever the code raises; the traceback names lines of the page.
    """
    # A module of its own, so that annotations resolve and entities pickle as they do in a file.
    module = types.ModuleType(f"page_{re.sub(r'[^0-9A-Za-z]', '_', page.stem)}")
    sys.modules[module.__name__] = module
    printed, count, context = "", 0, contextvars.copy_context()
    try:
        with asyncio.Runner() as runner:
            for block in blocks(page) if url is None else [_open_elsewhere(block, url) for block in blocks(page)]:
                if block.runs:
                    printed = _execute(block, module, runner, context)
                    count += 1
                    if watch is not None:
                        watch(vars(module))
                elif block.is_output:
                    if block.printed_by:
                        code = attrs.evolve(block, text=block.printed_by)
                        printed = _execute(code, module, runner, context)
                    if block.text != printed:
                        raise PageError(f"{block}: the page shows\n{block.text}\nbut the code prints\n{printed}")
    finally:
        del sys.modules[module.__name__]
    return count


def _open_elsewhere(block: Block, url: str) -> Block:
    return attrs.evolve(block, text=_EMBEDDED.sub(lambda _: repr(url), block.text)) if block.runs else block


def _execute(block: Block, module: types.ModuleType, runner: asyncio.Runner, context: contextvars.Context) -> str:
    # Blank lines in front: errors name the line of the page.
    source = "\n" * (block.line - 1) + block.text
    code = compile(source, str(block.page), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    with contextlib.redirect_stdout(io.StringIO()) as output:
        # A coroutine if it awaits; if not, it runs outside of the loop, so that it may call asyncio.run itself.
        result = context.run(eval, code, module.__dict__)
        if asyncio.iscoroutine(result):
            runner.run(result, context=context)
    return output.getvalue()
