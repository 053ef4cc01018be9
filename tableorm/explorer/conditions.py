"""
The filter line of a model: OData that names fields of the model.
"""

import operator

import attrs

from ..errors import EncodeError, ModelError, near
from ..expressions import AllOf, AnyOf, Expression, NoneOf, PropertyComparison, condition_of
from ..models.entity import Entity, schema_of
from ..protocol.edm import Edm, datetime_from_text, encode, text_from_ticks
from ..protocol.filter_text import FilterSyntaxError, parse_filter

__all__ = ["parse_condition"]


def parse_condition(model: type[Entity], text: str) -> Expression:
    """
    Return a filter as a condition on the fields of a model.

    Args:
        model: The model.
        text: The filter, such as `department eq 'Sales' and age ge 30`; its constants become values of the fields.

    Raises:
        ModelError: The text is not a filter, or names something that is not a field.
        EncodeError: A value is not of the type of its field.
    """
    try:
        return _translate(model, condition_of(parse_filter(text)))
    except FilterSyntaxError as error:
        raise ModelError(f"the filter is refused: {error}") from error


def _translate(model: type[Entity], term: Expression) -> Expression:
    """Return a condition on properties as one on the fields of the same names."""
    if isinstance(term, NoneOf):
        return NoneOf(_translate(model, term.term))
    if isinstance(term, (AllOf, AnyOf)):
        return attrs.evolve(term, terms=tuple(_translate(model, each) for each in term.terms))
    assert isinstance(term, PropertyComparison)
    name, value, members = term.property, term.constant.value, schema_of(model).by_path
    if name not in members:
        raise ModelError(f"{model.__name__} has no field {name!r}; {near(name, members, 'field')}")
    if term.constant.type is Edm.DATETIME:
        value = datetime_from_text(text_from_ticks(value))
    kind = members[name].type
    try:
        # A text becomes a date where the field has dates.
        value = kind.decode(*encode(value, kind.edm))
    except ValueError as error:
        raise EncodeError(f"is refused in the filter: {error}", model.__name__, name, value) from None
    condition: Expression = getattr(operator, term.op)(operator.attrgetter(name)(model), value)
    return condition
