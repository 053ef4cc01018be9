"""What is wrong with a class is said when it is made: the model, the field or keyword, its value, and what to write."""

import inspect
import pydoc
import re
import types
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from tableorm import (
    Count,
    Database,
    Embedded,
    Entity,
    Index,
    IndexList,
    Mapped,
    ModelError,
    PropertyBag,
    Sum,
    field,
)
from tests.databases import memory_database
from tests.writes.verbs import write

KEYS: dict[str, Any] = {"table": "Shops", "partition_key": "{shop}", "row_key": "order_{number:06d}"}


class Numbered(Entity, abstract=True):
    shop: Mapped[str]
    number: Mapped[int]


class Order(Numbered, **KEYS):
    pass


ANY: Any = Order


def declare(body: dict[str, Any], **keywords: Any) -> type[Entity]:
    """Make the class `Wrong` with the keys of `Order`; a value that is a type or an annotation declares a field."""
    namespace: dict[str, Any] = {
        "__annotations__": {"shop": Mapped[str], "number": Mapped[int]},
        "__module__": __name__,
    }
    for name, given in body.items():
        annotation, value = cast("tuple[Any, Any]", given if isinstance(given, tuple) else (None, given))
        if annotation is not None:
            namespace["__annotations__"][name] = annotation
        if value is not ...:
            namespace[name] = value
    given_keywords = {name: value for name, value in {**KEYS, **keywords}.items() if value is not ...}
    return types.new_class("Wrong", (Entity,), given_keywords, lambda found: found.update(namespace))


KEYWORDS: list[tuple[dict[str, Any], str]] = [
    ({"table": "my_table"}, r"Wrong: table='my_table' is rejected: .* a table name is letters and digits"),
    ({"table": "tableormUpkeep"}, r"Wrong: table='tableormUpkeep' is rejected: tableorm keeps its own records there"),
    ({"table": ...}, r"Wrong needs table: class Wrong\(Entity, table=..."),
    ({"partition_key": "{shp}"}, r"Wrong.partition_key: template '{shp}' names 'shp', .* its fields: shop, number"),
    (
        {"partition_key": "{shop:06d}"},
        r"does not know the format '06d' of a str; there are 'lower', and such as 'desc\(26\)'",
    ),
    ({"kind": "a:b"}, r"Wrong: kind='a:b' is rejected: give a string that isn't empty and doesn't contain ':' or '#'"),
    ({"version": 0}, r"Wrong: version=0 is rejected: give an int from 1"),
    ({"discriminator": "type"}, r"Wrong: discriminator='type' is unknown; use 'property', 'row_key', 'partition_key'"),
    ({"naming": "camel"}, r"Wrong: naming='camel' is unknown; use 'as_written', 'pascal' or a function"),
    ({"abstract": "yes"}, r"Wrong: abstract='yes' is rejected: give True or False"),
    (
        {"Table": "x"},
        r"Wrong: there is no class keyword 'Table'; did you mean 'table'\? the keywords are table, partition_key",
    ),
    ({"zzz": "x"}, r"no class keyword 'zzz'; the keywords are table, partition_key, row_key, keys, kind"),
]


@pytest.mark.parametrize(("keywords", "message"), KEYWORDS)
def test_a_keyword_of_a_class(keywords: dict[str, Any], message: str) -> None:
    """The class and the keyword are named, with its value."""
    with pytest.raises(TypeError, match=message):
        declare({}, **keywords)


