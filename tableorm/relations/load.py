"""
Loading relations: for many entities with few requests, each result to the entity whose values it was found by.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from copy import copy
from itertools import pairwise
from typing import Any, cast

import attrs

from ..connection.connection import Connection
from ..connection.nearby import NearbyRows
from ..errors import AccessDenied, DecodeError, ModelError, MultipleEntitiesFound, TemplateError, counted, shown
from ..models.entity import Entity
from ..models.key import Key
from ..models.loaded import Loaded, set_loaded
from ..models.schema import concrete
from ..protocol.limits import MAX_PAGE
from ..queries.description import Relation
from ..queries.execution import CONCURRENCY
from ..queries.explain import ExplainedRequest, explain_point, explain_range, table_of_requests
from ..queries.misfits import MisfitPolicy, check_policy, settle_error
from ..queries.together import explain_queries, read_queries
from ..stores import RowAddress
from .relation import BoundRelation, bind

Source = tuple[Any, ...]


@attrs.frozen(kw_only=True)
class LoadExplanation:
    """
    What loading a relation will send. You can print it, or make assertions about it.

    Args:
        relation: The relation, as a string.
        parents: The number of entities that it is loaded for.
        sources: How many different values of the relation's fields these have.
        requests: The requests that are sent first. A range may serve several entities.
        max_requests: The maximum number of requests, in case ranges turn out to bring too little and are given up, and
            as long as no range has more than a thousand rows for one entity. None if it depends on what is found.
        then: The relations that are loaded next, for the entities that were found.
        concurrency: The maximum number of requests at a time.
    """

    relation: str
    parents: int
    sources: int
    requests: tuple[ExplainedRequest, ...]
    max_requests: int | None
    then: tuple[str, ...] = ()
    concurrency: int = CONCURRENCY

    _repr_html_ = table_of_requests

    def __str__(self) -> str:
        different = f", {self.sources} of them different" if self.sources != self.parents else ""
        lines = [f"load {self.relation} for {counted(self.parents, 'entity')}{different}"]
        lines += [f"  {each.access.value}: {each}" for each in self.requests[:_SHOWN]]
        if len(self.requests) > _SHOWN:
            lines.append(f"  ... and {len(self.requests) - _SHOWN} more requests")
        count, most = len(self.requests), self.max_requests
        cost = counted(count, "request") if most in (None, count) else f"{count} to {most} requests"
        lines.append(f"  cost: {cost}{' at least' if most is None else ''}, {self.concurrency} in parallel")
        return "\n".join([*lines, *(f"  then {each}, for what was found" for each in self.then)])


_SHOWN = 10


def _parents_of(given: object, path: Sequence[object]) -> list[Any]:
    """Return the entities that something is loaded for. Raises ModelError if these are none, or not of the relation."""
    if not path:
        raise ModelError(
            f"load({shown(given, 60)}) is rejected: say what to load, as in db.load(teams, Team.employees)"
        )
    for each in path:
        if not isinstance(each, Relation):
            raise ModelError(
                f"load(..., {shown(each)}) is rejected: give a relation of the class, such as Team.employees"
            )
    if isinstance(given, type) or not isinstance(given, (Entity, Iterable)):
        raise ModelError(
            f"load({shown(given, 60)}, ...) is rejected: give an entity, or several, which were read before"
        )
    entities: list[Any] = [given] if isinstance(given, Entity) else list(cast("Any", given))
    first = cast("Relation[Any, Any]", path[0])
    for entity in entities:
        if not isinstance(entity, first.model):
            raise ModelError(f"load(..., {first}) is rejected: {shown(entity)} is no {first.model.__name__}")
    return entities


def _check_path(path: Sequence[Relation[Any, Any]]) -> list[BoundRelation]:
    """Return the relations with their models. Raises ModelError if one does not begin where the one before ends."""
    bound = [bind(relation) for relation in path]
    for before, after in pairwise(bound):
        start: type[Any] = after.relation.model
        if not (issubclass(start, before.target) or issubclass(before.target, start)):
            raise ModelError(
                f"load(..., {before.relation}, {after.relation}) is rejected: {before.relation} leads to "
                f"{before.target.__name__}, which has no relation {after.relation}; load it by a call of its own"
            )
    return bound


async def load_relations(
    db: Connection,
    entities: object,
    path: Sequence[Relation[Any, Any]],
    caches: Mapping[type[Any], Any],
    policy: MisfitPolicy,
) -> None:
    """
    Load relations of entities, each for what the one before has found.

    Args:
        db: The connection.
        entities: An entity, or several.
        path: The relations.
        caches: Caches in place of reads by key, by model.
        policy: What to do with rows that cannot be loaded.
    """
    check_policy(f"load(misfits={policy!r})", policy)
    parents = _parents_of(entities, path)
    roots = {id(each): {id(each): each} for each in parents}  # the given entities that lead to an entity, by its id
    first: DecodeError | None = None
    *_, last = bounds = _check_path(path)
    for bound in bounds:
        groups = _by_source(bound, [each for each in parents if isinstance(each, bound.relation.model)])
        found, misfits = await _load(db, groups, bound, caches)
        below: dict[int, dict[int, Any]] = {}
        for source, group in groups.items():
            above = {key: root for parent in group for key, root in roots[id(parent)].items()}
            for each in found[source] if bound is not last else ():
                others = below.setdefault(id(each), above)
                if others is not above:
                    below[id(each)] = others | above
            for error in misfits[source]:
                told = copy(error)
                told.message, told.parents = f"{bound.relation} of {group[0].key}: {error}", tuple(above.values())
                if policy == "raise":
                    first = first or told
                else:
                    settle_error(policy, told)
            if policy == "raise" and misfits[source]:
                continue
            value = tuple(found[source]) if not bound.to_one else found[source][0] if found[source] else None
            for parent in group:
                set_loaded(parent, bound.relation.declared.name, Loaded(source, value))
        if bound is not last:
            parents, roots = list({id(each): each for some in found.values() for each in some}.values()), below
    if first is not None:
        raise first


def _by_source(bound: BoundRelation, parents: Iterable[Any]) -> dict[Source, list[Any]]:
    """Return entities by the values by which others belong to them."""
    declared = bound.relation.declared
    groups: dict[Source, list[Any]] = {}
    for parent in parents:
        groups.setdefault(declared.source_of(parent), []).append(parent)
    return groups


async def _load(
    db: Connection, groups: Iterable[Source], bound: BoundRelation, caches: Mapping[type[Any], Any]
) -> tuple[dict[Source, list[Any]], defaultdict[Source, list[DecodeError]]]:
    """Return what belongs to entities with these values, and the errors of rows that would, and cannot be loaded."""
    found: dict[Source, list[Any]] = {source: [] for source in groups}
    misfits: defaultdict[Source, list[DecodeError]] = defaultdict(list)
    wanted = [source for source in found if None not in source]
    if bound.key_of is not None:
        keys, denied = _keys_of(db, bound.key_of, wanted)
        errors: dict[Key[Any], Any] = {**denied}  # a link to a row of others is an error of the row that has it
        within = [key for key in keys.values() if key not in errors]
        entities = await caches.get(bound.target, db.reader).get_many(within, misfits=errors)
        by_key = dict(zip(within, entities, strict=True))
        for source, key in keys.items():
            if key in errors:
                misfits[source].append(_as_misfit(errors[key], key))
            elif by_key[key] is not None:
                found[source].append(by_key[key])
    elif wanted:
        results = await read_queries(bound.queries(db, wanted), [misfits[source].append for source in wanted])
        for source, some in zip(wanted, results, strict=True):
            if bound.to_one and len(some) > 1:
                raise MultipleEntitiesFound(
                    f"{bound.relation} finds several entities, the first are {some[0]!r} and {some[1]!r}; declare it "
                    "by many(...), or by fields that one entity alone has"
                )
            found[source] = some
    return found, misfits


def _keys_of(
    db: Connection, key_of: Callable[[Source], Key[Any]], sources: Iterable[Source]
) -> tuple[dict[Source, Key[Any]], dict[Key[Any], AccessDenied]]:
    """Return the keys that entities lead to, as far as there can be such rows; and why some of them are denied."""
    keys: dict[Source, Key[Any]] = {}
    denied: dict[Key[Any], AccessDenied] = {}
    for source in sources:
        with suppress(TemplateError):  # no entity can have such a key
            keys[source] = key_of(source)
    for key in keys.values():
        try:
            db.boundary.check(key)
        except AccessDenied as error:
            denied[key] = error
    return keys, denied


def _as_misfit(error: Exception, key: Key[Any]) -> DecodeError:
    """Return the error of a row under a key as one of a row that does not fit its model."""
    if isinstance(error, DecodeError):
        return error
    found = DecodeError(f"cannot be loaded: {error}", key.model.__name__, (key.partition_key, key.row_key))
    found.__cause__ = error
    return found


def explain_load(db: Connection, entities: object, path: Sequence[Relation[Any, Any]]) -> LoadExplanation:
    """Return what loading relations of entities would send first."""
    parents = _parents_of(entities, path)
    first, *rest = _check_path(path)
    groups = _by_source(first, parents)
    wanted = [source for source in groups if None not in source]
    moved = any(each.home is not None for each in concrete(first.target.__schema__))
    if first.key_of is not None:
        keys, denied = _keys_of(db, first.key_of, wanted)
        within = [key for key in dict.fromkeys(keys.values()) if key not in denied]
        requests, most = _explain_points(db, within, moved=moved)
    else:
        requests, most = explain_queries(db, first.queries(db, wanted))
    return LoadExplanation(
        relation=str(first.relation),
        parents=len(parents),
        sources=len(wanted),
        requests=tuple(requests),
        max_requests=None if moved else most,
        then=tuple([str(each.relation) for each in rest]),
    )


def _explain_points(
    db: Connection, keys: Sequence[Key[Any]], *, moved: bool
) -> tuple[list[ExplainedRequest], int | None]:
    """
    Return the requests that `get_many` would send for keys of one model, and how many these can become.

    Args:
        db: The connection.
        keys: The keys.
        moved: Whether the entities may be under older keys: then each is read by itself.
    """
    requests: list[ExplainedRequest] = []
    ranged: set[str] = set()
    by_table: dict[str, list[Key[Any]]] = {}
    for key in keys:
        by_table.setdefault(key.table, []).append(key)
    for table, some in by_table.items():
        nearby = NearbyRows(db, table, concurrency=CONCURRENCY)
        places = [] if moved else [(each.partition_key, each.row_key) for each in some]
        for query in nearby.plan(places):
            ranged.add(query.partition.lower or "")
            requests.append(explain_range(query, db.prefix + table, min(2 * len(some), MAX_PAGE)))
        requests += [
            explain_point(RowAddress(db.prefix + table, each.partition_key, each.row_key))
            for each in some
            if each.partition_key not in ranged
        ]
    return requests, len(keys) + len(ranged)
