"""
Marker rows: rows of tableorm's own which are not entities. By them a change of several partitions keeps its state, or a
partition its change feed.

A marker row has a kind of its own, so that no filter for a model's kind finds it:

    Employee#_tentative:2   the new place of an entity while it is moved; an index entry is Employee#by_email#_tentative
    Employee#_forward       the place that an entity has left
    Employee#_part          a further row of an entity that is stored in several rows
    #_decision              what became of a change, and what is left to do for it; its RowKey begins with `~o_`
    #_blob                  that of a blob, which is a field of an entity; its RowKey begins with `~b_`
    #_change                what a transaction has changed, in a change feed; its RowKey begins with `~f_`
    #_subtotal              what the entities of a partition add to a count or sum; its RowKey begins with `~n_`
    #_share                 beside a count or sum, what that has of the subtotal of a partition; the same
    #_feed                  how far the change feed of a partition is; its RowKey is `~f_counter`

Both rows of a move have a mark, the property `_mv`: the id of the move, and the key of the other row. The entity gets
it before the move. When the tentative row has become the entity's row it is marked as confirmed, until the forward is
gone.

No model and no declaration has a name that begins with an underscore, so no other row has such a kind.
"""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import msgspec

from ..errors import DecodeError, ModelError, shown
from ..keys.overlap import may_meet
from ..keys.parse import parse_template
from ..keys.template import Template
from ..protocol.edm import ANNOTATION
from ..stores import Row, RowAddress, row_keys, unstamped
from .placement import declared_models, rows_of
from .reserved import ENTITY_TYPE, MANIFEST, MOVE, SUBTOTAL_HEAD, WRITE_TOKENS
from .schema import Schema, concrete
from .write_tokens import tokens_of, with_token

TENTATIVE = "#_tentative"
"""What the kind of a tentative row has behind the kind of the entity or index entry."""

FORWARD = "#_forward"
"""What the kind of a forward has behind the kind of the entity."""

DECISION_KIND = "#_decision"
"""The kind of decision rows."""

DECISION_HEAD = "~o_"
"""The text that the RowKey of each decision row begins with; the token of the change follows."""

BLOB_KIND = "#_blob"
"""The kind of the rows of blobs."""

BLOB_HEAD = "~b_"
"""The text that the RowKey of the row of each blob begins with; the token of its upload follows."""

CHANGE_KIND = "#_change"
"""The kind of the rows of a change feed, each of which says what a transaction has changed."""

FEED_KIND = "#_feed"
"""The kind of the row that counts the changes of a partition."""

FEED_HEAD = "~f_"
"""The text that the RowKey of each row of a change feed begins with."""

SUBTOTAL_KIND = "#_subtotal"
"""The kind of the row that says what the entities of its partition add to a count or sum."""

SHARE_KIND = "#_share"
"""The kind of the row beside a count or sum that says what that has of the subtotal of a partition."""

MARKER_HEADS = {
    DECISION_HEAD: "decision rows",
    FEED_HEAD: "the rows of change feeds",
    BLOB_HEAD: "the rows of blobs",
    SUBTOTAL_HEAD: "the rows of counts",
}
"""What RowKeys of marker rows begin with, and what those rows are called."""


class _Heads(NamedTuple):
    """What marker rows of a partition are called, what their RowKeys begin with, and all that these may be."""

    noun: str
    head: str
    keys: Template


_DECISIONS, _FEEDS, _BLOBS, _COUNTS = (
    _Heads(noun, head, parse_template(head + "{rest}", noun, "row_key", {"rest": str}))
    for head, noun in MARKER_HEADS.items()
)
_followers = WeakKeyDictionary[type[Any], str]()  # by model, a workflow or archive of its entities, for messages
_NEVER_KEPT = frozenset({MANIFEST, MANIFEST + ANNOTATION, WRITE_TOKENS + ANNOTATION})
_find_marker = re.compile(r"#_(?:tentative|forward|part|decision|change|feed|blob|subtotal|share)(?=:|\Z)").search


def is_marker(row: Row) -> bool:
    """Return whether a row is a marker row."""
    kind = row.get(ENTITY_TYPE)
    return isinstance(kind, str) and _find_marker(kind) is not None