FIELDS: list[tuple[dict[str, Any], str]] = [
    (
        {"total": (int, ...)},
        r"Wrong.total is annotated int; a field is Mapped\[...\], for example total: Mapped\[str\]",
    ),
    ({"total": field(default=1)}, r"Wrong.total = field\(...\) has no type; write total: Mapped\[...\] = field\(...\)"),
    ({"total": (Mapped[int], 3)}, r"Wrong.total has the default 3; write total: Mapped\[...\] = field\(default=3\)"),
    ({"total": (Mapped[int], field(default=None))}, r"default None; declare the field Mapped\[int \| None\]"),
    (
        {"lines": (Mapped[list[int]], field(default=cast("list[int]", [])))},
        r"mutable default \[\], .* use factory=list",
    ),
    (
        {"tags": (Mapped[set[int]], ...)},
        r"Wrong.tags is declared as set\[int\], which has no stored type; use str, int",
    ),
    (
        {"order": (Mapped[Order], ...)},
        r"Wrong.order is declared with Order, which is a model; declare fields for its key",
    ),
    ({"etag": (Mapped[str], ...)}, r"every entity has an attribute 'etag'; .* etag_: .* field\(name='etag'\)"),
    (
        {"kind": "Order"},
        r"Wrong.kind is rejected: every entity has an attribute 'kind'; write class Wrong\(Entity, kind=...\)",
    ),
    ({"extra": {}}, r"Wrong.extra is rejected: every entity has an attribute 'extra'; rename it"),
    ({"_total": (Mapped[int], ...)}, r"Wrong._total: a field name must be a public identifier other than self"),
    (
        {"total": (Mapped[int], field(name="a b"))},
        r"Wrong.total: The property name 'a b' is invalid: it has U\+0020 at position 1; a name is a letter or _",
    ),
    (
        {"one": (Mapped[int], field(name="x")), "two": (Mapped[int], field(name="x"))},
        r"Wrong: 'one' and 'two' are both stored as 'x'",
    ),
    ({"total": (Mapped[int], field(maintained=True))}, r"needs a default: field\(default=0, maintained=True\)"),
    ({"number": (Mapped[int], field(on_write=int))}, r"Wrong.number is part of the key, so a write can't fill it"),
    ({"by_shop": Index}, r"Wrong.by_shop is the class Index; write Index\(...\)"),
    (
        {"listed": IndexList(row_key="list_{nmae}")},
        r"Wrong.listed.row_key: .* names 'nmae', .* its fields: shop, number",
    ),
]


@pytest.mark.parametrize(("body", "message"), FIELDS)
def test_a_field_of_a_class(body: dict[str, Any], message: str) -> None:
    """The class and the field are named, with its type or default."""
    with pytest.raises(TypeError, match=message):
        declare(body)


ARGUMENTS: list[tuple[Any, dict[str, Any], str]] = [
    (field, {"defaults": 1}, r"field\(defaults=...\) is rejected: there is no such argument; did you mean 'default'\?"),
    (field, {"default": 1, "factory": int}, r"field\(default=..., factory=...\) is rejected: give one of them"),
    (field, {"factory": "x"}, r"field\(factory='x'\) is rejected: give a function that makes the value"),
    (field, {"init": False}, r"field\(init=False\) is not supported: .* leave init out"),
    (Index, {"row_key": 5}, r"Index\(row_key=5\) is rejected: give a template, as in 'email_{email}'"),
    (
        Index,
        {"row_key": "a_{b}", "unique": "yes"},
        r"Index\(unique='yes'\) is rejected: give True or False",
    ),
    (
        Index,
        {"row_key": "a_{b}", "include": "some"},
        r"Index\(include='some'\) is unknown; use 'all', 'keys' or a list",
    ),
    (IndexList, {"row_key": "a_{b}", "divide_at": 5}, r"IndexList\(divide_at=5\) is rejected: give bytes from 2048"),
    (
        lambda: Count(cast("Any", "orders")),
        {},
        r"Count\('orders'\) is rejected: give a field, as in `lambda: Department.employee_count`",
    ),
    (Sum, {}, r"field"),
    (Embedded, {}, r"fields"),
]


@pytest.mark.parametrize(("make", "given", "message"), ARGUMENTS)
def test_an_argument_of_a_declaration(make: Any, given: dict[str, Any], message: str) -> None:
    """The call is shown, with the argument."""
    with pytest.raises(TypeError, match=message):
        make(**given)


@pytest.mark.parametrize("option", ["attempts", "concurrency", "guard", "if_match", "missing_ok"])
def test_an_option_of_a_verb_is_no_key_field(option: str) -> None:
    """`db.modify(Model, fn, attempts=3)` would be two things; a field that is not of the key may be called so."""
    with pytest.raises(TypeError, match=rf"Wrong.{option} is part of the key, .* an option '{option}'; .* {option}_"):
        declare({option: (Mapped[str], ...)}, partition_key=f"{{{option}}}")

    assert option in declare({option: (Mapped[str], ...)}).__schema__.fields


async def test_two_models_of_one_kind() -> None:
    """Their rows could not be told apart: they are rejected when tables are made, and in one query."""
    twin: Any = declare({}, kind="Order", row_key="twin_{number}")
    async with memory_database() as db:
        for use in (lambda: db.create_tables(Order, twin), lambda: db.select(Order, twin).all()):
            with pytest.raises(
                TypeError, match=r"Order and Wrong both have the kind 'Order' in table Shops, .* kind=\"...\""
            ):
                await use()


