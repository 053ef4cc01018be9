"""
What the reference shows of arguments and defaults. Griffe reads source code: it does not know what attrs makes of a
class, and shows the name of a constant for its value.
"""

import re
from typing import Any

from griffe import (
    Alias,
    AliasResolutionError,
    Attribute,
    Class,
    Docstring,
    Expr,
    ExprCall,
    ExprKeyword,
    ExprName,
    Extension,
    Function,
    Module,
    Parameter,
    ParameterKind,
    Parameters,
)


class ValueClasses(Extension):
    """
    Gives each class that attrs, msgspec or NamedTuple makes its `__init__`, if the docstring lists its arguments. Shows
    the values of constants that are defaults.
    """

    def on_package(self, *, pkg: Module, **_: Any) -> None:
        """Look at all classes of a package that was loaded."""
        _describe(pkg)


def _describe(parent: Module | Class) -> None:
    for member in list(parent.members.values()):
        if isinstance(member, Module | Class):
            _describe(member)
        elif isinstance(member, Function):
            for function in (member, *(member.overloads or ())):
                _show_defaults(function)
        elif isinstance(member, Attribute) and str(member.value).startswith("_"):
            member.value = None  # an object of a private class
    if isinstance(parent, Class) and "__init__" not in parent.members and _lists_arguments(parent.docstring):
        parameters = {each.name: each for base in (*reversed(parent.mro()), parent) for each in _parameters(base)}
        if parameters:
            itself = Parameter("self", kind=ParameterKind.positional_or_keyword)
            parent.set_member(
                "__init__", Function("__init__", parameters=Parameters(itself, *parameters.values()), parent=parent)
            )


def _show_defaults(function: Function) -> None:
    for parameter in function.parameters:
        parameter.default = _value_of(parameter.default, function.module)


def _value_of(default: str | Expr | None, module: Module) -> str | Expr | None:
    """Return the value of a constant, such as MAX_PAGE; anything else as it is."""
    if not isinstance(default, ExprName) or not re.fullmatch("_?[A-Z][A-Z_]+", default.name):
        return default
    constant = module.members.get(default.name)
    try:
        found = constant.final_target if isinstance(constant, Alias) else constant
    except AliasResolutionError:
        return default
    return found.value or default if isinstance(found, Attribute) else default


def _lists_arguments(docstring: Docstring | None) -> bool:
    return docstring is not None and "\nArgs:\n" in docstring.value


def _parameters(value: Class) -> list[Parameter]:
    """Return the parameters that a class adds to those of its bases; none if it is not a value class."""
    makers = [each.value for each in value.decorators] + list(value.bases)
    if not any(_path(maker).startswith(("attrs.", "msgspec.Struct", "typing.NamedTuple")) for maker in makers):
        return []
    found: list[Parameter] = []
    for attribute in value.attributes.values():
        if attribute.annotation is None or "instance-attribute" not in attribute.labels:
            continue
        options = _arguments(attribute.value)
        if str(options.get("init")) == "False":
            continue
        default = attribute.value if not options else options.get("default")
        if "factory" in options:
            default = f"{options['factory']}()"
        default = _value_of(default, value.module)
        given = None if "converter" in options else attribute.annotation  # a converter takes other types
        name = str(options.get("alias", attribute.name.lstrip("_"))).strip("'\"")
        found.append(Parameter(name, annotation=given, kind=ParameterKind.keyword_only, default=default))
    return found


def _arguments(value: str | Expr | None) -> dict[str, str | Expr]:
    """Return the keyword arguments of `attrs.field(...)`; nothing for every other default."""
    if not isinstance(value, ExprCall) or value.canonical_path != "attrs.field":
        return {}
    return {each.name: each.value for each in value.arguments if isinstance(each, ExprKeyword)}


def _path(maker: str | Expr) -> str:
    return maker if isinstance(maker, str) else maker.canonical_path
