"""
Attributes of entities: their fields alone are given and set, to values of their types. Any other name is rejected, with
the name that was meant.
"""

import datetime as dt
import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial, wraps
from typing import Any, NoReturn

import attrs

from ..errors import ModelError, near, shown
from .codegen import FunctionSource
from .property_types import FieldInfo


def guard_attributes(model: type[Any], setter: Any, infos: Mapping[str, FieldInfo]) -> None:
    """
    Let entities of an attrs class refuse what is no field, and values that are not of the types of their fields.

    Args:
        model: The class.
        setter: The `__setattr__` of its own body, which stays; None if there is none.
        infos: The fields.
    """
    fields = {attribute.name: attribute for attribute in attrs.fields(model)}
    hooked = hasattr(model, "__attrs_pre_init__") or hasattr(model, "__attrs_post_init__")
    make = _wrap_constructor if hooked else _make_constructor
    type.__setattr__(model, "__init__", make(model, fields, infos))
    type.__setattr__(model, "__setattr__", setter or _set_field(model, fields, infos))
    type.__setattr__(model, "__delattr__", _refuse_deletion)


def _wrap_constructor(
    model: type[Any], fields: Mapping[str, Any], infos: Mapping[str, FieldInfo]
) -> Callable[..., None]:
    """Return the constructor of attrs, which calls the hooks of the class, with our errors."""
    init = model.__init__
    required = {name for name, each in fields.items() if each.default is attrs.NOTHING}

    def construct(self: Any, *values: Any, **given: Any) -> None:
        if values or not fields.keys() >= given.keys() >= required:
            _refuse_arguments(model, fields, values, given)
        init(self, **given)
        _check_types(model, fields, infos, self.__dict__)  # the hook may have set other values than were given

    return wraps(init)(construct)


def _make_constructor(
    model: type[Any], fields: Mapping[str, Any], infos: Mapping[str, FieldInfo]
) -> Callable[..., None]:
    """Return a faster constructor than that of attrs, which checks types between converters and validators."""
    source = FunctionSource()
    source.names |= {
        "_missing": attrs.NOTHING,
        "_off": attrs.validators.get_disabled,
        "_refuse": partial(_refuse_arguments, model, fields),
        "_check": partial(_check_types, model, fields, infos),
    }
    arguments, values = list[str](), list[str]()
    missing, conversions, tests = list[str](), list[str](), list[str]()
    assignments, validations = list[str](), list[str]()
    for number, (name, each) in enumerate(fields.items()):
        default = "_missing"
        if isinstance(each.default, attrs.Factory):  # type: ignore[arg-type]
            source.names[f"_make{number}"] = each.default.factory
            conversions.append(f"if {name} is _missing: {name} = _make{number}()")
        elif each.default is not attrs.NOTHING:
            default = f"_default{number}"
            source.names[default] = each.default
        if each.converter is not None:
            source.names[f"_convert{number}"] = each.converter
            conversions.append(f"{name} = _convert{number}({name})")
            if each.default is attrs.NOTHING:
                missing.append(f"{name} is _missing")
        if each.validator is not None:
            source.names |= {f"_validate{number}": each.validator, f"_field{number}": each}
            validations.append(f"_validate{number}(self, _field{number}, {name})")
        arguments.append(f"{name}={default}")
        values.append(f"{name!r}: {name}")
        tests.append(_type_test(source, number, infos[name]))
        assignments.append(f"_own[{name!r}] = {name}")
    given = f"{{{', '.join(values)}}}"
    source.add(0, f"def construct(self, *_values, {', '.join(arguments)}{', ' if arguments else ''}**_unknown):")
    source.add(1, f"if {' or '.join(['_values', '_unknown', *missing])}: _refuse(_values, {{**_unknown, **{given}}})")
    source.add(1, *conversions)
    if tests:  # a required field that is missing is of no type
        source.add(1, f"if not ({' and '.join(tests)}): _check({given})")
    source.add(1, "_own = self.__dict__", *assignments)
    if validations:
        source.add(1, "if not _off():", *("    " + line for line in validations))
    return wraps(model.__init__)(source.build("construct", f"constructor of {model.__name__}"))