class Twins:
    class Order(Numbered, table="Shops", partition_key="{shop}", row_key="twin_{number:06d}"):
        pass

    class Export(Numbered, table="Shops", partition_key="{shop}", row_key="export_{number}", kind=None):
        pass

    class Import(Numbered, table="Shops", partition_key="{shop}", row_key="import_{number}", kind=None):
        pass


USES: list[Callable[[Any, type[Entity]], Awaitable[object]]] = [
    lambda db, model: db.create_tables(model),
    lambda db, model: db.get(model, shop="a", number=1),
    lambda db, model: db.select(model).where(cast("Any", model).shop == "a").first(),
    lambda db, model: db.upsert(cast("Any", model)(shop="a", number=1)),
    lambda db, model: write(db, "upsert in a transaction", cast("Any", model)(shop="b", number=1)),
    lambda db, model: write(db, "upsert in a bulk", cast("Any", model)(shop="c", number=1)),
    lambda db, model: db.scope(shop="a").get(model, number=1),
]


@pytest.mark.parametrize("second", USES)
async def test_two_models_of_one_kind_on_one_database(second: Callable[[Any, type[Entity]], Awaitable[object]]) -> None:
    """The second one is rejected when the database is used with it, whatever each of them is used for."""
    for first in USES:
        async with memory_database("Shops") as db:
            for row_key in ("order_000001", "twin_000001"):
                await db.insert(PropertyBag("Shops", "a", row_key, {"EntityType": "Order"}))
            await first(db, Order)
            with pytest.raises(TypeError, match="Order and Order both have the kind 'Order' in table Shops"):
                await second(db, Twins.Order)
            await second(db, Order)


async def test_models_without_a_kind_share_a_table() -> None:
    """What other programs have written tells no kind, so keys tell its models apart."""
    async with memory_database("Shops") as db:
        for model in (Twins.Export, Twins.Import):
            await db.upsert(model(shop="a", number=1))
            found: Any = await db.get(model, shop="a", number=1)
            assert found.number == 1


ENTITIES: list[tuple[Any, str]] = [
    (lambda: ANY("a", 1), r"Order takes its fields by name: write Order\(shop='a', number=1\)"),
    (lambda: ANY(shop="a"), r"Order needs 'number'; give number=..., or declare the field with a default"),
    (
        lambda: ANY(shop="a", numbr=1),
        r"Order has no field 'numbr' \(got 1\); did you mean 'number'\? the fields are",
    ),
    (
        lambda: setattr(order(), "etag", "x"),
        r"Order has no field 'etag', which is set to 'x'; the fields are shop, number.*; keep",
    ),
    (lambda: delattr(order(), "shop"), r"del Order.shop is rejected: an entity has all of its fields; set it to None"),
    (lambda: ANY.key("a", 1), r"Order.key\(\) takes fields by name: write Order.key\(shop='a', number=1\)"),
    (lambda: ANY.key(shop="a", number="1"), r"Order.row_key: .* needs an int, got '1' \(str\) \(field 'number'\)"),
    (lambda: ANY.key(shop="a", number=-1), r"Order.row_key: .* cannot hold -1 in 6 digits; 0 to 999999 fit"),
    (lambda: ANY.key(shop=None, number=1), r"Order.partition_key: .* needs 'shop' \(got None\); set it first"),
    (
        lambda: ANY.key(shop="a" * 2000, number=1),
        r"makes a key that has 2000 characters, 512 are allowed: .* shorten shop",
    ),
]


def order() -> Order:
    return Order(shop="a", number=1)


@pytest.mark.parametrize(("use", "message"), ENTITIES)
def test_a_field_of_an_entity(use: Any, message: str) -> None:
    """The model, the name and the value are named, and the names that there are."""
    with pytest.raises(TypeError, match=message):
        use()


def test_what_a_class_defines_itself_can_be_set() -> None:
    """A property with a setter, and names that begin with an underscore."""

    class Tagged(Order, kind="Tagged", row_key="tagged_{number}"):
        text: Mapped[str] = field(default="")

        @property
        def words(self) -> list[str]:
            return self.text.split()

        @words.setter
        def words(self, words: list[str]) -> None:
            self.text = " ".join(words)

    tagged: Any = Tagged(shop="a", number=1)
    tagged.words = ["a", "b"]
    tagged._memo = 1
    del tagged._memo
    assert tagged.text == "a b"


