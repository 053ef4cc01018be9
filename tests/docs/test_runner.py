"""
The runner of the documentation notices what is wrong with a page.
"""

import traceback
from pathlib import Path

import pytest

from scripts.docs_pages import PageError, blocks, module_text, run


def write(folder: Path, text: str) -> Path:
    page = folder / "page.md"
    page.write_text(text.replace("'''", "```"), encoding="utf-8")
    return page


def test_blocks_share_names_and_await(tmp_path: Path) -> None:
    """Blocks run in order in one namespace and on one loop; awaiting and `asyncio.run` both work."""
    page = write(
        tmp_path,
        """
# Title
'''python
import asyncio
loop = asyncio.get_running_loop() if False else None
async def answer() -> int:
    return 42
print(asyncio.run(answer()))
'''
<!-- output -->
'''text
42
'''
Text.
'''python
first = asyncio.get_running_loop()
print(await answer())
'''

<!-- output -->
'''text
42
'''
<!-- Not shown:
'''python
assert asyncio.get_running_loop() is first
await asyncio.sleep(0)
'''
-->
""",
    )

    assert run(page) == 3


def test_blocks_share_context_variables(tmp_path: Path) -> None:
    """What one block sets in its context, later ones see, whether they await or not."""
    page = write(
        tmp_path,
        """
'''python
import asyncio
from contextvars import ContextVar
number = ContextVar("number", default=0)
number.set(1)
'''
'''python
await asyncio.sleep(0)
print(number.get())
number.set(2)
'''
<!-- output -->
'''text
1
'''
'''python
print(number.get())
'''
<!-- output -->
'''text
2
'''
""",
    )

    assert run(page) == 3


def test_output_of_code(tmp_path: Path) -> None:
    """What the code in a marker prints is compared with what the page shows, inside of a fold as outside."""
    page = write(
        tmp_path,
        """
'''python
noted: list[int] = []
noted.append(1)
'''

<details markdown="1"><summary>What is noted</summary>

<!-- output of print(*noted) -->
'''text
1
'''

</details>
""",
    )
    assert run(page) == 1

    page.write_text(page.read_text(encoding="utf-8").replace("\n1\n", "\n2\n"), encoding="utf-8")
    with pytest.raises(PageError, match=r"page.md:11: the page shows\n2\n\nbut the code prints\n1\n"):
        run(page)


def test_other_output_fails(tmp_path: Path) -> None:
    """Output that differs from what the page shows is an error that names the line of the page and gives both."""
    page = write(tmp_path, "'''python\nprint(1)\n'''\n<!-- output -->\n'''text\n2\n'''\n")

    with pytest.raises(PageError, match=r"page.md:6: the page shows\n2\n\nbut the code prints\n1\n"):
        run(page)


def test_error_names_the_line_of_the_page(tmp_path: Path) -> None:
    """An exception in a block comes out, with the page and its line in the traceback."""
    page = write(tmp_path, "Text\n\n'''python\nx = 1\nx / 0\n'''\n")

    with pytest.raises(ZeroDivisionError) as caught:
        run(page)
    last = traceback.extract_tb(caught.value.__traceback__)[-1]
    assert (last.filename, last.lineno) == (str(page), 5)


def test_names_are_watched(tmp_path: Path) -> None:
    """Whoever wants to sees the names after each block, also those that a later block defines anew."""
    page = write(tmp_path, "'''python\nx = 1\n'''\n'''python\nx = 2\n'''\n")
    seen: list[object] = []

    run(page, lambda names: seen.append(names["x"]))
    assert seen == [1, 2]


def test_not_run(tmp_path: Path) -> None:
    """A block that is marked so does not run, but its types are checked."""
    page = write(tmp_path, "<!-- not run: needs an account -->\n'''python\n1 / 0\n'''\n")

    assert run(page) == 0
    assert "1 / 0" in module_text(page, blocks(page))


def test_classes_belong_to_a_module(tmp_path: Path) -> None:
    """A class of the page is found by its module's name, as pickle and annotations do."""
    page = write(
        tmp_path,
        "'''python\nimport pickle, typing\nclass A:\n    x: 'A'\n"
        "assert typing.get_type_hints(A) == {'x': A}\nassert type(pickle.loads(pickle.dumps(A()))) is A\n'''\n",
    )

    assert run(page) == 1


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("'''python\nx = 1\n", "page.md:1: this fence is never closed"),
        ("'''py\nx = 1\n'''\n", "page.md:2: 'py' would not be executed"),
        ("'''{.python}\nx = 1\n'''\n", "page.md:2: '{.python}' would not be executed"),
        ("~~~pycon\n>>> x = 1\n~~~\n", "page.md:2: 'pycon' would not be executed"),
        ("<!-- not run -->\n'''python\nx = 1\n'''\n", "page.md:3: say why it is not run"),
        ("<!-- output -->\n'''text\n1\n'''\n", "page.md:3: output stands in a ```text block right after"),
        ("'''python\nprint(1)\n'''\n<!-- output -->\n'''\n1\n'''\n", "page.md:6: output stands in a ```text block"),
        ("<details>\n\nText\n\n</details>\n", "page.md:1: this is no line of a fold"),
        ('<details markdown="1"><summary>What</summary>\nText\n', "page.md:1: leave a blank line before and after"),
        ('Text\n\n<details markdown="1"><summary>What</summary>\n\nText\n', "a fold is never closed"),
        ('<details markdown="1"><summary>What</summary>\n\nText\n</details>\n', "page.md:4: leave a blank line before"),
        ("'''python\nx = 1\n'''\n<!-- ouput -->\n'''text\n1\n'''\n", "page.md:6: marker 'ouput' is unknown"),
    ],
)
def test_mistakes_in_a_page(tmp_path: Path, text: str, problem: str) -> None:
    """What would silently not be checked is an error."""
    page = write(tmp_path, text)

    with pytest.raises(PageError) as caught:
        run(page)
    assert problem in str(caught.value)


def test_module_keeps_line_numbers(tmp_path: Path) -> None:
    """The module that type checkers see has each line where the page has it; what awaits is in a function."""
    plain = write(tmp_path, "One\n'''python\nx = 1\n'''\nTwo\n'''python\ny = 2\n'''\n")
    assert module_text(plain, blocks(plain)).splitlines() == ["", "", "x = 1", "", "", "", "y = 2"]

    waiting = write(tmp_path, "One\n'''python\nawait x()\n'''\n")
    assert module_text(waiting, blocks(waiting)).splitlines() == ["async def page() -> None:", "", "    await x()"]


def test_indented_block(tmp_path: Path) -> None:
    """A block in a list is code without the list's indentation."""
    page = write(tmp_path, "1. Do\n\n    '''python\n    if True:\n        x = 1\n\n    print(x)\n    '''\n")

    assert [block.text for block in blocks(page)] == ["if True:\n    x = 1\n\nprint(x)\n"]
    assert run(page) == 1
