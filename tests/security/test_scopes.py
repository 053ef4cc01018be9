"""
Scopes in hostile hands: what a scope grants, what it derives, and what it lets be guessed about rows of others.
"""

import datetime as dt
import inspect
import itertools
import pickle
from collections.abc import Awaitable, Callable, Mapping
from enum import StrEnum
from functools import partial
from random import Random
from typing import Any

import pytest

from tableorm import (
    AccessDenied,
    Count,
    CursorError,
    Damage,
    Database,
    Embedded,
    Entity,
    EntityNotFound,
    Index,
    IndexList,
    Key,
    Mapped,
    ModelError,
    PropertyBag,
    Scope,
    TableOrmError,
    UniqueViolation,
    field,
)
from tableorm.connection.connection import connection_of
from tableorm.stores import RowAddress
from tests.rows import insert_row
from tests.security.world import write_row
from tests.torture import seeds

HOUR = dt.timedelta(hours=1)


class Brand(StrEnum):
    """Tenants that are an enumeration; one begins as another does."""

    ACME = "acme"
    ACME_TOO = "acme-too"
    OTHER = "other"


class OfCountry(Entity, abstract=True, partition_key="{country}"):
    country: Mapped[str]


class Located(OfCountry, abstract=True):
    tenant: Mapped[str]
    id: Mapped[int]


class InRow(Located, table="InRow", row_key="item_{tenant}_{id}"):
    pass


class InMiddle(OfCountry, table="InMiddle", row_key="item_{id:03d}_{tenant}_{part}"):
    id: Mapped[int]
    tenant: Mapped[str]
    part: Mapped[int]


class InBoth(Located, table="InBoth", partition_key="{country}_{tenant}", row_key="{id:03d}"):
    pass


class Leading(Located, table="Leading", partition_key="{tenant}_{country}", row_key="{id:03d}"):
    pass


class Whole(Located, table="Whole", partition_key="{tenant}", row_key="{country}_{id:03d}"):
    pass


class Enumerated(OfCountry, table="Enumerated", row_key="{tenant}_{id:03d}"):
    tenant: Mapped[Brand]
    id: Mapped[int]


class Numbered(OfCountry, table="Numbered", row_key="{tenant:03d}{id:03d}"):
    tenant: Mapped[int]
    id: Mapped[int]


class Unpadded(OfCountry, table="Unpadded", row_key="{tenant}_{id:03d}"):
    tenant: Mapped[int]
    id: Mapped[int]


class Trailing(Located, table="Trailing", row_key="{tenant}_{id:03d}"):
    pass


MODELS: list[type[Any]] = [InRow, InMiddle, Trailing, InBoth, Leading, Whole, Enumerated, Numbered, Unpadded]
COUNTRIES, IDS = ("NO", "PL", "SE"), (1, 2, 10)


def tenants_of(model: type[Any]) -> tuple[Any, ...]:
    """Return tenants of a model, of which the first one is the scope's."""
    if model is Enumerated:
        return tuple(Brand)
    return (1, 2, 10) if model in (Numbered, Unpadded) else ("acme", "acme-too", "acme_1", "other")


def sides_of(model: type[Any]) -> list[Mapping[str, Any] | None]:
    """Return everything that an end of a range may say of the fields beside the tenant."""
    names = [name for name in model.__schema__.key_fields if name != "tenant"]
    values = {"country": ("NO", "SE"), "id": (1, 10), "part": (1,)}
    sides: list[Mapping[str, Any] | None] = [None]
    for count in range(1, len(names) + 1):
        sides += [
            dict(zip(names[:count], each, strict=True))
            for each in itertools.product(*(values[name] for name in names[:count]))
        ]
    return sides


@pytest.mark.parametrize("model", MODELS)
async def test_a_grant_of_a_scope_opens_rows_of_the_scope_alone(db: Database, model: type[Any]) -> None:
    """Whatever ends the range has, it is rejected, or each row that the token opens is of the scope's tenant."""
    tenants = tenants_of(model)
    parts = {"part": 1} if model is InMiddle else {}
    rows = [
        (tenant, *model.__schema__.make_keys({"country": country, "tenant": tenant, "id": number, **parts}))
        for country, tenant, number in itertools.product(COUNTRIES, tenants, IDS)
    ]
    scope, given = db.scope(tenant=tenants[0]), 0
    for start, end in itertools.product(sides_of(model), repeat=2):
        try:
            token = await scope.grant(model, "r", HOUR, start=start, end=end)
        except ModelError:
            continue
        given += 1
        opened = token.explain().keys
        found = {tenant for tenant, *keys in rows if opened.contains(*keys)}
        assert found <= {tenants[0]}, (start, end, str(opened))

    assert given > 0


