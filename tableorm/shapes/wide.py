"""
Wide entities: entities of more properties than a row holds, each stored in several rows of its partition.

`class Year(Entity, ..., wide=True)` stores 200 properties a row, `wide=100` a hundred. The first row, the guard, has
the entity's key and the first properties; the others are the parts, with `~01`, `~02` and so on behind the RowKey. A
part carries the token of its last write, and the guard says which token each part must carry: so nobody takes rows of
different writes for one entity. `docs/design/wide-entities.md` has the protocol.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, NamedTuple

from ..errors import ModelError, shown
from ..keys.template import Template
from ..models.property_types import FieldInfo
from ..models.reserved import ENTITY_TYPE, PART, PLACES, WRITE_TOKENS
from ..models.row_stage import STAGE_KEYWORDS, SplitStage
from ..models.schema import Schema
from ..models.write_tokens import newest_token
from ..protocol.edm import ANNOTATION, SYSTEM_MEMBERS
from ..protocol.limits import MAX_CUSTOM_PROPERTIES
from ..stores import Operation, Row, Verb

_USUAL = 200
_MOST_PARTS = 99
# Of the 252 properties of a guard these are kept for kind, version, write tokens, manifest and mark.
_ROOM = MAX_CUSTOM_PROPERTIES - 5
_MOST_SELECTED = 100  # names in a request; for more, all properties are read

_HEADS = {number: f"_p{number:02d}" for number in range(1, _MOST_PARTS + 1)}
_HEAD_NAMES = frozenset(_HEADS.values())
_OF_A_ROW = SYSTEM_MEMBERS | {ENTITY_TYPE, WRITE_TOKENS}


class _Places(NamedTuple):
    """
    What a row of an entity has as `PLACES`.

    Args:
        there: The numbers of the parts that there are.
        names: By row, the members that it has, or those that it has though another one is declared. Only a write has to
            know the latter, and finding them takes as long as joining the rows.
    """

    there: AbstractSet[int]
    names: Mapping[int, Sequence[str]]


_NO_PLACES = _Places(frozenset(), {})


class WideStage(SplitStage):
    """
    The stage of a wide model. A property has its part by the order of declarations, for good: whatever is found
    elsewhere, since the declarations were others when it was written, stays there until it is written as a whole.

    A row of an entity has the property `PLACES`, which is stored nowhere.

    Args:
        model: Name of the model that declares it.
        size: How many properties a row has.
    """

    def __init__(self, model: str, size: int) -> None:
        self.size = size
        if not 1 <= size < _ROOM:
            raise ModelError(
                f"{model}: wide={size} is rejected: give True, for {_USUAL} properties a row, or a number from 1 to "
                f"{_ROOM - 1}"
            )
        self._model = model
        self._part_of: dict[str, int] = {}
        self._members: dict[int, list[str]] = {}

    def bind(self, fields: Mapping[str, FieldInfo]) -> "WideStage":
        """See `RowStage`."""
        bound = WideStage(self._model, self.size)
        names = [member.property for info in fields.values() if info.stored for member in info.members]
        parts = _parts_needed(len(names), self.size)
        if parts > _MOST_PARTS or self.size + parts > _ROOM:
            sizes = (n for n in range(1, _ROOM) if _parts_needed(len(names), n) <= min(_MOST_PARTS, _ROOM - n))
            fit = next(sizes, None)
            remedy = f"declare wide={fit}" if fit else "store several entities, such as one for each month"
            raise ModelError(
                f"{self._model} stores {len(names)} properties, which are {parts} parts of {self.size} beside the "
                f"first row; an entity has {_MOST_PARTS} parts at most, and its first row holds {_ROOM} properties, "
                f"one for each part among them; {remedy}"
            )
        bound.most_rows = parts + 1
        bound._part_of = {name + end: at // self.size for at, name in enumerate(names) for end in ("", ANNOTATION)}
        bound.elsewhere = frozenset(names)
        for number in range(parts + 1):
            bound._members[number] = [name for name, at in bound._part_of.items() if at == number]
        return bound

    def check(self, schema: Schema) -> None:
        """See `RowStage`. What reads or writes the row of an entity by itself is rejected."""
        refused = f"{schema.name}: wide={self.size} is rejected"
        if schema.kind is None or schema.discriminator != "property":
            raise ModelError(f"{refused}: a kind tells parts from entities; leave kind and discriminator out")
        self.kind = schema.kind
        if self.most_rows == 1:
            raise ModelError(
                f"{refused}: its {len(self.elsewhere)} properties fit into one row, which costs less; leave it out, or "
                "declare fewer properties a row; it can be added later"
            )
        if not _is_prefix_free(schema.templates()[1]):
            raise ModelError(
                f"{refused} with row_key={schema.templates()[1].text!r}: one RowKey can be the beginning of another, "
                "whose rows would lie among the parts of the first; give its last fields a fixed width, as in "
                "{id:06d}, or close a number with literal text, as in {id}_"
            )
        uses = {f"field(maintained=True) of {info.name}": "others write it" for info in schema.maintained}
        expiring = [info.name for info in schema.fields.values() if info.expiry]
        uses |= {f"field(expiry=True) of {name}": "the store finds expired rows by it" for name in expiring}
        for each in schema.derived.values():
            if each.name in schema.fields:
                continue  # a blob, of which the entity has all
            keys = {name for template in schema.templates() for name in template.fields}
            for template in (*each.row_templates(), each.partition):
                keys.update(template.fields if template is not None else ())
            if each.deferred:
                uses[each.label] = "it has rows in other partitions"
            elif each.row_schema is not None and not each.row_schema.fields.keys() <= keys:
                uses[each.label] = "its entries are rows of one part; declare it with include='keys'"
        for what, why in uses.items():
            raise ModelError(f"{refused} with {what}: {why}")

    def seal(self, operation: Operation) -> Operation:
        """See `RowStage`."""
        return operation

    def unseal(self, row: Row) -> Row:
        """See `RowStage`."""
        if PLACES not in row and not _HEAD_NAMES.isdisjoint(row):
            raise ValueError("it is the first of several rows, which were not read together")
        return row

    # Writing

    def split(self, operation: Operation, stored: Row | None) -> list[Operation]:
        """See `SplitStage`."""
        verb, row = operation.verb, operation.row
        stored = None if verb is Verb.INSERT else stored
        there, moved = _places_of(stored).there, self._moved(stored)
        if verb is Verb.DELETE:
            return [operation, *(Operation(Verb.DELETE, _keys(row, number), "*") for number in sorted(there))]
        token, parts = newest_token(row), defaultdict[int, Row](dict)
        part_of = {**self._part_of, **{name + end: n for name, n in moved.items() for end in ("", ANNOTATION)}}.get
        for member, value in row.items():
            parts[part_of(member, 0)][member] = value
        first = parts.pop(0)
        first.pop(PLACES, None)
        operations: list[Operation] = []
        for number in sorted(parts.keys() | there if verb is Verb.REPLACE else parts):
            if number not in parts:
                operations.append(Operation(Verb.DELETE, _keys(row, number), "*"))
                continue
            first[_HEADS[number]] = token
            members = {**_keys(row, number), ENTITY_TYPE: self.kind + PART, WRITE_TOKENS: token, **parts[number]}
            same = number in there
            condition = "*" if same else None
            operations.append(Operation(verb if same else Verb.INSERT, members, condition, operation.canonical))
        return [Operation(verb, first, operation.if_match, operation.canonical), *operations]

    def noted(self, row: Row, stored: Row | None) -> Row:
        """See `SplitStage`."""
        moved, names = self._moved(stored), defaultdict[int, list[str]](list)
        own = row.keys() - moved.keys() - {name + ANNOTATION for name in moved} if moved else row.keys()
        there = {number for number, usual in self._members.items() if not own.isdisjoint(usual)}
        for name in row.keys() & moved.keys():
            names[moved[name]].append(name)
        return row | {PLACES: _Places((there | names.keys()) - {0}, names)}

    def _moved(self, row: Row | None) -> dict[str, int]:
        """Return the properties that are in another row than declared, each with the number of that row."""
        moved = dict[str, int]()
        for number, names in _places_of(row).names.items():
            for name in moved.keys() & names:  # another program has written it twice, and the last one counts
                del moved[name]
            for member in {*names}.difference(self._members.get(number, ())):
                name = member.removesuffix(ANNOTATION)
                if name not in _OF_A_ROW and self._part_of.get(name, 0) != number:
                    moved[name] = number
        return moved

    # Reading

    def owner_of(self, row_key: str) -> str:
        """See `SplitStage`."""
        return row_key[:-3]

    def last_key(self, row_key: str) -> str:
        """See `SplitStage`."""
        return f"{row_key}~{_MOST_PARTS}"

    def further_keys(self, row: Row) -> list[str]:
        """See `SplitStage`."""
        return [_keys(row, number)["RowKey"] for number in _places_of(row).there]

    def is_in_first(self, select: tuple[str, ...] | None) -> bool:
        """See `SplitStage`."""
        return select is not None and self.elsewhere.isdisjoint(select)

    def asks_for(self, select: tuple[str, ...] | None) -> tuple[str, ...] | None:
        """See `SplitStage`. A newer program may have made more parts than are declared."""
        if select is None or len(select) > _MOST_SELECTED:
            return None
        return tuple(dict.fromkeys((*select, WRITE_TOKENS, *_HEADS.values())))

    def join(self, first: Row, others: Sequence[Row]) -> Row | None:
        """
        See `SplitStage`. What the guard says was true when it was read. So a part that it does not name was made or
        deleted meanwhile, and is left out.
        """
        row = dict(_present(first))
        heads = {name: row.pop(name) for name in sorted(row.keys() & _HEAD_NAMES)}
        found = {"_p" + other["RowKey"][-2:]: other for other in others}
        names = {0: tuple(row)}
        for name, head in heads.items():
            part = found.get(name)
            if part is None or newest_token(part) != head:
                return None
            part = _present(part)
            row.update(part)
            names[int(name[2:])] = tuple(part)
        row.update((name, first[name]) for name in _OF_A_ROW if name in first)
        row[PLACES] = _Places(names.keys() - {0}, names)
        return row

    def hint(self) -> str:
        """See `SplitStage`."""
        return f"The model stores {self.size} properties a row; declare fewer, such as wide={max(1, self.size // 2)}."


def _parts_needed(count: int, size: int) -> int:
    return max(0, -(-count // size) - 1)


def _keys(row: Row, number: int) -> Row:
    return {"PartitionKey": row["PartitionKey"], "RowKey": f"{row['RowKey']}~{number:02d}"}


def _present(row: Row) -> Row:
    """Return what a row has. A projection, which asks for the heads of all parts, gives None for what it has not."""
    return {name: value for name, value in row.items() if value is not None} if _HEADS[_MOST_PARTS] in row else row


def _places_of(row: Row | None) -> _Places:
    places = None if row is None else row.get(PLACES)
    return places if isinstance(places, _Places) else _NO_PLACES  # others may store anything under the name


def _is_prefix_free(template: Template) -> bool:
    """Return whether no key of a template is the beginning of another one."""
    parts = template.parts
    varying = [at for at, part in enumerate(parts) if part.format.atoms is None]
    if not varying:
        return True
    last = varying[-1]
    end, form = parts[last + 1].literal[:1] if last + 1 < len(parts) else "", parts[last].format
    return bool(end) and form.alphabet is not None and end not in form.alphabet


def _make_stage(model: str, value: Any) -> WideStage:
    if type(value) not in (bool, int):
        raise ModelError(f"{model}: wide={shown(value)} is rejected: give True, or the number of properties a row has")
    return WideStage(model, _USUAL if value is True else value)


STAGE_KEYWORDS["wide"] = _make_stage
