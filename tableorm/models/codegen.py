"""
Encoders and decoders of a model, generated once per class.

The generated functions are straight-line code over a row (the parsed OData object) and an entity's own dictionary:
plain types in place, everything else through the functions of `tableorm.models.property_types`. They only know the good
case; what does not fit is left to the slow functions, which know how to say what is wrong.
"""

import datetime as dt
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any
from uuid import UUID

import msgspec

from ..keys.bounds import Part
from ..keys.escapes import ESCAPE, unescape
from ..keys.format import Format
from ..keys.template import Template
from ..protocol.edm import ANNOTATION, Edm, check_datetime, check_text, datetime_from_text
from ..protocol.limits import MAX_KEY_UNITS
from .property_types import FieldInfo, Member
from .state import STATE, EntityState, PackedState, packed_state

Decoder = Callable[[dict[str, Any]], Any]
Encoder = Callable[[dict[str, Any], str, str], tuple[dict[str, Any], int]]

ANNOTATED = frozenset({Edm.INT64, Edm.DATETIME, Edm.GUID, Edm.BINARY})
"""The types that JSON does not tell, so that each value has its annotation beside it."""

_UNANNOTATED = frozenset({Edm.STRING, Edm.INT32})
"""The types whose values have an annotation only if they are of another type."""

_MOST_STACKED = 200