@pytest.mark.parametrize(
    ("model", "start", "end", "message"),
    [
        (
            InRow,
            {"country": "NO"},
            {"country": "SE"},
            "is of several partitions, .* give the same 'country' in start and",
        ),
        (InBoth, {"country": "NO"}, {"country": "SE"}, "give the same 'country' and 'tenant' in start and end"),
        (InMiddle, {"country": "NO", "id": 1}, {"country": "NO", "id": 9}, "to the fields that stand before tenant"),
    ],
)
async def test_a_grant_says_why_it_is_refused(
    db: Database, model: type[Entity], start: dict[str, Any], end: dict[str, Any], message: str
) -> None:
    """The message names the range, and which fields have to be equal at both ends."""
    with pytest.raises(
        ModelError, match=rf"grant\({model.__name__}\) is rejected in the scope of tenant='acme': .*{message}"
    ):
        await db.scope(tenant="acme").grant(model, "r", HOUR, start=start, end=end)


class Ticket(Located, table="Desk", row_key="ticket_{tenant}_{id}"):
    mail: Mapped[str | None] = field(default=None)

    by_mail = Index(row_key="mail_{mail}", unique=True)
    listed = IndexList(row_key="list_{mail}")


async def test_other_kinds_of_the_table(db: Database) -> None:
    """A range of RowKeys is granted while all rows that it may hold tell the tenant, and refused otherwise, by name."""
    scope, sweden = db.scope(tenant="acme"), {"country": "SE"}
    token = await scope.grant(Ticket, "r", HOUR, start=sweden, end=sweden)
    keys = token.explain().keys
    assert keys.contains("SE", "ticket_acme_1")
    assert not any(keys.contains("SE", key) for key in ("ticket_acme2_1", "mail_acme", "list_acme~"))

    class Log(OfCountry, table="Desk", row_key="{source}_{number}"):
        source: Mapped[str]
        number: Mapped[int]

    with pytest.raises(ModelError, match=r"may hold rows of Log, whose keys '\{source\}_\{number\}' do not tell whose"):
        await scope.grant(Ticket, "r", HOUR, start=sweden, end=sweden)
    assert Log.__schema__.table == "Desk"


# What is derived from an entity


class Group(OfCountry, table="Staff", row_key="group_{tenant}_{name}"):
    tenant: Mapped[str]
    name: Mapped[str]
    size: Mapped[int] = field(default=0, maintained=True)


class Country(OfCountry, table="Staff", row_key="country"):
    size: Mapped[int] = field(default=0, maintained=True)


class Person(Located, table="Staff", row_key="person_{tenant}_{id}", tracked=True):
    name: Mapped[str] = field(default="Ken")
    owner: Mapped[str | None] = field(default=None)
    group: Mapped[str | None] = field(default=None)
    nation: Mapped[str | None] = field(default=None)

    counted = Count(lambda: Group.size, country="{country}", tenant="{owner}", name="{group}")
    counted_in_all = Count(lambda: Country.size, country="{nation}")


class Badge(Located, table="Staff", row_key="badge_{tenant}_{id:03d}"):
    owner: Mapped[str | None]
    name: Mapped[str | None] = field(default=None, maintained=True)

    person = Embedded(lambda: Person, {"name": "name"}, country="{country}", tenant="{owner}", id="{id}")


async def fill(db: Database, *numbers: int) -> None:
    """Two tenants who share a partition, each with a group and these persons."""
    await db.insert(Country(country="SE"))
    for tenant in ("acme", "other"):
        await db.insert(Group(country="SE", tenant=tenant, name="sales"))
        for number in numbers:
            await db.insert(Person(country="SE", tenant=tenant, id=number, name=f"secret of {tenant}"))


@pytest.fixture
async def mine(db: Database) -> Scope:
    """The scope of one tenant, who shares a partition with another one; both have a group and a person."""
    await db.create_tables(Person, Badge)
    await fill(db, 1)
    return db.scope(tenant="acme")


async def rows_of(db: Database) -> list[PropertyBag]:
    return await db.select_raw("Staff").allow_scan().all()


