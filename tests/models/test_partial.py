"""
Partial: what a request wants to change in an entity.
"""

import datetime as dt
import pickle
from collections.abc import Callable
from typing import Any, cast

import attrs
import pytest
from fastapi.encoders import jsonable_encoder
from pydantic import TypeAdapter

from tableorm import (
    Entity,
    InvalidInput,
    Mapped,
    ModelError,
    NotLoaded,
    Partial,
    WithoutKey,
    field,
    from_dict,
    to_dict,
    utc_now,
)


class Document(Entity, table="Documents", partition_key="{owner}", row_key="{kind}_{id}", abstract=True):
    owner: Mapped[str]
    id: Mapped[str]
    note: Mapped[str | None] = field(default=None)


class Order(Document):
    total: Mapped[float] = field(default=0.0, validator=attrs.validators.ge(0))
    code: Mapped[str] = field(default="", converter=str.upper, validator=attrs.validators.max_len(3))
    due: Mapped[dt.date | None] = field(default=None)
    lines: Mapped[int] = field(default=0, maintained=True)


class Dated(Entity, table="Dated", partition_key="{owner}", row_key="{id}"):
    owner: Mapped[str]
    id: Mapped[str]
    total: Mapped[int] = field(default=0)
    made: Mapped[dt.datetime | None] = field(default=None, on_insert=utc_now)
    changed: Mapped[dt.datetime | None] = field(default=None, on_write=utc_now)


def not_below_low(entity: "Range", attribute: object, value: int) -> None:
    if value < entity.low:
        raise ValueError(f"it is below low, {entity.low}")


class Range(Entity, table="Ranges", partition_key="p", row_key="{id}"):
    id: Mapped[str]
    low: Mapped[int] = field(default=0)
    high: Mapped[int] = field(default=9, validator=not_below_low)


def test_what_was_given() -> None:
    """A partial has the fields that were given, converted as by from_dict; None is given, too."""
    changes = Partial(Order, {"due": "2024-02-29", "note": None, "total": 3})

    assert changes.given == {"due": dt.date(2024, 2, 29), "note": None, "total": 3.0}
    assert changes == Partial(Order, {"due": dt.date(2024, 2, 29), "note": None, "total": 3.0})
    assert changes != Partial(Order, {})
    assert pickle.loads(pickle.dumps(changes)) == changes


def test_update() -> None:
    """An update sets what was given, by converters, and leaves everything else."""
    order = Order(owner="jun", id="1", note="soon", total=1.0, due=dt.date(2024, 1, 1))

    order.update(Partial(Order, {"code": "ab", "due": None}))

    assert order == Order(owner="jun", id="1", note="soon", total=1.0, code="AB")


def test_fields_that_cannot_be_changed() -> None:
    """Fields of the key, those that other entities maintain, and unknown ones are rejected when the partial is made."""
    with pytest.raises(InvalidInput) as caught:
        Partial(Order, {"id": "2", "lines": 1, "totall": 2, "total": 1})

    assert [(fault.path, fault.kind) for fault in caught.value.faults] == [
        (("id",), "unknown"),
        (("lines",), "unknown"),
        (("totall",), "unknown"),
    ]
    message = str(caught.value)
    assert "Order.id: '2' is rejected: the field is part of the key, which can't change; leave it out\n" in message
    assert "Order.lines: 1 is rejected: writes of other entities maintain the field; leave it out" in message
    assert message.endswith("does not exist; the model's fields are note, total, code, due")


def test_a_key_beside_a_new_entity() -> None:
    """A field of the key in a `WithoutKey` is rejected since the key is given apart, and nothing says that it stays."""
    with pytest.raises(InvalidInput, match="'2' is rejected: the field is part of the key, which is passed separately"):
        WithoutKey(Order, {"id": "2", "total": 1})


