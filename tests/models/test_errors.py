"""
Errors: one tree, clear to read, and the same after a trip to another process.
"""

import copy
import pickle
import re
from pathlib import Path
from typing import Any

import pytest

import tableorm
from tableorm import errors, http_message, http_status
from tableorm.connection.translate import translate
from tableorm.errors import (
    AccessDenied,
    Conflict,
    DecodeError,
    EncodeError,
    EntityExists,
    EntityNotFound,
    InputFault,
    InvalidInput,
    LimitExceeded,
    LostRace,
    ModelError,
    NotLoaded,
    OutcomeUnknown,
    PreconditionFailed,
    TableNotFound,
    TableOrmError,
    TemplateError,
    TransactionFailed,
    Unavailable,
    UniqueViolation,
    WrongKind,
    shown,
)
from tableorm.protocol.codes import Code, Fault

EXAMPLES: list[TableOrmError] = [
    TableOrmError("failed", "InternalError"),
    ModelError("Odd: wrong"),
    TemplateError("needs 'id' (got None)", "Order", "row_key", "order-{id}", fields=["id"]),
    EncodeError("is a str, not an int", "Order", "count", "5"),
    DecodeError("has no property 'x'", "Order", ("p", "r"), "x"),
    InvalidInput("Order", [InputFault(("items", 2, "price"), "is a str", "5"), InputFault((), "is a list", [])]),
    EntityNotFound("there is none", "ResourceNotFound", ("p", "r")),
    TableNotFound("no table", "TableNotFound", "Orders"),
    WrongKind("another kind", ("p", "r"), "Other"),
    NotLoaded("Order.x was not loaded"),
    EntityExists("exists", "EntityAlreadyExists", {"a": 1}),
    PreconditionFailed("changed", "UpdateConditionNotSatisfied", {"a": 1}),
    TransactionFailed("operation 3 failed", "EntityAlreadyExists", 3, "insert", {"a": 1}),
    OutcomeUnknown("a reply was lost", "NoAnswer", "save", "abcdefghijkl", {"a": 1}),
    LimitExceeded("too large", "EntityTooLarge", model="Order", field="note", limit=65_536, size=70_000),
    LostRace("others wrote it first"),
]


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_errors_survive_pickling(error: TableOrmError) -> None:
    """Type, message, code and every attribute come back, and what was noted on it."""
    error.add_note("while testing")

    back = pickle.loads(pickle.dumps(error))

    assert type(back) is type(error)
    assert str(back) == str(error)
    assert vars(back) == vars(error)
    assert back.args == error.args


def test_the_cause_of_a_transaction_survives_pickling() -> None:
    """In another process too a failed transaction has the error of its operation; what others raise stays behind."""
    failed = TransactionFailed("operation 0: changed", index=0)
    failed.__cause__ = PreconditionFailed("changed")
    failed.__cause__.__cause__ = ZeroDivisionError()

    back = pickle.loads(pickle.dumps(failed))

    assert isinstance(back.__cause__, PreconditionFailed)
    assert str(back.__cause__) == "changed"
    assert back.__cause__.__cause__ is None
    assert http_status(back) == 412


def test_faults_survive_pickling() -> None:
    """So does a store's own error, and as that of an error, in another process or a copy."""
    error = translate(Fault(Code.ENTITY_EXISTS, "exists", request_id="1"), "insert", "Orders")
    copied, back = copy.copy(error).fault, pickle.loads(pickle.dumps(error)).fault
    assert error.fault is not None and copied is error.fault
    assert isinstance(back, Fault) and back.args == error.fault.args

    back = pickle.loads(pickle.dumps(Fault(Code.ENTITY_EXISTS, "exists", 3, "a", doubt=True, retry_after=2.5)))

    assert (back.code, back.message, back.index, back.property) == ("EntityAlreadyExists", "exists", 3, "a")
    assert (back.doubt, back.retry_after, back.transient) == (True, 2.5, True)
    assert str(back) == "3:EntityAlreadyExists: exists"


@pytest.mark.parametrize("name", errors.__all__)
def test_one_tree(name: str) -> None:
    """Every error is a TableOrmError, and public; so is what an InvalidInput lists."""
    found = getattr(errors, name)

    if isinstance(found, type):
        assert issubclass(found, TableOrmError) or found is InputFault
        assert getattr(tableorm, name) is found
    else:
        assert found in (
            shown,
            errors.counted,
            errors.near,
            errors.without_own_frames,
            errors.MAX_FAULTS,
            errors.ENCRYPTED,
        )


def test_messages_name_what_is_wrong() -> None:
    """A template error shows the template, a value's error the value, a row's error its keys."""
    texts = [str(error) for error in EXAMPLES[2:6]]

    assert texts == [
        "Order.row_key: template 'order-{id}' needs 'id' (got None)",
        "Order.count: '5' is a str, not an int",
        "Order.x: row ('p', 'r') has no property 'x'",
        "Order: the data has 2 faults\n  Order.items[2].price: '5' is a str\n  Order: [] is a list",
    ]


class _Unshowable:
    def __repr__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("x", "'x'"),
        (5, "5"),
        ("x" * 200, "'" + "x" * 76 + "..."),
        (_Unshowable(), "<_Unshowable whose repr() raises RuntimeError>"),
    ],
)
def test_values_in_messages(value: Any, text: str) -> None:
    """A long value is cut; one that cannot show itself does not hide the error."""
    assert shown(value) == text