HELD = r"Group.tenant is 'other', and this scope is of tenant='acme'"
COPIED = r"Person.tenant is 'other', and this scope is of tenant='acme'"


async def test_a_row_of_another_tenant_is_not_copied(db: Database, mine: Scope) -> None:
    """An embedded copy of another tenant's entity is rejected: its fields are not read, its row is not changed."""
    before, requests = await rows_of(db), mine.stats.requests
    with pytest.raises(AccessDenied, match=COPIED):
        await mine.insert(Badge(country="SE", tenant="acme", id=1, owner="other"))

    assert mine.stats.requests == requests
    assert await rows_of(db) == before


async def test_a_copy_that_another_tenant_holds_is_not_changed(db: Database, mine: Scope) -> None:
    """A change of a field that an entity of another tenant has a copy of is rejected: it would change that entity."""
    await db.insert(Badge(country="SE", tenant="other", id=1, owner="acme"))
    before = await rows_of(db)
    person = await mine.get(Person, country="SE", id=1)
    person.name = "Jun"
    with pytest.raises(AccessDenied, match=r"Badge.tenant is 'other'"):
        await mine.save(person)

    assert await rows_of(db) == before


async def test_a_row_of_no_tenant_is_not_changed(db: Database, mine: Scope) -> None:
    """A count that is held by an entity whose key does not tell the tenant is rejected, as writing that entity is."""
    before = await rows_of(db)
    with pytest.raises(
        ModelError, match=r"the row \('SE', 'country'\) in table Staff, .*cannot be shown to belong to the scope"
    ):
        await mine.insert(Person(country="SE", tenant="acme", id=2, nation="SE"))

    assert await rows_of(db) == before


async def test_explaining_refuses_what_writing_would(mine: Scope) -> None:
    """`explain_write` in a scope does not show a write that the scope would refuse."""
    with pytest.raises(AccessDenied, match=HELD):
        mine.explain_write("insert", Person(country="SE", tenant="acme", id=2, owner="other", group="sales"))


# What is told of rows of others


class User(Located, table="Users", row_key="user_{tenant}_{id}"):
    mail: Mapped[str | None] = field(default=None)
    nick: Mapped[str | None] = field(default=None)

    by_mail = Index(row_key="mail_{mail}", unique=True)
    by_nick = Index(row_key="nick_{nick}", unique=True, include="keys")
    named = IndexList(row_key="named_{nick}")


@pytest.fixture
async def users(db: Database) -> Scope:
    """The scope of a tenant, in a table with a user of each of two."""
    await db.create_tables(User)
    for tenant in ("acme", "other"):
        await db.insert(User(country="SE", tenant=tenant, id=1, mail=f"{tenant}@x", nick=tenant))
    await db.insert(User(country="SE", tenant="other", id=2, nick="both"))
    await write_row(db, "Users", "SE", "mail_odd@x")
    return db.scope(tenant="acme")


@pytest.mark.parametrize(("index", "value"), [("by_mail", "other@x"), ("by_nick", "other"), ("by_mail", "odd@x")])
async def test_an_index_that_tenants_share_does_not_tell(users: Scope, index: str, value: str) -> None:
    """A value that another tenant has is not found, as one that nobody has: neither by get nor by exists."""
    target: Any = getattr(User, index)
    given = {"country": "SE", index.removeprefix("by_"): value}

    assert await users.exists(target, **given) is False
    assert await users.get_or_none(target, **given) is None
    with pytest.raises(EntityNotFound, match=f"there is no User.{index} of") as found:
        await users.get(target, **given)
    assert found.value.code == "ResourceNotFound"


async def test_a_unique_value_does_not_tell_whose_it_is(users: Scope) -> None:
    """A value that must be unique among all tenants is rejected, without the key of the entity that has it."""
    for given in ({"mail": "other@x"}, {"nick": "other"}):
        with pytest.raises(UniqueViolation, match="another entity of this partition has") as found:
            await users.insert(User(country="SE", tenant="acme", id=9, **given))
        assert "user_other" not in str(found.value)
    with pytest.raises(UniqueViolation, match="the entity 'user_acme_1' of this partition has"):
        await users.insert(User(country="SE", tenant="acme", id=9, mail="acme@x"))