@pytest.mark.parametrize("body", [Partial, WithoutKey])
def test_fields_that_a_write_fills(body: Callable[[type[Dated], dict[str, Any]], object]) -> None:
    """What `on_insert` and `on_write` make is rejected in a body; the message says that it is to be left out."""
    with pytest.raises(InvalidInput) as caught:
        body(Dated, {"made": "2024-02-29T00:00:00Z", "changed": None})

    assert [(fault.path, fault.problem) for fault in caught.value.faults] == [
        (("made",), "is rejected: the insert fills the field; leave it out"),
        (("changed",), "is rejected: each write fills the field; leave it out"),
    ]


@pytest.mark.parametrize("body", [Partial, WithoutKey])
def test_a_body_that_is_no_object(body: Callable[[type[Dated], Any], object]) -> None:
    """The error lists the fields that a body takes, and no others."""
    with pytest.raises(InvalidInput, match=r"members are fields of the model: total$"):
        body(Dated, [])


def test_programs_may_give_what_a_write_fills() -> None:
    """A program gives such a field by name: to `entity` beside the key, and in data that it has stored itself."""
    noon = dt.datetime(2024, 2, 29, 12, tzinfo=dt.UTC)

    dated = WithoutKey(Dated, {"total": 2}).entity(owner="jun", id="1", made=noon)

    assert dated == Dated(owner="jun", id="1", total=2, made=noon)
    assert from_dict(Dated, to_dict(dated, mode="json")) == dated


def test_values_that_do_not_fit() -> None:
    """Types and validators are checked when the partial is made; a field that cannot be None cannot be removed."""
    with pytest.raises(InvalidInput) as caught:
        Partial(Order, {"total": -1, "code": None, "due": "soon"})

    assert [fault.path for fault in caught.value.faults] == [("code",), ("due",), ("total",)]


def test_all_or_nothing() -> None:
    """A validator that looks at other fields is asked when the entity is there; if it refuses, nothing is set."""
    changes = Partial(Range, {"high": 5})
    fitting = Range(id="a", low=4)
    fitting.update(changes)
    other = Range(id="b", low=7)

    with pytest.raises(InvalidInput, match=r"^Range.high: 5 is rejected: it is below low, 7$"):
        other.update(changes)
    with pytest.raises(InvalidInput, match=r"^Range.high: 2 is rejected: it is below low, 3$"):
        other.update(Partial(Range, {"low": 3, "high": 2}))

    assert (fitting.high, other) == (5, Range(id="b", low=7))


def test_a_validator_of_what_was_not_loaded() -> None:
    """If a validator looks at a field that was not loaded, the update says which one."""
    entity = Range(id="a")
    del entity.__dict__["low"]

    with pytest.raises(NotLoaded, match=r"Range.low"):
        entity.update(Partial(Range, {"high": 5}))


def test_partials_of_a_base() -> None:
    """A partial of an abstract base changes entities of all its classes, but no field that is in the key of one."""
    order = Order(owner="jun", id="1")
    changes = Partial(Document, {"note": "later"})

    order.update(changes)

    assert order.note == "later"


class Base(Entity, abstract=True):
    name: Mapped[str]


class Named(Base, table="Named", partition_key="p", row_key="{name}"): ...


def test_keys_of_one_class_alone() -> None:
    """A field that is in the key of an entity's own class is rejected by the update, if its base does not know."""
    changes = Partial(Base, {"name": "b"})

    with pytest.raises(InvalidInput, match=r"^Named.name: 'b' is rejected: the field is part of the key"):
        Named(name="a").update(changes)


def test_partials_of_something_else() -> None:
    """What is not a model, and a partial of another model, are rejected by name."""
    with pytest.raises(ModelError, match=r"Partial of <class 'int'> is rejected: it is not a model"):
        Partial(cast(Any, int), {})
    with pytest.raises(ModelError, match=r"Order.update\(\) takes a Partial\[Order\], not one of Range"):
        Order(owner="jun", id="1").update(cast(Any, Partial(Range, {})))


class Parcel(Document):
    weight: Mapped[float] = field(validator=attrs.validators.gt(0))
    lines: Mapped[int] = field(default=0, maintained=True)