def test_help_and_inspection_work() -> None:
    """Of the base too, which is no model itself."""
    for model in (Entity, Order):
        assert "key" in dict(inspect.getmembers(model))
        assert "write_token" in pydoc.render_doc(Entity)
        assert model.__name__ in pydoc.render_doc(model)


def test_help_of_a_database_names_no_inner_class() -> None:
    """All that a user may call is in one list, though the class is written in several files."""
    text = pydoc.plain(pydoc.render_doc(Database))
    for name in ("get", "insert", "create_tables", "copy_rows", "audit", "close"):
        assert re.search(rf"^ \|  (async )?{name}\(", text, re.MULTILINE)
    assert "inherited from" not in text
    assert "Method resolution order" not in text
    assert not re.search(r" from tableorm\.", text)


ELSEWHERE: list[tuple[Any, dict[str, Any], str]] = [
    (Index, {"partition_key": "n_{number}"}, r"Index\(partition_key=...\) puts rows .* add consistency='eventual'"),
    (
        Index,
        {"consistency": "eventual"},
        r"consistency='eventual'\) is rejected without partition_key or table: .* leave it out",
    ),
    (
        Index,
        {"table": "ByNumber", "consistency": "strong"},
        r"Index\(consistency='strong'\) is unknown; use 'eventual'",
    ),
    (
        Index,
        {"table": "ByNumber", "consistency": "eventual", "unique": True, "include": "all"},
        r"Index\(include='all', unique=True, consistency='eventual'\) is rejected: its entries reserve values and hold",
    ),
    (
        Index,
        {"partition_key": "{shop}", "consistency": "eventual"},
        r"Wrong.by_number: its rows would be in the partitions of their entities; leave out partition_key",
    ),
    (
        Index,
        {"partition_key": "n_{number}", "row_key": "order_{shop}", "consistency": "eventual"},
        r"Wrong.by_number: a RowKey can be of 'order_{shop}' and of Wrong.row_key .* begin it with a distinct literal",
    ),
    (
        Index,
        {"partition_key": "n_{number}", "row_key": "at_{number}", "consistency": "eventual"},
        r"Wrong.by_number: partition_key 'n_{number}' and row_key 'at_{number}' lack shop, .* add {shop} to the row",
    ),
    (
        Index,
        {"partition_key": "n_{number}", "row_key": "~o_{shop}_{number}", "consistency": "eventual"},
        r"Wrong.by_number: a RowKey of '~o_{shop}_{number}' can begin with '~o_', .* in table Branches, where Wrong",
    ),
    (
        IndexList,
        {"partition_key": "n_{number}"},
        r"IndexList\(partition_key=...\) puts rows .* add consistency='eventual'",
    ),
    (IndexList, {"blob": True}, r"IndexList\(blob=True\) puts lists where .* add consistency='eventual'"),
    (
        IndexList,
        {"blob": True, "consistency": "eventual", "table": "Lists"},
        r"IndexList\(blob=True, table=...\) is rejected: a blob has no rows; leave table out",
    ),
    (
        IndexList,
        {"blob": True, "consistency": "eventual", "divide_at": 4096},
        r"IndexList\(blob=True, divide_at=...\) is rejected: a blob has no rows; leave divide_at out",
    ),
]


@pytest.mark.parametrize(("make", "given", "message"), ELSEWHERE)
def test_rows_in_other_partitions(make: Any, given: dict[str, Any], message: str) -> None:
    """What belongs together is said of indexes and lists, and why their keys cannot be those that are given."""
    with pytest.raises(TypeError, match=message):
        declare({"by_number": make(**{"row_key": "at_{shop}_{number}", **given})}, table="Branches")


def test_who_begins_templates_as_told_ends() -> None:
    """If keys of the model could begin with anything, its own template needs literal text, not the index."""
    body = {"shop": (Mapped[str], ...), "name": (Mapped[str], ...)}
    with pytest.raises(
        ModelError, match=r"begin Wrong.row_key with .* as in 'row_{name}', and this one too, as in 'by_"
    ):
        declare({**body, "by": Index(row_key="{shop}_{name}")}, row_key="{name}", partition_key="p_{number}")
    with pytest.raises(ModelError, match=r"begin Wrong.row_key with a distinct literal, as in 'row_{name}'$"):
        declare({**body, "by": Index(row_key="by_{shop}_{name}")}, row_key="{name}", partition_key="p_{number}")
    declare({**body, "by": Index(row_key="by_{shop}_{name}")}, row_key="row_{name}", partition_key="p_{number}")
