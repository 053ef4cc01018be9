"""
Which cases `make test` leaves to `make torture`.
"""

import pytest

from tests import torture

TESTS = """
import pytest

@pytest.mark.one_of(3)
@pytest.mark.parametrize("number", range(5))
def test_cases(number): ...

@pytest.mark.one_of(2, group="together")
def test_first(): ...

@pytest.mark.one_of(2, group="together")
def test_second(): ...

@pytest.mark.parametrize("db", ["memory", "azurite"])
def test_on_stores(db): ...
"""


def test_cases_that_are_left_out(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of so many cases, or of the tests of a group, is run; at length all of them are, and each has the mark."""
    pytester.makeini("[pytest]\nmarkers =\n    one_of\n    torture\nasyncio_default_fixture_loop_scope = function\n")
    items = pytester.getitems(TESTS)

    for at_length, left in (True, []), (False, ["cases[1]", "cases[2]", "cases[4]", "second"]):
        monkeypatch.setattr(torture, "_TORTURE", at_length)
        assert [item.name.removeprefix("test_") for item in torture.choose_cases(items)] == left
    assert [item.name for item in items if not item.get_closest_marker("torture")] == ["test_on_stores[memory]"]