class FunctionSource:
    """Lines of a function, and the objects they refer to by name."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.names: dict[str, Any] = {"dict": dict, "str": str, "int": int, "float": float, "type": type, "len": len}

    def add(self, indent: int, *lines: str) -> None:
        """Add lines."""
        self.lines += ["    " * indent + line for line in lines]

    def put(self, name: str) -> str:
        """Where a decoder puts the value of a field."""
        return f"own[{name!r}]"

    def build(self, name: str, label: str) -> Any:
        """Return the function of this name, which the lines define."""
        code = compile("\n".join(self.lines), f"<generated {label}>", "exec")
        space: dict[str, Any] = {"__builtins__": {}, **self.names}
        exec(code, space)  # the text is made here, of names that were checked to be identifiers
        return space[name]


def make_decoder(
    model: type[Any],
    fields: Sequence[FieldInfo],
    keys: Sequence[tuple[str, Template, Sequence[str]]],
    *,
    partial: bool = False,
    constant: Mapping[str, Any] | None = None,
    written: Sequence[str] = (),
) -> Decoder:
    """
    `decode(row) -> entity` for a row of the model's own kind and version.

    The entity remembers the row: its ETag, its keys, and what the model does not know. A row that has nothing unknown
    is remembered as the tuple of its values.

    Args:
        model: The class.
        fields: The stored fields.
        keys: For PartitionKey and RowKey: the member's name, its template, and the fields to take from it.
        partial: The row has no more than these fields, and the entity shall know that.
        constant: What all rows of the kind have; None if rows are remembered as they are.
        written: The properties that a row may have besides, because writes make them.
    """
    source = FunctionSource()
    source.names |= {
        "new": object.__new__,
        "model": model,
        "moment": dt.datetime.fromisoformat,
        "UTC": dt.UTC,
        "to_utc": _read_datetime,
        "UUID": UUID,
    }
    source.add(0, "def decode(row):")
    source.names["state"] = EntityState
    packs = constant is not None and not partial
    source.add(1, "entity = new(model)", "own = entity.__dict__")
    if packs:
        source.add(1, f"size = {_most_members(fields, constant or {}) + len(written)}")
    if partial:
        source.names["LOADED"] = frozenset(
            {*(f.name for f in fields), *(name for _, _, names in keys for name in names)}
        )
        source.add(1, f"{source.put(STATE)} = state(stored=row, partial=True, loaded=LOADED)")
    taken = set[str]()
    for number, (member, template, wanted) in enumerate(keys):
        source.add(1, f"{member} = key = row[{member!r}]")
        if taken & template.full_fields:
            _decode_parts(source, number, template, wanted, taken)
        elif wanted:
            _decode_key(source, number, member, template, wanted)
        taken.update(wanted)
    number = 0
    for field in fields:
        _decode_field(source, number, field, packs=packs)
        number += len(field.members)
    if packs:
        source.names["packed"] = _make_packed(model.__name__, fields, constant or {}, written)
        _remember(source, fields, constant or {}, written)
    elif not partial:
        source.add(1, f"{source.put(STATE)} = state(stored=row)")
    source.add(1, "return entity")
    decode: Decoder = source.build("decode", f"decoder of {model.__name__}")
    return decode


def _most_members(fields: Sequence[FieldInfo], constant: Mapping[str, Any]) -> int:
    """The members of a row that has all that is declared, and nothing else."""
    return 4 + len(constant) + sum(1 + (member.type.edm in ANNOTATED) for member in _members_of(fields))


def _members_of(fields: Sequence[FieldInfo]) -> list[Member]:
    """Return the members of fields, in the order of their numbers in generated code."""
    return [member for field in fields for member in field.members]


def _remember(
    source: FunctionSource, fields: Sequence[FieldInfo], constant: Mapping[str, Any], written: Sequence[str]
) -> None:
    """Let the entity remember the values of a row that has nothing unknown, `size` members, and otherwise the row."""
    for number, name in enumerate(written):
        source.add(1, f"written{number} = row.get({name!r})", f"if written{number} is None: size -= 1")
    tests = ["len(row) == size"]
    for number, (name, value) in enumerate(constant.items()):
        source.names[f"constant{number}"] = value
        tests.append(f"row[{name!r}] == constant{number}")
        if not isinstance(value, str):
            tests.append(f"type(row[{name!r}]) is {type(value).__name__}")
    values = ["row['odata.etag']", "row['Timestamp']", "PartitionKey", "RowKey"]
    values += [f"written{number}" for number in range(len(written))]
    values += [f"raw{number}" for number in range(len(_members_of(fields)))]
    put = source.put(STATE)
    source.names["KeyError"] = KeyError
    source.add(1, "try:", f"    if {' and '.join(tests)}:", f"        {put} = packed({', '.join(values)})")
    source.add(1, "        return entity", "except KeyError:", "    pass", f"{put} = state(stored=row)")
    whole = {field.name for field in fields if field.shape is None}
    for number, member in enumerate(_members_of(fields)):
        if member.type.inline and member.type.edm in _UNANNOTATED and member.field in whole:
            annotation = member.property + ANNOTATION
            slow = f"{source.put(member.field)} = slow{number}(raw{number}, row.get({annotation!r}))"
            source.add(1, f"if {annotation!r} in row and raw{number} is not None: {slow}")


def _make_packed(
    label: str, fields: Sequence[FieldInfo], constant: Mapping[str, Any], written: Sequence[str]
) -> type[PackedState]:
    """The state of entities whose rows have nothing unknown, with the function that makes the row again."""
    source = FunctionSource()
    members = "".join(f", {name!r}: {value!r}" for name, value in constant.items())
    heads = {"odata.etag": "stored_etag", "Timestamp": "stored_timestamp"}
    heads |= {"PartitionKey": "partition_key", "RowKey": "row_key"}
    row = ", ".join(f"{member!r}: state.{name}" for member, name in heads.items())
    source.add(0, "def unpack(state):")
    source.add(1, f"row = {{{row}{members}}}")
    for number, name in enumerate(written):
        source.add(1, f"if state.written{number} is not None: row[{name!r}] = state.written{number}")
    members_of_fields = _members_of(fields)
    for number, member in enumerate(members_of_fields):
        edm, annotation = member.type.edm, member.property + ANNOTATION
        source.add(1, f"value = state.raw{number}", "if value is not None:", f"    row[{member.property!r}] = value")
        if edm in ANNOTATED:
            source.add(2, f"row[{annotation!r}] = {edm.value!r}")
    source.add(1, "return row")
    names = [f"written{number}" for number in range(len(written))]
    names += [f"raw{number}" for number in range(len(members_of_fields))]
    return packed_state(label, names, source.build("unpack", f"rows of {label}"))


def _decode_key(source: FunctionSource, number: int, member: str, template: Template, wanted: Sequence[str]) -> None:
    head, part = template.single or ("", None)
    form = part.format if part is not None else None
    in_place = form is not None and (form.free or form.decimal)
    if part is None or part.field is None or form is None or not in_place:
        if member == "PartitionKey":  # it repeats from row to row
            # What has more characters than a key can have is not kept.
            source.names |= {f"parse{number}": template.parse, f"parse_again{number}": lru_cache(4096)(template.parse)}
            source.add(1, f"values = (parse_again{number} if len(key) <= {MAX_KEY_UNITS} else parse{number})(key)")
            source.add(1, *(f"{source.put(name)} = values[{name!r}]" for name in wanted))
        else:
            _decode_parts(source, number, template, wanted, ())
        return
    source.names |= {f"from{number}": form.from_text, "unescape": unescape, "ValueError": ValueError}
    source.add(1, "if type(key) is not str: raise ValueError(key)")  # it has half of a surrogate pair
    if head:
        source.add(1, f"if key[:{len(head)}] != {head!r}: raise ValueError(key)", f"key = key[{len(head)}:]")
    if form.free:
        if not part.verbatim:
            source.add(1, f"if {ESCAPE!r} in key: key = unescape(key, {part.separator!r})")
        source.add(1, f"{source.put(part.field)} = " + ("key" if form.from_text is str else f"from{number}(key)"))
        return
    source.add(1, f"{source.put(part.field)} = value = int(key)")
    fits = (
        "str(value) == key"
        if form.atoms is None
        else f"key.isdecimal() and key.isascii() and len(key) == {len(form.atoms)}"
    )
    if form.atoms is None or form.high < 10 ** len(form.atoms) - 1:
        fits += f" and {form.low} <= value <= {form.high}"
    source.add(1, f"if not ({fits}): raise ValueError(key)")


def _decode_parts(
    source: FunctionSource, number: int, template: Template, wanted: Sequence[str], taken: Iterable[str]
) -> None:
    """
    Take fields from a key by the groups of its match, as `Template.parse` does.

    Args:
        source: The function so far.
        number: The number of the key.
        template: Its template.
        wanted: The fields to take from it.
        taken: The fields that were taken from the other key, and must have the same values in this one.
    """
    known = set(taken)
    source.names |= {f"match{number}": template.match, "unescape": unescape, "ValueError": ValueError}
    source.add(1, f"found = match{number}(key)", "if found is None or type(key) is not str: raise ValueError(key)")
    for group, part in enumerate(template.field_parts, 1):
        form = part.format
        if part.field is None or not form.full:
            continue
        escaped = form.free and not part.verbatim
        text = f"unescape(found[{group}], {part.separator!r})" if escaped else f"found[{group}]"
        if form.from_text is not str:
            source.names[f"from{number}_{group}"] = form.from_text
            text = f"from{number}_{group}({text})"
        if part.field in known:
            source.add(1, f"if {source.put(part.field)} != {text}: raise ValueError(key)")
        elif part.field in wanted:
            source.add(1, f"{source.put(part.field)} = {text}")
            known.add(part.field)
        else:  # a property has it too, but the key has to fit
            source.add(1, text)


_DECODERS = {
    Edm.STRING: ("type({raw}) is str", "{raw}"),
    Edm.BOOLEAN: ("{raw} is True or {raw} is False", "{raw}"),
    Edm.INT32: (f"type({{raw}}) is int and -{2**31} <= {{raw}} < {2**31}", "{raw}"),
    # A number of 18 characters is within the range.
    Edm.INT64: ("type({raw}) is str and row.get({annotation!r}) == 'Edm.Int64' and len({raw}) <= 18", "int({raw})"),
    Edm.DOUBLE: ("type({raw}) is float", "{raw}"),
    # With zero to seven digits of a second; Python reads more, and a date alone, which are no DateTime.
    Edm.DATETIME: (
        "row.get({annotation!r}) == 'Edm.DateTime' and 20 <= len({raw}) <= 28 and {raw} >= '1601'",
        "value if (value := moment({raw})).tzinfo is UTC else to_utc({raw})",
    ),
    Edm.GUID: ("row.get({annotation!r}) == 'Edm.Guid'", "UUID({raw})"),
}
"""By type of fields converted inline: what a value satisfies that is as the encoder writes it, and its value."""


def _read_datetime(text: str) -> dt.datetime:
    """Return a DateTime that is not in the form that the encoder writes. Raises ValueError."""
    check_datetime(text)
    return datetime_from_text(text)


def _decode_field(source: FunctionSource, number: int, field: FieldInfo, *, packs: bool) -> None:
    """Add the decoding of a field whose first member has this number."""
    put, absent = source.put(field.name), None
    if field.optional:  # as `FieldInfo.absent` says, without a call
        absent = "None"
    elif field.default is not None:
        source.names[f"default{number}"] = field.default
        absent = f"default{number}()"
    if field.shape is None:
        _decode_member(source, number, field.members[0], put, absent, packs=packs)
        return
    source.names |= {f"read{number}": field.shape.read, "KeyError": KeyError}
    numbers = range(number, number + len(field.members))
    for each, member in zip(numbers, field.members, strict=True):
        _decode_member(source, each, member, f"part{each}", "None", packs=packs, part=True)
    source.add(1, f"if {' is '.join(f'part{each}' for each in numbers)} is None:")
    source.add(2, f"raise KeyError({field.name!r})" if absent is None else f"{put} = {absent}")
    # For a frame of more than 16 KiB, Python maps memory at each call: so few values are on its stack together.
    runs = [numbers[at : at + _MOST_STACKED] for at in range(0, len(numbers), _MOST_STACKED)]
    values = " + ".join(f"({', '.join(f'part{each}' for each in run)},)" for run in runs)
    source.add(1, "else:", f"    {put} = read{number}({values})")


def _decode_member(
    source: FunctionSource,
    number: int,
    member: Member,
    put: str,
    absent: str | None,
    *,
    packs: bool,
    part: bool = False,
) -> None:
    """
    Add the decoding of a property.

    Args:
        source: The function so far.
        number: The number of the member.
        member: The member.
        put: Where its value is put.
        absent: What is put there if the row does not have it; None if it must.
        packs: Whether the row may be remembered as the tuple of its values.
        part: Whether the value is but a part of that of its field.
    """
    prop, annotation, edm = member.property, member.property + ANNOTATION, member.type.edm
    raw = f"raw{number}" if packs else "raw"
    source.names[f"slow{number}"] = member.type.decode
    indent = 1
    slow = f"{put} = slow{number}({raw}, row.get({annotation!r}))"
    if absent is not None:
        source.add(1, f"{raw} = row.get({prop!r})", f"if {raw} is None:")
        if packs:
            source.add(2, f"size -= {1 + (edm in ANNOTATED)}")
        source.add(2, f"{put} = {absent}")
        source.add(1, "else:")
        indent = 2
    else:
        source.add(1, f"{raw} = row[{prop!r}]")
    if member.type.inline and edm in _DECODERS:
        test, value = (text.format(raw=raw, annotation=annotation) for text in _DECODERS[edm])
        if (part or not packs) and edm in _UNANNOTATED:
            # In a row that is packed it is looked for only where the row has something unknown.
            test += f" and {annotation!r} not in row"
        source.add(indent, f"if {test}:", f"    {put} = {value}", "else:", f"    {slow}")
        # A value that is not as the encoder writes it is remembered with its row.
        source.add(indent, *["    size = 0"] * packs)
        return
    if packs and edm in ANNOTATED:
        source.add(indent, f"if row.get({annotation!r}) != {edm.value!r}: size = 0")
    source.add(indent, slow)


def make_encoder(
    label: str,
    fields: Sequence[FieldInfo],
    slow: Callable[[FieldInfo, Callable[[Any], Any]], Callable[[Any], Any]],
    constant: dict[str, Any],
) -> Encoder:
    """
    `encode(own, partition_key, row_key) -> (row, weight)`: the stored fields of an entity's dictionary as a row.

    The weight is the number of characters of everything of varying size: none takes more than four bytes.

    Args:
        label: Name of the model.
        fields: The stored fields.
        slow: Makes the slow function of a field of one that converts a value or raises ValueError: it raises an
            EncodeError that names the field.
        constant: What all rows have.

    Raises:
        EncodeError: From the generated function: a value does not fit its field.
    """
    source = FunctionSource()
    source.names |= {"check_text": check_text, "datetime": dt.datetime, "UTC": dt.UTC, "plain": msgspec.to_builtins}
    members = "".join(f", {name!r}: {value!r}" for name, value in constant.items())
    source.add(0, "def encode(own, partition_key, row_key):")
    source.add(1, "weight = 0", f"row = {{'PartitionKey': partition_key, 'RowKey': row_key{members}}}")
    number = 0
    for field in fields:
        source.add(1, f"value = own[{field.name!r}]")
        indent = 1
        if field.optional:
            source.add(1, "if value is not None:")
            indent = 2
        if field.shape is not None:
            source.names[f"split{number}"] = slow(field, field.split)
            source.add(indent, f"parts = split{number}(value)")
        for part, member in enumerate(field.members):
            source.names[f"slow{number}"] = slow(field, member.type.encode)
            lines = _encode_member(number, member)
            if field.shape is not None:
                lines = [f"value = parts[{part}]", "if value is not None:", *("    " + line for line in lines)]
            source.add(indent, *lines)
            number += 1
    source.add(1, "return row, weight")
    encode: Encoder = source.build("encode", f"encoder of {label}")
    return encode


_ENCODERS = {
    Edm.STRING: ("type(value) is str and (value.isascii() or check_text(value) is None)", ""),
    Edm.BOOLEAN: ("value is True or value is False", ""),
    Edm.INT32: (f"type(value) is int and -{2**31} <= value < {2**31}", ""),
    Edm.INT64: (f"type(value) is int and -{2**63} <= value < {2**63}", "str(value)"),
    Edm.DOUBLE: ("type(value) is float and value - value == 0.0", ""),  # finite
    Edm.DATETIME: (
        "type(value) is datetime and value.tzinfo is UTC and value.year >= 1601",
        # A quarter of the time of isoformat(); there are microseconds only if they are not 0.
        "text[:19] + '.0000000Z' if len(text := plain(value)) == 20 else text[:26] + '0Z'",
    ),
}
"""By type of fields converted inline: what a value satisfies that fits, and what is stored if it is not the value."""


def _encode_member(number: int, member: Member) -> list[str]:
    prop, edm = member.property, member.type.edm
    annotate = f"row[{prop + ANNOTATION!r}] = {edm.value!r}"
    lines = [f"value = slow{number}(value)"]
    if edm is Edm.DOUBLE:  # NaN and the infinities are spelt out
        lines += ["if type(value) is str:", f"    {annotate}"]
    if member.type.inline and edm in _ENCODERS:
        test, stored = _ENCODERS[edm]
        slow = ["    " + line for line in lines]
        lines = [f"if {test}:", f"    value = {stored}", "else:", *slow] if stored else [f"if not ({test}):", *slow]
    if edm in ANNOTATED:
        lines.append(annotate)
    lines.append(f"row[{prop!r}] = value")
    if edm in (Edm.STRING, Edm.BINARY):
        lines.append("weight += len(value)")
    return lines


def make_key_function(label: str, partition: Template, row: Template) -> Callable[[Mapping[str, Any]], tuple[str, str]]:
    """
    `keys(values) -> (PartitionKey, RowKey)`.

    Plain text, padded numbers and dates as ISO 8601 has them are written in place; whatever needs an escape, or does
    not fit, is left to the templates. A key is made for each read and each write.
    """

    def format_keys(values: Mapping[str, Any]) -> tuple[str, str]:
        return partition.format(values), row.format(values)

    tests = [(part.field, _key_test(part)) for part in (*partition.parts, *row.parts) if part.field is not None]
    if any(test is None for _, test in tests):
        return format_keys
    source = FunctionSource()
    source.names |= {"format_keys": format_keys, "date": dt.date}
    names = {field: f"value{number}" for number, field in enumerate(dict.fromkeys(field for field, _ in tests))}
    source.add(0, "def keys(values):")
    source.add(1, "get = values.get", *(f"{name} = get({field!r})" for field, name in names.items()))
    conditions = [str(test).format(names[field]) for field, test in dict.fromkeys(tests)] or ["True"]
    source.add(1, f"if {' and '.join(conditions)}:")
    for key, template in (("partition", partition), ("row", row)):
        texts = [_key_text(part, names) for part in template.parts]
        source.add(2, f"{key} = {' + '.join(texts) or repr('')}")
    source.add(2, f"if len(partition) <= {_SHORT_KEY} and len(row) <= {_SHORT_KEY}:", "    return partition, row")
    source.add(1, "return format_keys(values)")
    keys: Callable[[Mapping[str, Any]], tuple[str, str]] = source.build("keys", f"keys of {label}")
    return keys


_SHORT_KEY = MAX_KEY_UNITS // 2  # characters: each is two units at most


def _key_test(part: Part) -> str | None:
    """Whether a value can be written in place; None if none of the field's can."""
    form = part.format
    if form.free:
        plain = form.from_text is str and form.to_text("aA1") == "aA1" and not part.separator.isalnum()
        return "type({0}) is str and {0}.isascii() and {0}.isalnum()" if plain else None
    if _is_iso_date(form):
        return "type({0}) is date"
    if form.decimal and form.atoms is not None:
        return f"type({{0}}) is int and 0 <= {{0}} <= {form.high}"
    return None


def _is_iso_date(form: Format) -> bool:
    return form.full and form.text == "%Y-%m-%d"


def _key_text(part: Part, names: Mapping[str, str]) -> str:
    if part.field is None:
        return repr(part.literal)
    name = names[part.field]
    if _is_iso_date(part.format):
        return f"{name}.isoformat()"
    return name if part.format.free else f"str({name}).zfill({len(part.format.atoms or ())})"