async def test_rows_without_a_model_are_the_scopes_alone(db: Database) -> None:
    """A scope of a model, in a table where rows of another model may lie among its own, is rejected by name."""

    class Order(OfCountry, table="GrantedOrders", row_key="order_{tenant}_{id}"):
        tenant: Mapped[str]
        id: Mapped[int]

    db.scope(Order, tenant="acme").select_raw("GrantedOrders")

    class Line(OfCountry, table="grantedorders", row_key="order_{order}_{number}"):
        order: Mapped[str]
        number: Mapped[int]

    with pytest.raises(
        ModelError, match=r"may hold rows of Line, whose keys 'order_\{order\}_\{number\}' do not tell whose"
    ):
        db.scope(Order, tenant="acme")
    assert Line.__schema__.table == "grantedorders"


# Keys that are of two models


class Secret(OfCountry, table="Secrets", row_key="{owner}_{tenant}"):
    owner: Mapped[str]
    tenant: Mapped[str]


class Valued(Entity, abstract=True):
    tenant: Mapped[str]
    id: Mapped[str]
    value: Mapped[str] = field(default="")


class Loose(Valued, table="Loose", partition_key="{country}", row_key="{tenant}_{id}", kind=None):
    country: Mapped[str]


def test_a_key_is_in_the_table_of_its_model() -> None:
    """A key of a model in another table is rejected where it is made: the templates of the model say nothing of it."""
    with pytest.raises(
        ModelError, match=r"Key\(Loose, 'Secrets', .* is rejected: Loose is in table Loose; .* PropertyB"
    ):
        Key(Loose, "Secrets", "SE", "acme_other")
    assert Key(Loose, "LOOSE", "SE", "acme_1").row_key == "acme_1"


async def test_a_key_in_another_table_is_not_of_the_scope(db: Database) -> None:
    """A scope looks at the table of a key too, however the key came to be: nothing is read or deleted by it."""
    await db.create_tables(Secret, Loose)
    await db.insert(Secret(country="SE", owner="acme", tenant="other"))
    mine, key = db.scope(tenant="acme"), Loose.key(country="SE", tenant="acme", id="other")
    object.__setattr__(key, "table", "Secrets")
    await refuse_all(db, mine, key, None, r"in table Secrets is not of the model Loose|Loose is in table Loose")
    assert connection_of(mine).boundary.holds_row(Loose.__schema__, RowAddress("Secrets", "SE", "acme_other")) is False
    assert await db.exists(Secret, country="SE", owner="acme", tenant="other")


async def refuse_all(db: Database, mine: Any, key: Any, entity: Entity | None, message: str) -> None:
    """
    See that a scope refuses a key, and an entity that has this key, and sends nothing. That each verb asks the scope,
    however a row is named, is tested in `tests/access/test_boundary.py`.
    """
    calls: list[Callable[[], Awaitable[Any]]] = [
        partial(mine.get, key),
        partial(mine.get_many, [key]),
        partial(mine.delete, key, if_match="*"),
        partial(in_transaction, mine, "modify", key, change),
        partial(in_bulk, mine, "delete", key, if_match="*"),
    ]
    if entity is not None:
        fields = {name: getattr(entity, name) for name in type(entity).__schema__.key_fields}
        calls += [
            partial(mine.get, type(entity), **fields),
            partial(mine.upsert, entity),
            partial(explain, mine, "insert", entity),
            partial(in_transaction, mine, "replace", entity, if_match="*"),
            partial(in_bulk, mine, "upsert", entity),
        ]
    requests = db.stats.requests
    for call in calls:
        with pytest.raises((AccessDenied, ModelError), match=message):
            await call()
    assert db.stats.requests == requests


def change(entity: Any) -> None:
    entity.value = "changed"


async def explain(mine: Any, verb: str, *given: Any, **options: Any) -> None:
    mine.explain_write(verb, *given, **options)


async def in_transaction(mine: Scope, verb: str, *given: Any, **options: Any) -> None:
    async with mine.transaction() as tx:
        result = getattr(tx, verb)(*given, **options)
        if inspect.iscoroutine(result):
            await result


async def in_bulk(mine: Scope, verb: str, *given: Any, **options: Any) -> None:
    async with mine.bulk() as bulk:
        await getattr(bulk, verb)(*given, **options)


class Item(Valued, table="Mixed", partition_key="{tenant}", row_key="{id}"):
    pass


class Bare(Valued, table="Mixed", partition_key="{tenant}", row_key="{id}", kind=None):
    pass