def test_an_entity_of_a_body_without_key() -> None:
    """It has the fields that were given, the defaults of others, and the key."""
    content = WithoutKey(Parcel, {"weight": 2, "note": "soon"})

    assert content.given == {"weight": 2.0, "note": "soon"}
    assert content.entity(owner="jun", id="1") == Parcel(owner="jun", id="1", weight=2.0, note="soon")
    assert pickle.loads(pickle.dumps(content)) == content
    assert repr(content) == f"WithoutKey(model={Parcel!r}, given={content.given!r})"


def test_what_a_body_without_key_refuses() -> None:
    """Fields of the key, maintained and unknown ones, and missing ones, all at once; validators are asked too."""
    with pytest.raises(InvalidInput) as caught:
        WithoutKey(Parcel, {"id": "2", "lines": 1, "wight": 2})
    assert [(fault.path, fault.kind) for fault in caught.value.faults] == [
        (("id",), "unknown"),
        (("lines",), "unknown"),
        (("wight",), "unknown"),
        (("weight",), "missing"),
    ]
    with pytest.raises(InvalidInput, match=r"Parcel.weight: 0.0 is rejected: 'weight' must be > 0"):
        WithoutKey(Parcel, {"weight": 0})


def test_a_wrong_key_of_a_body_without_key() -> None:
    """A field of the key that is missing, or no field at all, is named."""
    content = WithoutKey(Parcel, {"weight": 2})

    with pytest.raises(TypeError, match="Parcel needs 'id'"):
        content.entity(owner="jun")
    with pytest.raises(TypeError, match="Parcel has no field 'ownr'"):
        content.entity(ownr="jun", id="1")


def need_reader(book: Any, attribute: Any, reader: str | None) -> None:
    if (book.state == "on loan") != (reader is not None):
        raise ValueError("a book has a reader if it is on loan, and otherwise none")


class Book(Entity, table="PartialBooks", partition_key="p", row_key="{id}"):
    id: Mapped[int]
    state: Mapped[str] = field(default="here")
    reader: Mapped[str | None] = field(default=None, validator=need_reader)


PAIR = "a book has a reader if it is on loan, and otherwise none"


def test_a_change_by_which_another_field_passes_no_more() -> None:
    """A validator of a field that is not changed is asked too, since it may look at one that is."""
    book = Book(id=1)

    with pytest.raises(InvalidInput, match=f"^Book.reader: None is rejected: {PAIR}$"):
        book.update(Partial(Book, {"state": "on loan"}))
    assert book == Book(id=1)

    book.update(Partial(Book, {"state": "on loan", "reader": "ann"}))
    assert book.reader == "ann"


@pytest.mark.parametrize("data", [{"state": "on loan"}, {"reader": "ann"}])
def test_data_whose_fields_do_not_fit_one_another(data: dict[str, str]) -> None:
    """Also where each field fits by itself, what a client sends is rejected as its input, with the field."""
    with pytest.raises(InvalidInput, match=f"^Book.reader: .* is rejected: {PAIR}$") as refused:
        WithoutKey(Book, data).entity(id=1)
    assert [fault.path for fault in refused.value.faults] == [("reader",)]

    with pytest.raises(InvalidInput, match=f"^Book.reader: .* is rejected: {PAIR}$"):
        from_dict(Book, {"id": 1, **data})
    assert WithoutKey(Book, {"state": "on loan", "reader": "ann"}).entity(id=1).reader == "ann"


def test_a_validator_that_cannot_tell_refuses_nothing() -> None:
    """It looks at a field that was not loaded, and the field that it is of is not changed."""
    book = Book(id=1)
    del book.__dict__["state"]
    note = Partial(Book, {})

    book.update(note)
    assert book.reader is None


class Account(Entity, table="Accounts", partition_key="{shop}", row_key="{name}"):
    shop: Mapped[str]
    name: Mapped[str]
    email: Mapped[str | None] = field(default=None)
    state: Mapped[str] = field(default="open", readonly=True)
    rank: Mapped[int] = field(readonly=True)
    password: Mapped[str | None] = field(default=None, hidden=True)
    digest: Mapped[bytes | None] = field(default=None, hidden=True, readonly=True)


