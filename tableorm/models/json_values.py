"""
The values of fields as JSON has them: out by `to_json`, in by `read_fields`, which finds all that is wrong at once.
"""

import datetime as dt
import enum
import math
import re
import typing
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from decimal import Decimal
from functools import lru_cache
from itertools import islice
from typing import Annotated, Any, TypeGuard, cast
from uuid import UUID

import attrs
import msgspec

from ..errors import ENCRYPTED, MAX_FAULTS, EncodeError, InputFault, InvalidInput, NotLoaded, shown
from ..keys.template import Template
from ..protocol.edm import SPECIAL_DOUBLES, special_text
from ..protocol.limits import MAX_VALUE_BYTES, excess_of
from .json_types import find_pydantic_faults, is_pydantic_model, read_pydantic, write_pydantic
from .key import Key
from .property_types import REFUSALS, FieldInfo, annotation_name, split_optional
from .schema import Schema

Path = tuple[str | int, ...]


class Form(enum.Enum):
    """Which fields of a model data has: that of a new entity, of one whose key is known, or what changes in one."""

    WHOLE = enum.auto()
    WITHOUT_KEY = enum.auto()
    PARTIAL = enum.auto()


def to_json(value: Any) -> Any:
    """Return the value of a field as JSON has it: what is not of JSON's own types becomes text, NaN for example."""
    if isinstance(value, enum.Enum):
        return to_json(value.value)
    if isinstance(value, float) and not math.isfinite(value):
        return special_text(value)
    if isinstance(value, dt.date):
        return value.isoformat()
    if isinstance(value, (UUID, Decimal)):
        return str(value)
    if isinstance(value, bytes):
        return b64encode(value).decode("ascii")
    if _is_sequence(value):
        return [to_json(item) for item in value]
    if isinstance(value, Key):
        key: Key[Any] = cast("Any", value)
        return {"partition_key": key.partition_key, "row_key": key.row_key}
    return msgspec.to_builtins(value, enc_hook=write_pydantic)


def _is_sequence(value: object) -> TypeGuard[Sequence[Any]]:
    """Return whether a value is a sequence that msgspec does not know, or a list of keys."""
    if isinstance(value, list):
        return any(isinstance(item, Key) for item in cast("list[object]", value)[:1])
    return isinstance(value, Sequence) and not isinstance(value, (str, tuple))


def fields_in(schema: Schema, form: Form) -> dict[str, FieldInfo]:
    """Return the fields that data may have: of an entity whose key is known, those that nothing else decides."""
    if form is Form.WHOLE:
        return schema.fields
    return {name: info for name, info in schema.fields.items() if _why_fixed(schema, info) is None}


def _why_fixed(schema: Schema, info: FieldInfo, form: Form = Form.PARTIAL) -> str | None:
    if info.name in schema.key_names:
        key = "can't change" if form is Form.PARTIAL else "is passed separately"
        return f"is rejected: the field is part of the key, which {key}; leave it out"
    if info.is_filled():
        return f"is rejected: {'each write' if info.on_write else 'the insert'} fills the field; leave it out"
    return _why_kept(info)


def _why_kept(info: FieldInfo) -> str | None:
    """Return why no data may have another value of a field than its default; None if it may."""
    if info.maintained:
        return "is rejected: writes of other entities maintain the field; leave it out"
    return "is rejected: the field is read-only for clients; leave it out" if info.readonly else None


def make_entity(schema: Schema, data: Any, *, trusted: bool = False) -> Any:
    """
    Return a new entity with the fields that data in either mode of `to_dict` has.

    Args:
        schema: The model.
        data: The fields by name.
        trusted: Whether it may have read-only fields.

    Raises:
        InvalidInput: A name is unknown, a field is missing, or a value does not fit its type, validator or key.
        ModelError: The model is abstract.
    """
    return new_entity(schema, {} if schema.abstract else read_fields(schema, data, trusted=trusted))


def new_entity(schema: Schema, values: Mapping[str, Any]) -> Any:
    """
    Return a new entity with these values of fields.

    Raises:
        InvalidInput: A value does not pass its validator.
        ModelError: The model is abstract, a field is missing, or a name is unknown.
    """
    model: Any = schema.model
    try:
        return model(**values)
    except REFUSALS:
        probe = object.__new__(model)
        probe.__dict__.update({name: info.default() for name, info in schema.fields.items() if info.default})
        known = {name: value for name, value in values.items() if name in schema.fields}
        if faults := _set_all(probe, known, complete=False) or _ask_validators(probe):
            raise _invalid(schema, faults) from None
        raise