class Regional(Valued, table="mixed", partition_key="{region}", row_key="{tenant}_{id}"):
    region: Mapped[str]


class Area(Valued, table="Areas", partition_key="{country}", row_key="{tenant}_{id}"):
    country: Mapped[str]


class Zone(Valued, table="Areas", partition_key="{country}", row_key="{name}_{tenant}_{id}"):
    country: Mapped[str]
    name: Mapped[str]


class Exact(Valued, table="Folds", partition_key="{tenant}", row_key="{id}"):
    pass


class Fold(Entity, table="Folds", partition_key="{tenant:lower}", row_key="{n:03d}"):
    tenant: Mapped[str]
    n: Mapped[int]


OVERLAPS: list[tuple[Entity, Entity, str]] = [
    (
        Item(tenant="acme", id="other_1"),
        Regional(region="acme", tenant="other", id="1"),
        r"Regional.tenant is 'other', and this scope is of tenant='acme'",
    ),
    (
        Bare(tenant="acme", id="other_1"),
        Regional(region="acme", tenant="other", id="1"),
        r"Regional.tenant is 'other', and this scope is of tenant='acme'",
    ),
    (
        Area(country="SE", tenant="acme", id="other_1"),
        Zone(country="SE", name="acme", tenant="other", id="1"),
        r"Zone.tenant is 'other', and this scope is of tenant='acme'",
    ),
    (
        Exact(tenant="acme", id="001"),
        Fold(tenant="ACME", n=1),
        r"may be of Fold too, whose keys '\{tenant:lower\}' and '\{n:03d\}' do not tell 'tenant'",
    ),
]


@pytest.mark.parametrize(("mine", "theirs", "message"), OVERLAPS)
async def test_a_row_that_another_model_says_is_of_others(
    db: Database, mine: Entity, theirs: Entity, message: str
) -> None:
    """A key that is of the scope by one model and of another tenant by the other is rejected by every verb."""
    await db.create_tables(type(mine))
    if not await db.exists(theirs.key):
        await db.insert(theirs)
    before = await db.get(theirs.key)
    await refuse_all(db, db.scope(tenant="acme"), mine.key, mine, message)
    after = await db.get(theirs.key)
    assert after == before
    assert after.etag == before.etag


async def test_a_row_that_another_model_says_is_of_others_is_not_moved_to(db: Database) -> None:
    """An entity of the scope does not get such a key, and one that the database has stored there is not saved."""
    await db.create_tables(Item)
    mine = db.scope(tenant="acme")
    await mine.insert(mine.new(Item, id="1"))
    item = await mine.get(Item, id="1")
    with pytest.raises(AccessDenied, match=r"Regional.tenant is 'other'"):
        await mine.move(item, id="other_1")
    await db.insert(Item(tenant="acme", id="other_2"))
    outside = await db.get(Item, tenant="acme", id="other_2")
    with pytest.raises(AccessDenied, match=r"Regional.tenant is 'other'"):
        await mine.modify(outside, change)
    await mine.move(item, id="acme_1")  # both models say that it is the scope's
    assert (await mine.get(Item, id="acme_1")).id == "acme_1"


@pytest.mark.parametrize("model", [Item, Area, Exact])
async def test_rows_of_a_range_in_which_another_model_has_others(db: Database, model: type[Entity]) -> None:
    """A partition or range that another model shares between tenants is neither granted nor read without a model."""
    with pytest.raises(ModelError, match=r"may hold rows of (Regional|Zone|Fold), whose keys"):
        db.scope(model, tenant="acme")
    sweden = {"country": "SE"} if model is Area else None
    with pytest.raises(ModelError, match=r"may hold rows of (Regional|Zone|Fold), whose keys"):
        await db.scope(tenant="acme").grant(model, "r", HOUR, start=sweden, end=sweden)


async def test_a_point_is_granted(db: Database) -> None:
    """A single key is granted unless another model says that it is of others."""
    mine = db.scope(tenant="acme")
    own, theirs = {"id": "acme_1"}, {"id": "other_1"}
    assert (await mine.grant(Item, "r", HOUR, start=own, end=own)).explain().keys.contains("acme", "acme_1")
    with pytest.raises(ModelError, match="may hold rows of Regional"):
        await mine.grant(Item, "r", HOUR, start=theirs, end=theirs)


