"""
What a web service meets: whose fault an error is, where in a body it is, and what a declaration says that is wrong.
"""

import types
from typing import Annotated, Any, cast

import attrs
import msgspec
import pytest

from tableorm import (
    Count,
    Database,
    EncodeError,
    Entity,
    Index,
    InvalidInput,
    LimitExceeded,
    Mapped,
    ModelError,
    Sum,
    TableOrmError,
    TemplateError,
    field,
    from_dict,
    http_message,
    http_status,
)
from tests.databases import database_fixture


@attrs.define
class Line:
    article: str
    cents: Annotated[int, msgspec.Meta(ge=0, le=10_000_000)]
    pieces: Annotated[int, msgspec.Meta(gt=0)] = 1


class Shop(Entity, table="MistakenShops", partition_key="{shop}", row_key="shop"):
    shop: Mapped[str]
    orders: Mapped[int] = field(default=0, maintained=True)


class Order(Entity, table="MistakenShops", partition_key="{shop}", row_key="order_{id:04d}"):
    shop: Mapped[str | None] = field(default=None)
    id: Mapped[int]
    email: Mapped[str] = field(default="")
    note: Mapped[str] = field(default="")
    data: Mapped[bytes] = field(default=b"")
    lines: Mapped[list[Line]] = field(factory=list)
    by_email = Index(row_key="email_{email}_{id:04d}")
    counted = Count(lambda: Shop.orders, shop="{shop}", create=True)


class Letter(Entity, table="MistakenLetters", partition_key="letters", row_key="{tenant}_{subject}"):
    tenant: Mapped[str]
    subject: Mapped[str]


db = database_fixture(Order)


async def failing(call: Any) -> TableOrmError:
    with pytest.raises(TableOrmError) as caught:
        await call
    return caught.value


async def test_whose_fault_an_error_is(db: Database) -> None:
    """What a client may have sent is 422; what only the program can have done is 500, so that it is in the log."""
    missing = await failing(db.insert(Order(id=1)))
    unknown = await failing(db.get(Order, shop="a", idd=1))
    large = await failing(db.get(Order, shop="a", id=10_000))
    long = await failing(db.insert(Order(shop="a", id=1, email="x" * 600)))
    counted = await failing(db.insert(Shop(shop="b", orders=7)))
    order = Order(shop="a", id=1)
    with pytest.raises(EncodeError) as none:
        cast("Any", order).email = None
    with pytest.raises(EncodeError) as query:
        db.select(Order).where(Order.shop == "a", cast("Any", Order.id) == "x")

    given = [missing, unknown, large, long, counted, none.value, query.value]
    assert [http_status(error) for error in given] == [500, 500, 422, 422, 500, 500, 422]
    assert [http_message(error) for error in (large, long)] == [
        "id: a value does not fit the key",
        "email, id: too long: a key has 512 characters at most",
    ]
    assert isinstance(large, TemplateError)
    assert large.fields == ("id",)


async def test_a_maintained_field_of_a_new_entity(db: Database) -> None:
    """An insert is told to leave it out, since nothing was read."""
    error = await failing(db.insert(Shop(shop="b", orders=7)))
    await db.insert(Order(shop="a", id=1))
    shop = await db.get(Shop, shop="a")
    shop.orders = 7
    changed = await failing(db.save(shop))

    assert str(error).endswith("nothing else may write it; leave it out, so that it begins with its default")
    assert str(changed).endswith("nothing else may write it; leave it as it was read")
    assert all(isinstance(each, EncodeError) and each.misuse for each in (error, changed))


def faults_of(**data: object) -> list[tuple[tuple[object, ...], str]]:
    with pytest.raises(InvalidInput) as caught:
        from_dict(Order, {"shop": "a", "id": 1, **data})
    return [(fault.path, fault.problem) for fault in caught.value.faults]


def test_what_is_too_long_for_a_property_has_a_path() -> None:
    """It is reported with all other faults, and before anything is sent."""
    text, data = "x" * 40_000, "eHh4" * 25_000
    assert faults_of(note=text, data=data, lines=[{"article": text, "cents": 1}], email=5) == [
        (("note",), "has 40000 characters as it is stored, 32768 are allowed; the field is str"),
        (("data",), "has 75000 bytes as it is stored, 65536 are allowed; the field is bytes"),
        (("lines",), "has 40037 characters as it is stored, 32768 are allowed; the field is list[Line]"),
        (("email",), "does not fit: Expected `str`, got `int`; the field is str"),
    ]


