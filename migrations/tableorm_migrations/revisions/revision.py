"""
A revision: one change of models, with what it needs done to stored rows, and the layouts before and after it.
"""

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

import attrs
import msgspec

from tableorm import ModelError

from ..snapshot import ModelLayout

_DIGEST_BYTES = 16


@attrs.frozen
class BuildIndex:
    """
    A step of a revision: build an index, list, count or sum for entities that are older than its declaration.

    Args:
        model: The model, by its name in the layouts of the revision.
        name: The name of the declaration.
    """

    model: str
    name: str

    def __str__(self) -> str:
        return f"build {self.model}.{self.name}"


@attrs.frozen
class Rewrite:
    """
    A step of a revision: write rows of older versions as rows of the current one.

    Args:
        model: The model, by its name in the layouts of the revision.
    """

    model: str

    def __str__(self) -> str:
        return f"rewrite {self.model}"


@attrs.frozen
class Repair:
    """
    A step of a revision: audit and repair the rows derived from the entities of a model.

    Args:
        model: The model, by its name in the layouts of the revision.
    """

    model: str

    def __str__(self) -> str:
        return f"repair {self.model}"


Step = BuildIndex | Rewrite | Repair


def _read_layouts(given: Mapping[str, Any]) -> dict[str, ModelLayout]:
    try:
        return msgspec.convert(given, dict[str, ModelLayout])
    except msgspec.ValidationError as error:
        raise ModelError(f"the layouts are not those of models: {error}; restore the file") from None


@attrs.frozen(kw_only=True)
class Revision:
    """
    The content of a revision file.

    Args:
        name: The name of the revision and of its file.
        follows: The name of the revision before it; None if it's the first.
        steps: The changes of stored rows, in order.
        before: The layouts of the changed models before the revision.
        after: The layouts of these models after it.

    Raises:
        ModelError: A layout is invalid, or a step names a model without a layout.
    """

    name: str
    follows: str | None
    steps: tuple[Step, ...] = ()
    before: Mapping[str, ModelLayout] = attrs.field(factory=dict[str, ModelLayout], converter=_read_layouts, repr=False)
    after: Mapping[str, ModelLayout] = attrs.field(factory=dict[str, ModelLayout], converter=_read_layouts, repr=False)

    def __attrs_post_init__(self) -> None:
        for step in self.steps:
            layout = self.after.get(step.model)
            if layout is None:
                raise ModelError(f"the step {step!r} is of a model that is not in after={{...}}")
            if isinstance(step, BuildIndex) and step.name not in layout.derived:
                raise ModelError(f"the step {step!r} is of a declaration that {step.model} has not in after={{...}}")


def digest_of(revision: Revision) -> str:
    """Return what tells whether the revision that a store has recorded is this one."""
    content = (revision.follows, [str(step) for step in revision.steps], revision.before, revision.after)
    return blake2b(msgspec.json.encode(content, order="sorted"), digest_size=_DIGEST_BYTES).hexdigest()