async def test_a_query_of_a_model_without_a_kind(db: Database) -> None:
    """Rows that only their keys tell apart are not queried where another model has rows of others; kinds tell apart."""
    await db.create_tables(Item)
    mine = db.scope(tenant="acme")
    await mine.insert(mine.new(Item, id="1"))
    await db.insert(Regional(region="acme", tenant="other", id="1"))
    with pytest.raises(ModelError, match=r"select\(Bare\) .*may hold rows of Regional"):
        await mine.select(Bare).all()
    with pytest.raises(ModelError, match=r"may hold rows of Regional"):
        await db.select(Bare).allow_scan().bind(mine).delete()
    assert [each.id for each in await mine.select(Item).all()] == ["1"]
    assert (await mine.select(Item).delete()).written == 1
    assert await db.select(Regional).where(Regional.region == "acme").count() == 1


class Order(Valued, table="Trade", partition_key="{tenant}", row_key="order_{id}"):
    mail: Mapped[str | None] = field(default=None)

    by_mail = Index(row_key="mail_{mail}", unique=True)


class Customer(Valued, table="Trade", partition_key="{tenant}", row_key="customer_{id}"):
    pass


class Anything(Entity, table="Trade", partition_key="{tenant}", row_key="{text}", kind=None):
    tenant: Mapped[str]
    text: Mapped[str]


async def test_models_that_agree_share_a_table(db: Database) -> None:
    """Models of which all keys that they share tell the same tenant do not hinder each other, nor does a catch-all."""
    await db.create_tables(Order)
    await db.insert(Order(tenant="other", id="1", mail="a"))
    mine = db.scope(Order, tenant="acme")
    await mine.insert(mine.new(Order, id="1", mail="a"))
    await mine.insert(mine.new(Customer, id="1"))
    order = await mine.get(Order.by_mail, mail="a")
    order.mail = "b"
    await mine.save(order)
    await mine.move(order, id="2")
    await mine.delete(Customer, id="1", if_match="*")
    assert [bag.row_key for bag in await mine.select_raw("Trade").all()] == ["mail_b", "order_2"]
    assert [each.text for each in await mine.select(Anything).all()] == ["mail_b", "order_2"]
    token = await mine.grant(Order, "r", HOUR)
    assert token.explain().keys.contains("acme", "order_2")
    assert (await mine.select_raw("Trade").delete()).written == 2
    assert await db.exists(Order, tenant="other", id="1")


async def test_a_model_that_is_declared_later(db: Database) -> None:
    """A scope that exists already heeds a model that is declared after it."""

    class First(Entity, table="Late", partition_key="{tenant}", row_key="{id}"):
        tenant: Mapped[str]
        id: Mapped[str]

    await db.create_tables(First)
    mine = db.scope(First, tenant="acme")
    await mine.insert(mine.new(First, id="other_1"))
    assert len(await mine.select_raw("Late").all()) == 1

    class Second(Entity, table="Late", partition_key="{region}", row_key="{tenant}_{id}"):
        region: Mapped[str]
        tenant: Mapped[str]
        id: Mapped[str]

    with pytest.raises(AccessDenied, match=r"Second.tenant is 'other'"):
        await mine.get(First, id="other_1")
    with pytest.raises(ModelError, match="may hold rows of Second"):
        mine.select_raw("Late")
    with pytest.raises(ModelError, match="may hold rows of Second"):
        await mine.get(PropertyBag.key("Late", "acme", "other_1"))
    assert Second.__schema__.table == "Late"


# What bags plant


class Profile(OfCountry, table="Profiles", row_key="profile_{tenant}"):
    tenant: Mapped[str]
    nick: Mapped[str | None] = field(default=None)

    named = IndexList(row_key="named_{nick}")


class Human(Located, table="Passes", row_key="human_{tenant}_{id}", tracked=True):
    name: Mapped[str] = field(default="Ken")


class Pass(Located, table="Passes", row_key="pass_{tenant}_{id}"):
    owner: Mapped[str | None] = field(default=None)
    name: Mapped[str | None] = field(default=None, maintained=True)

    human = Embedded(lambda: Human, {"name": "name"}, country="{country}", tenant="{owner}", id="{id}")