def test_python_kinds_of_errors() -> None:
    """Errors are also what Python would raise: LookupError for what is not there, ValueError for a bad value."""
    for error, kind in (
        (EntityNotFound, LookupError),
        (TemplateError, ValueError),
        (EncodeError, ValueError),
        (DecodeError, ValueError),
        (NotLoaded, AttributeError),
        (LimitExceeded, ValueError),
    ):
        assert issubclass(error, kind)


def documented_statuses() -> dict[str, int]:
    """The statuses in the table of docs/programs/errors.md, by name of the error."""
    page = (Path(__file__).parents[2] / "docs" / "programs" / "errors.md").read_text(encoding="utf-8")
    found: dict[str, int] = {}
    for line in page.split("## HTTP statuses")[1].splitlines():
        row = re.fullmatch(r"\| ([0-9]{3}) \| (.*) \|.*\|", line)
        if row is not None:
            found |= dict.fromkeys(re.findall(r"`([A-Za-z]+)`", row[2]), int(row[1]))
    return found


def test_every_error_has_the_status_that_the_page_says() -> None:
    """The table of docs/programs/errors.md names every class, except for the one that has the status of its cause."""
    classes = [getattr(errors, name) for name in errors.__all__]
    classes = [each for each in classes if isinstance(each, type) and issubclass(each, TableOrmError)]
    statuses: dict[str, int] = {}
    for each in classes:
        error = each.__new__(each)
        error.code = None
        statuses[each.__name__] = http_status(error)

    assert statuses.pop("TransactionFailed") == 500
    assert statuses == documented_statuses()


def test_the_status_of_what_is_no_class_of_its_own() -> None:
    """The cause of a failed transaction decides; an error of a user's own is what it derives from, any other is 500."""
    failed = TransactionFailed("operation 0 failed")
    failed.__cause__ = PreconditionFailed("changed")
    assert http_status(failed) == 412
    failed.__cause__ = TransactionFailed("operation 0 failed")
    assert http_status(failed) == 500
    failed.__cause__.__cause__ = EntityExists("exists")
    assert http_status(failed) == 409
    failed.__cause__ = ZeroDivisionError()
    assert http_status(failed) == 500

    class OutOfStock(EntityExists): ...

    assert http_status(OutOfStock("none left")) == 409
    assert http_status(KeyError("x")) == http_status(ValueError("x")) == 500


def test_a_store_that_refuses_the_service_is_no_fault_of_the_client() -> None:
    """What a scope refuses is 403. A refusal of the store is about the key or token of the service: 500."""
    assert http_status(AccessDenied("another tenant")) == 403
    assert http_status(AccessDenied("the key is wrong", Code.AUTHENTICATION_FAILED)) == 500
    assert http_message(AccessDenied("the key is wrong", Code.AUTHENTICATION_FAILED)) == "the service has failed"


def test_a_mistake_of_the_program_is_no_fault_of_the_client() -> None:
    """A value that does not fit is 422; a field that was not set, or that nobody may set, is 500 and in the log."""
    assert http_status(TemplateError("needs digits", "Order", "row_key", "{id}", fields=["id"])) == 422
    assert http_status(TemplateError("needs 'shop' (got None)", "Order", "partition_key", "{shop}")) == 500
    assert http_status(EncodeError("is a str", "Order", "count", "5")) == 422
    assert http_status(EncodeError("is rejected", "Order", "orders", 5, misuse=True)) == 500
    assert http_status(InvalidInput("Order", [InputFault(("count",), "is a str", "5")])) == 422


SECRET = "acme-4711"

MESSAGES: list[tuple[BaseException, str]] = [
    (AccessDenied(SECRET), "this is not permitted"),
    (EntityNotFound(SECRET, key=SECRET), "there is no such entity"),
    (EntityExists(SECRET, entity=SECRET), "the entity already exists"),
    (
        UniqueViolation(SECRET, entity=SECRET, values={"email": SECRET, "name": SECRET}),
        "another entity has the same email, name already",
    ),
    (UniqueViolation(SECRET), "another entity has the same value already"),
    (PreconditionFailed(SECRET), "it was changed in the meantime: read it again, and repeat the change"),
    (LostRace(SECRET), "others changed the same data, and nothing was written: try again"),
    (Conflict(SECRET), "the stored data does not allow this"),
    (LimitExceeded(SECRET), "this is too much for one entity or one request"),
    (LimitExceeded(SECRET, field="note"), "note: this is too much for one entity or one request"),
    (EncodeError(SECRET, "Order", "if_match", SECRET), "if_match: a value does not fit"),
    (EncodeError(SECRET, "Order", "count", SECRET, misuse=True), "the service has failed"),
    (TemplateError(SECRET, "Order", "row_key", SECRET, fields=["id"]), "id: a value does not fit the key"),
    (TemplateError(SECRET, "Order", "row_key", SECRET), "the service has failed"),
    (
        InvalidInput("Order", [InputFault(("boxes",), "is rejected: too few", 0), InputFault(("x",), "is one", 1)]),
        "Order: the data has 2 faults\n  Order.boxes: 0 is rejected: too few\n  Order.x: 1 is one",
    ),
    (Unavailable(SECRET), "the service is busy: try again later"),
    (TableOrmError(SECRET), "the service has failed"),
    (KeyError(SECRET), "the service has failed"),
]


@pytest.mark.parametrize(("error", "text"), MESSAGES, ids=lambda given: type(given).__name__)
def test_what_a_client_may_be_told(error: BaseException, text: str) -> None:
    """A message for clients has no key, no table and no stored value; that of a transaction is that of its cause."""
    failed = TransactionFailed(SECRET, entity=SECRET)
    failed.__cause__ = error

    assert http_message(error) == http_message(failed) == text
