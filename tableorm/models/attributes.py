"""
Attributes of entities: their fields alone are given and set. Any other name is refused, with the name that was meant.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial, wraps
from typing import Any, NoReturn

import attrs

from ..errors import ModelError, near, shown
from .codegen import FunctionSource

__all__ = ["guard_attributes"]


def guard_attributes(model: type[Any], setter: Any) -> None:
    """
    Let entities of an attrs class refuse what is no field.

    Args:
        model: The class.
        setter: The `__setattr__` of its own body, which stays; None if there is none.
    """
    fields = {attribute.name: attribute for attribute in attrs.fields(model)}
    if "__init__" in vars(model):
        type.__setattr__(model, "__init__", _make_constructor(model, fields))
    type.__setattr__(model, "__setattr__", setter or _set_field(model, fields))
    type.__setattr__(model, "__delattr__", _refuse_deletion)


def _make_constructor(model: type[Any], fields: Mapping[str, Any]) -> Callable[..., None]:
    """Return the constructor of attrs, or a faster one where nothing is converted and validated, with our errors."""
    init = model.__init__
    hooked = hasattr(model, "__attrs_pre_init__") or hasattr(model, "__attrs_post_init__")
    if hooked or any(each.validator or each.converter for each in fields.values()):

        def construct(self: Any, *values: Any, **given: Any) -> None:
            if values or not fields.keys() >= given.keys() >= required:
                _refuse_arguments(model, fields, values, given)
            init(self, **given)

        required = {name for name, each in fields.items() if each.default is attrs.NOTHING}
        return wraps(init)(construct)
    source = FunctionSource()
    arguments: list[str] = []
    source.names |= {"_missing": attrs.NOTHING}
    lines = ["_own = self.__dict__"]
    for number, (name, each) in enumerate(fields.items()):
        default = "_missing"
        if isinstance(each.default, attrs.Factory):  # type: ignore[arg-type]
            source.names[f"_make{number}"] = each.default.factory
            lines.append(f"if {name} is _missing: {name} = _make{number}()")
        elif each.default is not attrs.NOTHING:
            default = f"_default{number}"
            source.names[default] = each.default
        arguments.append(f"{name}={default}")
        lines.append(f"_own[{name!r}] = {name}")
    tests = [f"{name} is _missing" for name, each in fields.items() if each.default is attrs.NOTHING]
    source.add(0, f"def construct(self, *_values, {', '.join(arguments)}{', ' if arguments else ''}**_unknown):")
    source.add(1, f"if {' or '.join(['_values', '_unknown', *tests])}:")
    given = ", ".join(f"{name!r}: {name}" for name in fields)
    source.names["_refuse"] = partial(_refuse_arguments, model, fields)
    source.add(2, f"_refuse(_values, {{**_unknown, {given}}})")
    source.add(1, *lines)
    return wraps(init)(source.build("construct", f"constructor of {model.__name__}"))


def _refuse_arguments(
    model: type[Any], fields: Mapping[str, Any], values: Sequence[Any], given: Mapping[str, Any]
) -> NoReturn:
    """Raise the error of arguments that no entity can be made of: a ModelError that names the first at fault."""
    name = model.__name__
    if values:
        texts = ", ".join(f"{each}={shown(value)}" for each, value in zip(fields, values, strict=False))
        raise ModelError(f"{name} takes its fields by name: write {name}({texts})")
    unknown = next((each for each in given if each not in fields), None)
    if unknown is not None:
        raise ModelError(
            f"{name} has no field {unknown!r}, which was given as {shown(given[unknown])}; "
            f"{near(unknown, fields, 'field')}"
        )
    missing = [
        each
        for each, attribute in fields.items()
        if attribute.default is attrs.NOTHING and given.get(each, attrs.NOTHING) is attrs.NOTHING
    ]
    raise ModelError(
        f"{name} needs {', '.join(map(repr, missing))}; give {missing[0]}=..., or declare the field with a default"
    )


def _set_field(model: type[Any], fields: Mapping[str, Any]) -> Callable[[Any, str, Any], None]:
    """Return what sets an attribute: a field, what the class has a setter for, or what begins with `_`."""
    name = model.__name__
    hooks = {each for each, attribute in fields.items() if attribute.validator or attribute.converter}
    hook: Any = attrs.setters.pipe(attrs.setters.convert, attrs.setters.validate)
    plain = frozenset(fields) - hooks

    def set_field(self: Any, attribute: str, value: Any) -> None:
        if attribute in plain:
            self.__dict__[attribute] = value
        elif attribute in hooks:
            self.__dict__[attribute] = hook(self, fields[attribute], value)
        elif attribute.startswith("_") or getattr(inspect.getattr_static(model, attribute, None), "fset", None):
            object.__setattr__(self, attribute, value)
        else:
            raise ModelError(
                f"{name} has no field {attribute!r}, which is set to {shown(value)}; "
                f"{near(attribute, fields, 'field')}; keep properties that the model does not know in "
                f"entity.extra[{attribute!r}]"
            )

    return set_field


def _refuse_deletion(self: Any, attribute: str) -> None:
    if attribute.startswith("_"):
        object.__delattr__(self, attribute)
    else:
        raise ModelError(
            f"del {type(self).__name__}.{attribute} is refused: an entity has all of its fields; set it to None, which "
            "removes the property when the entity is saved"
        )