def _type_test(source: FunctionSource, number: int, info: FieldInfo) -> str:
    """Return an expression that is true of the usual values of a field. No name in it can be that of a field."""
    base = info.type.base
    source.names |= {"_type": type, "_int": int, f"_base{number}": base}
    test = f"_type({info.name}) is _base{number}"
    if base is dt.datetime:
        test += f" and {info.name}.tzinfo is not None"
    elif base is float:
        test += f" or _type({info.name}) is _int"
    return f"({info.name} is None or {test})" if info.takes_none() else f"({test})"


def _check_types(
    model: type[Any], fields: Mapping[str, Any], infos: Mapping[str, FieldInfo], given: Mapping[str, Any]
) -> None:
    """
    Refuse what the constructor was given if the test of types did not pass it.

    Raises:
        ModelError: A required field is missing.
        EncodeError: A value is not of the type of its field.
    """
    if any(value is attrs.NOTHING for value in given.values()):
        _refuse_arguments(model, fields, (), given)
    for name, info in infos.items():
        info.check(model.__name__, given[name])


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
            f"{name} has no field {unknown!r} (got {shown(given[unknown])}); "
            f"{instead_of_field(model, unknown) or near(unknown, fields, 'field')}"
        )
    missing = [
        each
        for each, attribute in fields.items()
        if attribute.default is attrs.NOTHING and given.get(each, attrs.NOTHING) is attrs.NOTHING
    ]
    raise ModelError(
        f"{name} needs {', '.join(map(repr, missing))}; give {missing[0]}=..., or declare the field with a default"
    )


def _set_field(
    model: type[Any], fields: Mapping[str, Any], infos: Mapping[str, FieldInfo]
) -> Callable[[Any, str, Any], None]:
    """Return what sets an attribute: a field, what the class has a setter for, or what begins with `_`."""
    name = model.__name__
    plain = {each: info for each, info in infos.items() if not (fields[each].validator or fields[each].converter)}
    # Of a datetime its class does not say enough, so that none is there for it.
    kinds = {each: None if info.type.base is dt.datetime else info.type.base for each, info in plain.items()}

    def set_field(self: Any, attribute: str, value: Any) -> None:
        try:
            if type(value) is kinds[attribute]:
                self.__dict__[attribute] = value
                return
        except KeyError:
            pass
        if attribute in plain:
            infos[attribute].check(name, value)
            self.__dict__[attribute] = value
        elif attribute in fields:
            field = fields[attribute]
            if field.converter:
                value = field.converter(value)
            infos[attribute].check(name, value)
            self.__dict__[attribute] = attrs.setters.validate(self, field, value)
        elif attribute.startswith("_") or getattr(inspect.getattr_static(model, attribute, None), "fset", None):
            object.__setattr__(self, attribute, value)
        else:
            raise ModelError(
                f"{name} has no field {attribute!r}, which is set to {shown(value)}; "
                f"{near(attribute, fields, 'field')}; keep properties that the model does not know in "
                f"entity.extra[{attribute!r}]"
            )

    return set_field


def instead_of_field(model: type[Any], name: str) -> str | None:
    """Return what a relation says to do instead of setting it; None for any other name."""
    instead: str | None = getattr(inspect.getattr_static(model, name, None), "instead", None)
    return instead


def _refuse_deletion(self: Any, attribute: str) -> None:
    if attribute.startswith("_"):
        object.__delattr__(self, attribute)
    else:
        usual = "an entity has all of its fields; set it to None, which removes the property when the entity is saved"
        instead = instead_of_field(self.__class__, attribute) or usual
        raise ModelError(f"del {type(self).__name__}.{attribute} is rejected: {instead}")