class MoveState(StrEnum):
    """What a row is in a move."""

    LEAVING = "leaving"
    """The entity, which somebody who may change it is about to move: then a command to do so is believed."""
    TENTATIVE = "tentative"
    """The entity, if and only if the other row is the forward of the same move."""
    CONFIRMED = "confirmed"
    """The entity. The other row may still be the forward, which is deleted before anything is written here."""
    FORWARD = "forward"
    """The place that the entity has left."""
    SETTLED = "settled"
    """The place that an entity has left by the older model, or would have; nothing tentative comes true by it."""
    OLD = "old"
    """Of an entity in memory alone: it was read at the key that it has by the older model, in the other row."""

    @property
    def has_left(self) -> bool:
        """Whether it is a place that the entity has left, or would have."""
        return self in (MoveState.FORWARD, MoveState.SETTLED)


class MoveMark(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """
    What a row says of a move.

    Args:
        state: What the row is.
        move: The id of the move.
        other: Where the other row of the move is.
        etag: Of a tentative row, the ETag that the entity's row had when the move began; of a forward that stays, the
            ETag of the row that it has replaced.
        to_kind: Of an entity that is about to be moved, the kind that it gets, with its version.
        fields: The fields that it gets, as the command has them.
        stays: Whether the move is a step of a re-key: then the forward keeps what the row had, and is never deleted
            before all entities are moved, but becomes a settled one.
    """

    state: MoveState
    move: str
    other: RowAddress
    etag: str | None = None
    to_kind: str | None = None
    fields: dict[str, dict[str, Any]] | None = None
    stays: bool = False

    def names(self, place: RowAddress) -> bool:
        """Return whether the other row of the move is at an address."""
        return self.other.is_same(place)

    def to_text(self) -> str:
        """Return what is stored."""
        return msgspec.json.encode(self).decode()


_decode_mark = msgspec.json.Decoder(MoveMark).decode


def mark_of(row: Row | None) -> MoveMark | None:
    """
    Return what a row says of a move; None if it says nothing.

    Raises:
        DecodeError: It says what no program writes.
    """
    text = None if row is None else row.get(MOVE)
    if row is None or text is None:
        return None
    try:
        return _decode_mark(text)
    except (msgspec.DecodeError, RecursionError, TypeError):
        raise DecodeError(
            f"has {shown(text)} as {MOVE}, which is not the mark of a move; another program has written it: remove the "
            "property from an entity, and delete any other row",
            str(row.get(ENTITY_TYPE)),
            row_keys(row),
        ) from None


def is_forward(row: Row | None, move: str, target: RowAddress) -> bool:
    """Return whether a row is the forward of a move to a place."""
    mark = mark_of(row)
    return mark is not None and mark.state is MoveState.FORWARD and mark.move == move and mark.names(target)


def stays(row: Row) -> bool:
    """Return whether a row of a move is one of a re-key, whose forward keeps what the row had."""
    mark = mark_of(row)
    return mark is not None and mark.stays


def tentative_kind(kind: str) -> str:
    """Return the kind that a row has as long as it is tentative, from the kind with its version."""
    return _marker_kind(kind, TENTATIVE)


def _marker_kind(kind: str, marker: str) -> str:
    name, colon, version = kind.partition(":")
    return f"{name}{marker}{colon}{version}"


def row_of_marker(schema: Schema, row: Row) -> Row:
    """
    Return the row of the entity of a tentative row, or that a forward keeps, under the same ETag; a mark that it has
    stays away.
    """
    found = {name: value for name, value in row.items() if name not in (MOVE, ENTITY_TYPE)}
    if schema.discriminator == "property":
        found[ENTITY_TYPE] = str(row[ENTITY_TYPE]).replace(TENTATIVE, "").replace(FORWARD, "")
    return found


def forward_row(schema: Schema, row: Row, mark: MoveMark) -> Row:
    """
    Return the forward that takes the place of a row, and keeps nothing but its tokens.

    Args:
        schema: The model of the row.
        row: The row.
        mark: The mark of the forward.
    """
    return {
        "PartitionKey": row["PartitionKey"],
        "RowKey": row["RowKey"],
        ENTITY_TYPE: f"{schema.kind}{FORWARD}",
        WRITE_TOKENS: with_token(tokens_of(row), mark.move),
        MOVE: mark.to_text(),
    }


def kept_row(schema: Schema, row: Row, mark: MoveMark) -> Row:
    """
    Return the forward that keeps what a row has, besides what was derived from it.

    Args:
        schema: The model of the row.
        row: The row.
        mark: The mark of the forward.
    """
    kept = {name: value for name, value in unstamped(row).items() if name not in _NEVER_KEPT}
    kind = row[ENTITY_TYPE] if schema.discriminator == "property" else schema.kind
    kept[ENTITY_TYPE] = _marker_kind(str(kind), FORWARD)
    if mark.move:
        kept[WRITE_TOKENS] = with_token(tokens_of(row), mark.move)
    kept[MOVE] = mark.to_text()
    return kept


def is_kept_whole(row: Row) -> bool:
    """Return whether a forward keeps all that a row has, so that a merge can make one of it."""
    return _NEVER_KEPT.isdisjoint(row)


def check_marker_rows(schema: Schema, models: Sequence[Schema]) -> None:
    """
    Refuse a model if marker rows could be taken for its entities, or other models' because of what it declares.

    A table has decision rows if some model of it declares something that is deferred, or has a workflow or archive; a
    change feed if some model of it declares one; and rows of blobs if some model of it has a field of blobs.

    Args:
        schema: The new model.
        models: All models, as `declared_models` returns them.

    Raises:
        ModelError: A model of the table has no kind, or one that a function tells; or its rows, or rows that are
            derived from its entities, could have the key of a marker row.
    """
    tables = {rows.table.lower() for rows in rows_of(schema)}
    beside = [model for model in models if model.table_text().lower() in tables]
    causes = defaultdict[_Heads, dict[str, str]](dict)
    for model in beside:
        derived = model.derived.values()
        followers = [_followers[base] for base in model.model.__mro__ if base in _followers]
        labels = {
            _DECISIONS: [*(each.label for each in derived if each.deferred), *followers],
            _FEEDS: [each.label for each in derived if each.is_feed],
            _BLOBS: [f"{model.name}.{info.name}" for info in model.uploads],
        }
        for marked, found in labels.items():
            causes[marked].update({model.table_text().lower(): label for label in found})
    for marked, by_table in causes.items():
        _refuse_like_markers(marked, by_table, models)


def note_follower(schema: Schema, follower: str) -> None:
    """
    Note that writes of a model's entities may leave decision rows in its table, because something follows them.

    Args:
        schema: The model; an abstract base stands for all of its classes.
        follower: What follows them, for messages: "the workflow 'ship'".

    Raises:
        ModelError: What `check_marker_rows` raises of the models of the table that are declared by now.
    """
    for each in concrete(schema):
        _refuse_like_markers(_DECISIONS, {each.table_name().lower(): follower}, declared_models(each))
    _followers[schema.model] = follower


def refuse_like_subtotals(schema: Schema, label: str) -> None:
    """
    Refuse models of the table of another one that rows of a count could be taken for, as far as they are declared.

    Args:
        schema: A model with such rows in its table.
        label: The count, for messages.

    Raises:
        ModelError: What `check_marker_rows` raises.
    """
    _refuse_like_markers(_COUNTS, {schema.table_text().lower(): label}, declared_models(schema))


def _refuse_like_markers(marked: _Heads, causes: Mapping[str, str], models: Sequence[Schema]) -> None:
    """
    Refuse models of tables that have marker rows.

    Args:
        marked: Which marker rows.
        causes: By name of the table in lower case, what leaves such rows there.
        models: All models.

    Raises:
        ModelError: What `check_marker_rows` raises.
    """
    for each in (rows for model in models for rows in rows_of(model)) if causes else ():
        if each.table.lower() not in causes:
            continue
        where = f"in table {each.table}, where {causes[each.table.lower()]} has {marked.noun}"
        model = each.schema
        if each.name is None and (model.kind is None or callable(model.discriminator)):
            what = "kind=None" if model.kind is None else "a function as its discriminator"
            raise ModelError(
                f"{each.label} is rejected {where}: with {what} they could be read as its entities; give it a kind and "
                "discriminator='property', 'row_key' or 'partition_key', or another table"
            )
        if _can_begin_as(marked, each.row):
            label = each.label if each.name else f"{each.label}.row_key"
            raise ModelError(
                f"{label}: a RowKey of {each.row.text!r} can begin with {marked.head!r}, which is rejected {where}; "
                f"begin it with other literal text, as in 'x_{each.row.text}'"
            )


def _can_begin_as(marked: _Heads, template: Template) -> bool:
    first = template.parts[0].format if template.parts else None
    alphabet = None if first is None else first.alphabet
    return (alphabet is None or marked.head[0] in alphabet) and may_meet(template, marked.keys)