@pytest.mark.parametrize(
    ("model", "row_key", "properties"),
    [
        (Pass, "pass_acme_9", {"EntityType": "Pass", "owner": "other"}),
        (Pass, "pass_acme_9", {"EntityType": "Pass:1", "owner": "other"}),
        (Pass, "pass_acme_9", {"owner": "other"}),  # merged into a row that says its kind
        (Profile, "profile_acme", {"EntityType": "Profile#named"}),
        (
            Pass,
            "pass_acme_9",
            {"EntityType": "Note", "_ix": '{"by_owner":{"at":["SE","pass_other_9","Passes"]}}'},
        ),  # rows to undo with it
        (Pass, "pass_acme_9", {"EntityType": "Note", "_mv": "{}"}),
    ],
)
async def test_a_bag_plants_nothing(
    db: Database, model: type[Entity], row_key: str, properties: dict[str, str]
) -> None:
    """A bag that an audit would derive rows from, of whoever it names, or take for a derived one, is rejected."""
    await db.create_tables(model)
    mine, table = db.scope(model, tenant="acme"), model.__schema__.table_name()
    bag = PropertyBag(table, "SE", row_key, dict(properties))
    requests = db.stats.requests
    for verb in ("insert", "upsert"):
        for act in (in_transaction, in_bulk, explain):
            with pytest.raises(ModelError, match=r"write it through its model"):
                await act(mine, verb, bag)
        with pytest.raises(ModelError, match=r"write it through its model"):
            await getattr(mine, verb)(bag)
    assert db.stats.requests == requests


@pytest.mark.parametrize("tenant", ["acme2", "acme~01"])
async def test_a_repair_writes_nothing_where_a_planted_row_says(db: Database, tenant: str) -> None:
    """A row that only its kind makes one of a list, under a key of an entity, is reported, and leads to no others."""
    await db.create_tables(Profile)
    planted = {**row_of(Profile(country="SE", tenant=tenant)), "EntityType": "Profile#named"}
    await insert_row(db, "Profiles", planted)
    report = await db.audit(Profile, repair=True)

    assert [(each.damage, each.address, each.repaired) for each in report.findings] == [
        (Damage.FOREIGN, planted["RowKey"], False)
    ]
    assert [bag.row_key for bag in await db.select_raw("Profiles").allow_scan().all()] == [planted["RowKey"]]


def row_of(entity: Entity) -> dict[str, Any]:
    return {"PartitionKey": entity.key.partition_key, "RowKey": entity.key.row_key}


async def test_entries_of_ones_own_go_on_being_kept(db: Database, users: Scope) -> None:
    """An entity keeps its unique values when it is moved, and two swap theirs in one transaction."""
    one = await users.get(User, country="SE", id=1)
    await users.move(one, id=5)
    assert (await users.get(User.by_mail, country="SE", mail="acme@x")).id == 5
    two = User(country="SE", tenant="acme", id=6, mail="two", nick="two")
    await users.insert(two)
    one.mail, two.mail = two.mail, one.mail
    async with users.transaction() as tx:
        tx.save(one)
        tx.save(two)
    assert (await users.get(User.by_mail, country="SE", mail="acme@x")).id == 6
    await users.delete(one)
    assert not await users.exists(User.by_mail, country="SE", mail="two")
    assert not (await db.audit(User)).findings


async def test_cursors_and_pickled_queries_of_others(db: Database, users: Scope) -> None:
    """A cursor of another scope is rejected, a query of one finds the rows of the scope that it is bound to."""
    theirs = db.scope(tenant="other").select(User).where(User.country == "SE")
    cursor = (await theirs.page(size=1)).cursor
    with pytest.raises(CursorError, match="belongs to another query"):
        await users.select(User).where(User.country == "SE").page(size=1, cursor=cursor)
    again: Any = pickle.loads(pickle.dumps(theirs))
    assert [each.tenant for each in await again.bind(users).all()] == ["acme"]


async def test_a_bag_that_is_changed_after_it_was_given(db: Database) -> None:
    """Keys that are set after the scope has looked at them do not lead elsewhere."""
    await db.create_tables(Whole)
    await db.insert(Whole(tenant="other", country="SE", id=1))
    raw = db.scope(Whole, tenant="acme")
    before = (await db.get(PropertyBag.key("Whole", "other", "SE_001"))).row
    async with raw.bulk() as bulk:
        bag = PropertyBag("Whole", "acme", "SE_001", {"A": 1})
        await bulk.upsert(bag, mode="replace")
        bag.row["PartitionKey"] = "other"
    async with raw.transaction() as tx:
        bag = PropertyBag("Whole", "acme", "SE_001", {"A": 2})
        tx.upsert(bag)
        bag.row["PartitionKey"] = "other"
    assert (await db.get(PropertyBag.key("Whole", "other", "SE_001"))).row == before
    assert (await raw.get(PropertyBag.key("Whole", "acme", "SE_001")))["A"] == 2