ACCOUNT = Account(shop="a", name="ann", state="closed", rank=3, password="secret", digest=b"1")


BODIES: dict[str, Callable[[dict[str, Any]], object]] = {
    "Partial": lambda data: Partial(Account, data),
    "WithoutKey": lambda data: WithoutKey(Account, data),
    "from_dict": lambda data: from_dict(Account, {"shop": "a", "name": "ann", **data}),
    "pydantic": lambda data: TypeAdapter(Account).validate_python({"shop": "a", "name": "ann", **data}),
    "pydantic Partial": lambda data: TypeAdapter(Partial[Account]).validate_python(data),
    "pydantic WithoutKey": lambda data: TypeAdapter(WithoutKey[Account]).validate_python(data),
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
@pytest.mark.parametrize(("name", "value"), [("state", "closed"), ("rank", 9), ("digest", "AA==")])
def test_no_client_sets_a_read_only_field(body: Callable[[dict[str, Any]], object], name: str, value: object) -> None:
    """Whatever the form of its data is, the field is named."""
    with pytest.raises(ValueError, match=rf"(?s){name}.*read-only for clients"):
        body({name: value})


def test_the_program_sets_read_only_fields() -> None:
    """Of the entity, beside a body, and from data of its own; an update by clients leaves them alone."""
    account = WithoutKey(Account, {"email": "x"}).entity(shop="a", name="ann", rank=3)
    account.state = "closed"
    account.update(Partial(Account, {"email": None, "password": "secret"}))

    assert account == ACCOUNT.evolve(digest=None)
    everything = to_dict(ACCOUNT, "json", include=list(Account.__schema__.fields))
    assert from_dict(Account, everything, trusted=True) == ACCOUNT
    given = {"shop": "a", "name": "ann", "state": "open", "digest": None}
    with pytest.raises(InvalidInput, match=r"rank: is missing, and read-only for clients.*WithoutKey") as caught:
        from_dict(Account, given)
    assert len(caught.value.faults) == 1, "a default may be given"


def test_hidden_fields_are_shown_to_nobody() -> None:
    """They are in no form of data that leaves the program, unless they are asked for by name."""
    shown = {"shop": "a", "name": "ann", "email": None, "state": "closed", "rank": 3}

    assert to_dict(ACCOUNT) == to_dict(ACCOUNT, "json") == shown
    assert TypeAdapter(Account).dump_python(ACCOUNT) == TypeAdapter(Account).dump_python(ACCOUNT, mode="json") == shown
    assert TypeAdapter(Entity).dump_python(ACCOUNT) == jsonable_encoder({"it": ACCOUNT})["it"] == shown
    assert TypeAdapter(Partial[Account]).dump_python(Partial(Account, {"password": "x", "email": "y"})) == {
        "email": "y"
    }
    assert to_dict(ACCOUNT, "json", include=[Account.password, "digest"]) == {"password": "secret", "digest": "MQ=="}
    assert TypeAdapter(Account).dump_python(ACCOUNT, include={"password"}) == {"password": "secret"}


@pytest.mark.parametrize("mode", ["validation", "serialization"])
def test_schemas_of_read_only_and_hidden_fields(mode: Any) -> None:
    """OpenAPI calls them readOnly and writeOnly; what is both is in no schema."""
    schema = TypeAdapter(Account).json_schema(mode=mode)
    flags = {
        name: [flag for flag in ("readOnly", "writeOnly") if each.get(flag)]
        for name, each in schema["properties"].items()
    }

    assert flags == {
        "shop": [], "name": [], "email": [], "state": ["readOnly"], "rank": ["readOnly"], "password": ["writeOnly"]
    }  # fmt: skip
    assert list(TypeAdapter(Partial[Account]).json_schema(mode=mode)["properties"]) == ["email", "password"]
    assert list(TypeAdapter(WithoutKey[Account]).json_schema(mode=mode)["properties"]) == ["email", "password"]
