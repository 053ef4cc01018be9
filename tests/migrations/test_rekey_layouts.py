"""
Re-keys between models that nobody thought of, while programs of both models write and movers are killed.
"""

import re

from hypothesis import assume, given
from hypothesis import strategies as st

from tests.migrations.random_layouts import Layout, Spec, Values, layouts, make_layout, specs
from tests.migrations.random_programs import programs
from tests.migrations.rekey_worlds import carry_out, go_there_and_back
from tests.torture import examples


@examples(4, 500)
@given(st.data())
async def test_any_layout(data: st.DataObject) -> None:
    """
    Nothing is lost or doubled, and each program reads what it is promised, after each step of a re-key; in the end the
    rows are those of the newer model alone, and after the way back those of the older one.
    """
    layout = data.draw(layouts())
    steps = data.draw(programs(layout))
    kind = data.draw(st.sampled_from(["memory", "memory", "engine", "unordered"]))
    await carry_out(layout, steps, kind)


@given(specs(guarded=False) | specs())
def test_what_is_refused(spec: Spec) -> None:
    """Two models that cannot be told apart, or read back, are rejected with the name of one and what to do."""
    made = make_layout(spec)
    if isinstance(made, Layout):
        return

    assert re.match(r"(Older|Newer)\d+[.:]", str(made))
    assert re.search(r"; (add|begin|declare|give|let|put|use) |: \w+ (it|them) ", str(made)), str(made)


@examples(4, 300)
@given(st.data())
async def test_rows_that_may_have_keys_of_each_other(data: st.DataObject) -> None:
    """
    Where an entity of one model may have the key that another one gets, the move reports it and leaves it alone; on the
    way back all entities get their older keys.
    """
    layout = make_layout(data.draw(specs(guarded=False)))
    assume(isinstance(layout, Layout))
    assert isinstance(layout, Layout)
    entities: list[Values] = data.draw(
        st.lists(layout.entities(), min_size=1, max_size=6, unique_by=lambda each: layout.keys_of(each)[0])
    )
    await go_there_and_back(layout, entities)