# At random


async def do_at_random(mine: Scope, random: Random) -> str:
    """Do something in a scope, with keys and references of both tenants; return what is shown of it."""
    tenant = random.choice(("acme", "acme", "acme", "other"))
    keys: dict[str, Any] = {"country": "SE", "tenant": tenant, "id": random.randrange(1, 4)}
    owner = random.choice((None, "acme", "other"))
    model: type[Any] = random.choice((Person, Badge, User))
    values: dict[str, Any] = {
        Person: {"name": "Jun", "owner": owner, "group": random.choice((None, "sales"))},
        Badge: {"owner": owner},
        User: {"mail": random.choice(MAILS), "nick": random.choice(("acme", "other", "new"))},
    }[model]
    entity = model(**keys, **values)

    def change(each: Any) -> None:
        for name, value in values.items():
            setattr(each, name, value)

    if random.random() < 0.6:
        found = await mine.get_or_none(model, **keys)
        if found is not None:
            change(found)
            entity = found
    match random.randrange(12):
        case 0 | 1:
            await getattr(mine, random.choice(("insert", "upsert")))(entity)
        case 2:
            await mine.upsert(entity, mode="replace")
        case 3:
            await getattr(mine, random.choice(("save", "merge", "replace")))(entity)
        case 4:
            await mine.delete(random.choice((entity, entity.key)), if_match="*")
        case 5:
            await mine.modify(model, change, **keys)
        case 6:
            await mine.move(entity, id=random.randrange(1, 6), **random.choice(({}, {"tenant": "other"})))
        case 7:
            async with mine.transaction() as tx:
                tx.upsert(entity)
                tx.upsert(Person(country="SE", tenant="acme", id=8, owner=owner, group="sales"))
        case 8:
            async with mine.bulk() as bulk:
                await bulk.upsert(entity, mode="replace")
            return repr(bulk.report)
        case 9:
            index, name = random.choice(((User.by_mail, "mail"), (User.by_nick, "nick")))
            value = random.choice(MAILS if name == "mail" else ("acme", "other", "new"))
            return repr(await mine.get_or_none(index, country="SE", **{name: value}))
        case 10:
            return repr(await mine.lookup(User.named, country="SE", nick=random.choice(("acme", "other", "both"))))
        case _:
            found = await mine.select(model).where(model.country == "SE").all()
            report = await mine.select(model).where(model.country == "SE", model.id == 2).delete()
            return repr((found, report))
    return repr(entity)


MAILS = (None, "acme@x", "other@x", "new@x")
HOLDER = "the entity 'badge_other_001' of this partition holds copies of it"
"""What a row of the tenant's own says, and for which it cannot be deleted."""


@seeds(2, 150)
async def test_a_random_program(db: Database, seed: int) -> None:
    """Whatever a program does in a scope, each row of another tenant stays as it is, and nothing of it is shown."""
    random = Random(seed)
    await db.create_tables(Person, User)
    await fill(db, 1, 2)
    for tenant in ("acme", "other"):
        await db.insert(User(country="SE", tenant=tenant, id=1, mail=f"{tenant}@x", nick=tenant))
    # What the database itself has made across tenants: a scope must leave that as it is.
    await db.insert(Person(country="SE", tenant="acme", id=3, owner="other", group="sales"))
    await db.insert(Badge(country="SE", tenant="other", id=1, owner="acme"))
    before, mine = await rows_of_other(db), db.scope(tenant="acme")
    for _ in range(60):
        try:
            shown = await do_at_random(mine, random)
        except TableOrmError as error:
            shown = f"{error!r} {error.__cause__!r}"
        assert "secret of other" not in shown
        assert "other_" not in shown.replace(HOLDER, "")

    assert await rows_of_other(db) == before


async def rows_of_other(db: Database) -> list[Any]:
    """Return the rows that tell the other tenant, or none, and the entries of that tenant's users."""
    found: list[Any] = []
    for table in ("Staff", "Users"):
        for bag in await db.select_raw(table).allow_scan().all():
            own = "acme" in bag.row_key or "acme" in str(bag.get("_of")) or bag.row_key.startswith("named_")
            found += [] if own else [(bag.row_key, bag.row)]
    return found