def test_what_just_fits_a_property() -> None:
    """64 KiB are 32768 characters."""
    assert len(from_dict(Order, {"shop": "a", "id": 1, "note": "x" * 32_768}).note) == 32_768
    assert faults_of(note="x" * 32_769)[0][0] == ("note",)


def test_what_does_not_fit_a_key_has_a_path() -> None:
    """The key of the entity, or of its entry in an index; of several fields the one with the longest value."""
    problem = "does not fit Order.row_key 'order_{id:04d}': cannot hold 10000 in 4 digits; 0 to 9999 fit"
    assert faults_of(id=10_000) == [(("id",), problem)]
    ((path, problem),) = faults_of(email="x" * 600)
    assert path == ("email",)
    what = "Order.by_email.row_key makes a key that has 611 characters, 512 are allowed"
    assert problem == f"is rejected: {what}; shorten email, id"


def test_what_makes_a_key_too_long_shows_no_key() -> None:
    """The client who is told so may not see what the service itself has put into the key."""
    with pytest.raises(InvalidInput) as caught:
        from_dict(Letter, {"tenant": "secret", "subject": "x" * 600})

    assert http_status(caught.value) == 422
    assert "secret" not in http_message(caught.value)


def test_a_key_without_a_field_that_a_scope_fills() -> None:
    """It is not looked at: the scope fills the field when the entity is written."""
    order = from_dict(Order, {"id": 1, "email": "a"})

    assert order.shop is None


def test_what_a_missing_member_has_to_be() -> None:
    """In plain words, and not as the type is written in Python."""
    faults = faults_of(lines=[{"article": "a"}, {"cents": 1, "pieces": 0}])
    assert faults[:2] == [
        (("lines", 0, "cents"), "is missing; the member is int from 0 to 10000000"),
        (("lines", 1, "pieces"), "does not fit: Expected `int` >= 1"),
    ]


async def test_a_dict_in_place_of_a_class(db: Database) -> None:
    """The message names the class to give."""
    lines: Any = [Line("a", 1), {"article": "b", "cents": 2}]
    error = await failing(db.insert(Order(shop="a", id=1, lines=lines)))

    assert "has the dict {'article': 'b', 'cents': 2} at [1] where the type is a class; give a Line" in str(error)


async def test_which_field_is_too_large(db: Database) -> None:
    """The error says so in attributes, of which a handler can make the place in a body."""
    one = await failing(db.insert(Order(shop="a", id=1, note="x" * 40_000)))
    many = {f"extra{number}": "x" * 30_000 for number in range(20)}
    order = Order(shop="a", id=1)
    for name, value in many.items():
        order.extra[name] = value
    all_in_all = await failing(db.insert(order))

    assert isinstance(one, LimitExceeded)
    assert (one.model, one.field, one.limit, one.size) == ("Order", "note", 65_536, 80_000)
    assert http_status(one) == 413
    assert http_message(one) == "note: this is too much for one entity or one request"
    assert isinstance(all_in_all, LimitExceeded)
    assert (all_in_all.model, all_in_all.field, all_in_all.limit) == ("Order", "", 1_048_576)
    assert all_in_all.size is not None
    assert all_in_all.size > 1_048_576


def test_a_sum_of_a_field_that_does_not_exist() -> None:
    """The nearest field is named."""
    with pytest.raises(ModelError, match=r"Typed\.total: Typed has no field 'stt' to sum; did you mean 'stat'"):

        class Typed(  # pyright: ignore[reportUnusedClass]
            Entity, table="MistakenSums", partition_key="a", row_key="typed_{id}"
        ):
            id: Mapped[int]
            stat: Mapped[int]
            total = Sum("stt", lambda: Shop.orders, shop="a")


def identity(entity: Any) -> Any:
    return entity


FIELDS = [
    field(default=None, on_write=cast("Any", identity)),
    field(default=None, on_insert=cast("Any", identity)),
    field(factory=cast("Any", identity)),
]


@pytest.mark.parametrize("declared", FIELDS, ids=["on_write", "on_insert", "factory"])
def test_a_function_that_needs_arguments_makes_no_value(declared: Any) -> None:
    """It is rejected when the class is made, with model and field."""
    members = {"__annotations__": {"id": Mapped[int], "stamp": Mapped[Any]}, "stamp": declared}
    with pytest.raises(ModelError, match=r"Made\.stamp: field\(\w+=.*\) is rejected: .* this one needs entity"):
        types.new_class(
            "Made",
            (Entity,),
            {"table": "MistakenMakers", "partition_key": "a", "row_key": "made_{id}"},
            lambda space: space.update(members),
        )