def read_fields(schema: Schema, data: Any, form: Form = Form.WHOLE, *, trusted: bool = False) -> dict[str, Any]:
    """
    Return the values of fields that data in either mode of `to_dict` has.

    Args:
        schema: The model.
        data: The fields by name.
        form: Which fields it may have, and which it must have.
        trusted: Whether it may have read-only fields.

    Raises:
        InvalidInput: A name is unknown, a field is missing, or a value does not fit its type or key, or is that of a
            field that other entities maintain, or that clients may not set. Validators are asked if there is such a
            fault too, or if no entity is made of the fields at once.
    """
    if not isinstance(cast("object", data), Mapping):
        names = ", ".join(fields_in(schema, form))
        problem = f"is a {type(data).__name__}; give an object whose members are fields of the model: {names}"
        if isinstance(data, bytes):  # web frameworks do not read a body of another type
            problem += "; a request says by the header Content-Type: application/json that its body is one"
        raise InvalidInput(schema.name, [InputFault((), problem, data)])
    given: Mapping[str, Any] = data
    faults: list[InputFault] = []
    values: dict[str, Any] = {}
    for name, value in given.items():
        if len(faults) >= MAX_FAULTS:
            break
        info = schema.fields.get(name)
        if info is None:
            known = ", ".join(fields_in(schema, form))
            problem = f"is given for a field that does not exist; the model's fields are {known}"
            faults.append(InputFault((str(name),), problem, value, "unknown"))
        elif form is not Form.WHOLE and (why := _why_fixed(schema, info, form)):
            faults.append(InputFault((name,), why, value, "unknown"))
        else:
            found, values[name] = _read_value(info, value)
            upload = info.shape is not None and info.shape.uploads  # of which JSON has no values
            kept = None if (found and not upload) or (trusted and not info.maintained) else _why_kept(info)
            if kept and (found or info.default is None or values[name] != info.default()):
                found = [InputFault((name,), kept, value)]
            faults += found
    if form is not Form.PARTIAL:
        faults += [
            InputFault((name,), _why_missing(info, trusted=trusted), None, "missing")
            for name, info in fields_in(schema, form).items()
            if info.default is None and name not in given
        ]
    if not faults:
        faults += _find_key_faults(schema, values)
    if faults or form is not Form.WHOLE:
        wrong = {fault.path[0] for fault in faults}
        fitting = {name: value for name, value in values.items() if name not in wrong}
        faults += _set_all(object.__new__(schema.model), fitting, complete=False)
    if faults:
        raise _invalid(schema, faults[:MAX_FAULTS])
    return values


def _invalid(schema: Schema, faults: Sequence[InputFault]) -> InvalidInput:
    """Return the error of some faults, which shows no value of an encrypted field, nor the keys and members in it."""
    hidden = {name for name, info in schema.fields.items() if info.encrypted}
    told = dict[object, InputFault]()
    for number, each in enumerate(faults):
        if (each.value is None and len(each.path) < 2) or hidden.isdisjoint(each.path[:1]):
            told[number] = each
        else:
            told[each.path[:1]] = InputFault(each.path[:1], "does not fit, or is rejected", ENCRYPTED)
    return InvalidInput(schema.name, [*told.values()])


def _why_missing(info: FieldInfo, *, trusted: bool) -> str:
    if info.readonly and not trusted:
        return (
            "is missing, and read-only for clients, so they can't send it; declare it with a default, or "
            "read a WithoutKey, whose entity() takes the value"
        )
    return f"is missing; the field is {info.type.name}"


def _find_key_faults(schema: Schema, values: Mapping[str, Any]) -> list[InputFault]:
    """Return the fields of which a key cannot be made: that of the entity, or of what is derived from it."""
    templates: list[Template | None] = [schema.partition, schema.row]
    for each in schema.derived.values():
        templates += [each.partition, *each.row_templates()]
    misfits: dict[str, str] = {}
    for template in dict.fromkeys(templates):
        misfits = {**template.find_misfits(values), **misfits} if template is not None else misfits
    return [InputFault((name,), problem, values[name]) for name, problem in misfits.items()]


def set_fields(entity: Any, schema: Schema, values: Mapping[str, Any]) -> None:
    """
    Set fields of an entity, by their converters and validators: all of them, or none.

    Raises:
        InvalidInput: A field cannot be set, or a value does not pass, or another field has a value that does not fit
            the new ones; it lists all of these.
        NotLoaded: A validator looks at a field that was not loaded.
    """
    faults = [
        InputFault((name,), why, value, "unknown")
        for name, value in values.items()
        if (why := _why_fixed(schema, schema.fields[name]))
    ]
    probe = object.__new__(schema.model)
    probe.__dict__.update(entity.__dict__)
    if faults := [*faults, *_set_all(probe, values, complete=True)] or _ask_validators(probe):
        raise _invalid(schema, faults)
    entity.__dict__.update({name: probe.__dict__[name] for name in values})


def _set_all(probe: Any, values: Mapping[str, Any], *, complete: bool) -> list[InputFault]:
    """
    Set fields of an entity that is made for trying, and return what their converters and validators refuse.

    Args:
        probe: The entity.
        values: The fields.
        complete: Whether validators find all other fields in it.
    """
    faults: list[InputFault] = []
    probe.__dict__.update(values)  # a validator may look at fields that come later
    for name, value in values.items():
        try:
            setattr(probe, name, value)
        except NotLoaded:
            if complete:
                raise
        except REFUSALS as error:
            faults.append(_refusal((name,), error, value))
    return faults


def _ask_validators(probe: Any) -> list[InputFault]:
    """Return what the validators of all fields refuse. One that looks at a field that was not loaded cannot tell."""
    faults: list[InputFault] = []
    for attribute in attrs.fields(cast("Any", type(probe))):
        name = attribute.name
        if attribute.validator is not None and name in probe.__dict__:
            try:
                attribute.validator(probe, attribute, probe.__dict__[name])
            except NotLoaded:
                pass
            except REFUSALS as error:
                faults.append(_refusal((name,), error, probe.__dict__[name]))
    return faults


def _read_value(info: FieldInfo, value: Any) -> tuple[list[InputFault], Any]:
    """Return what is wrong with the value of a field, and the value as the field has it."""
    kind = info.type
    here: Path = (info.name,)
    if value is None:
        if info.optional or info.is_filled():
            return [], None
        return [InputFault(here, f"is rejected: the field is {kind.name}, and never null", None)], None
    value = _from_json(info, value)
    # A value that can be stored as it is needs no conversion. In a list[date], for example, dates can still be text.
    problem = _misfit(info, value)
    if problem is None:
        return [], value
    try:
        if kind.json_text and (faults := list(islice(_find_faults(kind.annotation, value, here), MAX_FAULTS))):
            return [fault if len(fault.path) > 1 else _with_type(fault, info) for fault in faults], None
        if not (kind.annotation is float and type(value) is int):  # a float cannot hold it exactly
            converted = _convert(value, kind.annotation)
            if kind.complete is not None:
                kind.complete(converted)
            problem = _misfit(info, converted)
            if problem is None:
                return [], converted
    except (msgspec.ValidationError, *REFUSALS) as error:
        return [_with_type(_fault(here, value, error), info)], None
    except RecursionError:
        problem, value = "is nested too deeply", shown(value)
    return [_with_type(InputFault(here, problem, value), info)], None


def _convert(value: Any, annotation: Any) -> Any:
    return msgspec.convert(value, annotation, str_keys=True, dec_hook=read_pydantic)


def _from_json(info: FieldInfo, value: Any) -> Any:
    """Return a number as a float, or what stands for a member of an enum as that, if the field's type is one."""
    annotation = info.type.annotation
    if info.shape is not None:
        return info.shape.from_json(value)
    if annotation is float:
        if type(value) is int and _misfit(info, value) is None:
            return float(value)
        return SPECIAL_DOUBLES.get(value, value) if isinstance(value, str) else value
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        members: Iterable[enum.Enum] = annotation
        return next((member for member in members if to_json(member) == value), value)
    return value


def _with_type(fault: InputFault, info: FieldInfo) -> InputFault:
    return fault._replace(problem=f"{fault.problem}; the field is {info.type.name}")


def _misfit(info: FieldInfo, value: Any) -> str | None:
    try:
        written = info.write(value)
    except ValueError as error:
        return str(error)
    for member, stored in written:
        if info.stored and isinstance(stored, str) and len(stored) > MAX_VALUE_BYTES // 4:
            excess = excess_of(stored, member.type.edm)
            if excess is not None:
                return f"has {excess[0]} as it is stored, {excess[1]} are allowed"
    return None


def _find_faults(annotation: Any, value: Any, path: Path) -> Iterator[InputFault]:
    """Yield what keeps a value from being converted to a type: of a list, dict or class what is wrong in it."""
    bare, optional = split_optional(annotation)
    while typing.get_origin(bare) is Annotated:
        bare = typing.get_args(bare)[0]
    origin, arguments, members = typing.get_origin(bare), typing.get_args(bare), members_of(bare)
    if optional and cast("object", value) is None:
        return
    if members is not None and isinstance(cast("object", value), Mapping):
        given: Mapping[str, Any] = value
        validated = _validated_members(bare)
        for name, each in given.items():
            if name in members:
                faults = list(islice(_find_faults(members[name][0], each, (*path, name)), MAX_FAULTS))
                if not faults and name in validated:
                    faults = list(_ask_validator(validated[name], bare, members[name][0], each, (*path, name)))
                yield from faults
            else:
                problem = f"is given for a member that does not exist; {bare.__name__} has {', '.join(members)}"
                yield InputFault((*path, str(name)), problem, each, "unknown")
        for name, (hint, required) in members.items():
            if required and name not in given:
                problem = f"is missing; the member is {annotation_name(hint)}"
                yield InputFault((*path, name), problem, None, "missing")
    elif is_pydantic_model(bare):
        yield from find_pydantic_faults(bare, value, path)
    elif origin in (list, set, frozenset) and isinstance(cast("object", value), list):
        items: list[Any] = value
        for number, each in enumerate(items):
            yield from _find_faults(arguments[0], each, (*path, number))
    elif origin is dict and isinstance(cast("object", value), dict):
        mapping: dict[Any, Any] = value
        for key, each in mapping.items():
            yield from _find_faults(arguments[1], each, (*path, key if isinstance(key, int) else str(key)))
    else:
        try:
            found = _convert(value, annotation)
        except (msgspec.ValidationError, *REFUSALS) as error:
            yield _fault(path, value, error)
        else:
            if (isinstance(found, float) and not math.isfinite(found)) or (
                isinstance(found, Decimal) and found.is_nan()
            ):
                yield InputFault(
                    path, "is rejected: JSON text keeps neither NaN nor infinite floats; give a finite number", value
                )


@lru_cache(1024)
def _validated_members(kind: type[Any]) -> Mapping[str, Any]:
    """Return the attributes of an attrs class that have validators, by name; none for other classes."""
    return {each.name: each for each in attrs.fields(kind) if each.validator} if attrs.has(kind) else {}


def _ask_validator(attribute: Any, kind: type[Any], hint: Any, value: Any, path: Path) -> Iterator[InputFault]:
    """Yield what the validator of a member refuses; one that looks at other members is asked when all of them fit."""
    try:
        attribute.validator(object.__new__(kind), attribute, _convert(value, hint))
    except REFUSALS as error:
        yield _refusal(path, error, value)
    except AttributeError:
        pass


def _refusal(path: Path, error: Exception, value: Any) -> InputFault:
    if isinstance(error, EncodeError):
        return InputFault(path, error.problem, value)
    if isinstance(error, ArithmeticError):
        return InputFault(path, "is rejected: it cannot be compared or computed with", value)
    if isinstance(error, KeyError):
        return InputFault(path, f"is rejected: {error} is not known", value)
    said = error.args[0] if error.args else repr(error)  # attrs puts the message before what it is about
    return InputFault(path, f"is rejected: {said}", value)


@lru_cache(1024)
def members_of(kind: object) -> dict[str, tuple[Any, bool]] | None:
    """Return the type of each member of a class, and whether it is required; None if it is no class with members."""
    if not isinstance(kind, type) or not (
        attrs.has(kind) or is_dataclass(kind) or typing.is_typeddict(cast("Any", kind))
    ):
        return None
    hints = typing.get_type_hints(cast("Any", kind), include_extras=True)
    info: Any = msgspec.inspect.type_info(kind)
    return {each.name: (hints[each.name], each.required) for each in info.fields}


def _fault(path: Path, value: Any, error: Exception) -> InputFault:
    """
    Return the fault that msgspec reports, or a validator that it calls.

    The message of msgspec ends with the place, such as ``- at `$[2].price` ``.
    """
    if isinstance(error, (ArithmeticError, LookupError)):
        return _refusal(path, error, value)
    text, _, place = str(error).partition(" - at `")
    for name, number in re.findall(r"\.([^.\[\]`]+)|\[(\d+)\]", place if place.startswith("$") else ""):
        path = (*path, name or int(number))
    return InputFault(path, f"does not fit: {text}", value)
