"""
Keys that a program makes by itself: a key of a model may be given the RowKey of another one, whose partitions tell the
tenant in another way.
"""

import datetime as dt

import pytest

from tableorm import AccessDenied, Database, DecodeError, Entity, Key, Mapped, ModelError, PropertyBag
from tests.security.test_scopes import refuse_all


class Owned(Entity, abstract=True):
    tenant: Mapped[str]
    id: Mapped[int]


class Note(Owned, table="KeyedNotes", partition_key="{tenant}", row_key="note_{id:05d}"):
    text: Mapped[str]


class Visit(Owned, table="KeyedNotes", partition_key="{tenant}_{city}", row_key="visit_{id:05d}"):
    city: Mapped[str]
    text: Mapped[str]


# By the partition alone it is of a visit of acme in rome; it is the note of the tenant acme_rome.
THEIRS = Key(Visit, "KeyedNotes", "acme_rome", "note_00001")


@pytest.fixture
async def db(db: Database) -> Database:
    await db.create_tables(Note)
    await db.insert(Note(tenant="acme_rome", id=1, text="secret of other"))
    return db


async def test_a_key_that_its_model_cannot_have_is_refused(db: Database) -> None:
    """A key of which only the PartitionKey fits the model is rejected by each verb, and does not tell what is there."""
    message = r"'note_00001' does not match the template 'visit_\{id:05d\}'"
    await refuse_all(db, db.scope(tenant="acme"), THEIRS, None, message)
    assert (await db.get(Note, tenant="acme_rome", id=1)).text == "secret of other"


async def test_a_key_that_its_model_has_is_of_the_scope(db: Database) -> None:
    """A key that was made by hand, and fits its model, is good for all verbs."""
    mine = db.scope(tenant="acme")
    await mine.insert(Visit(tenant="acme", city="rome", id=1, text="mine"))
    own = Key(Visit, "KeyedNotes", "acme_rome", "visit_00001")
    assert (await mine.get(own)).text == "mine"
    await mine.delete(own, if_match="*")
    assert not await mine.exists(own)


class Plain(Owned, table="PlainNotes", partition_key="{tenant}", row_key="note_{id:05d}"):
    pass


class Bare(Owned, table="PlainNotes", partition_key="{tenant}_{city}", row_key="{id:05d}", kind=None):
    city: Mapped[str]


@pytest.mark.parametrize("if_match", [None, "*"])
async def test_a_query_of_a_model_without_a_kind_deletes_nothing_of_others(db: Database, if_match: str | None) -> None:
    """Where rows of another tenant are in partitions that may be of the scope, a delete by a query leaves them."""
    await db.create_tables(Plain)
    await db.insert(Plain(tenant="acme_rome", id=1))
    report = await db.scope(tenant="acme").select(Bare).allow_scan().delete(if_match=if_match)
    assert (report.written, report.failures) == (0, 1)
    assert "'note_00001' does not match the template" in str(report.failed[0].error)
    assert await db.exists(Plain, tenant="acme_rome", id=1)


class Parcel(Owned, table="KeyedParcels", partition_key="{country}_{tenant}", row_key="{tenant}_{id:03d}"):
    """Both keys tell the tenant, but only RowKeys of a tenant are a range."""

    country: Mapped[str]


async def test_bags_where_both_keys_tell_the_tenant(db: Database) -> None:
    """No range is just the scope's rows: a bag could get a RowKey of the scope in the partition of another one."""
    await db.create_tables(Parcel)
    await db.insert(Parcel(country="no", tenant="acme", id=1))
    with pytest.raises(ModelError, match="no range of keys in table KeyedParcels is just the rows of the scope"):
        db.scope(Parcel, tenant="acme")
    mine = db.scope(tenant="acme")
    with pytest.raises(ModelError, match="give it a model of the table"):
        await mine.insert(PropertyBag("KeyedParcels", "no_other", "acme_007"))
    assert await mine.exists(Parcel, country="no", id=1)
    assert len(await mine.select(Parcel).where(Parcel.country == "no").all()) == 1


async def test_a_row_whose_keys_tell_two_tenants(db: Database) -> None:
    """It is damage to whoever reads it, and in the scope of neither tenant."""
    bag = PropertyBag("KeyedParcels", "no_other", "acme_007")
    bag["EntityType"] = "Parcel"
    await db.create_tables(Parcel)
    await db.insert(bag)
    for mine in (db.scope(tenant="acme"), db.scope(tenant="other")):
        with pytest.raises(AccessDenied):
            await mine.get(Key(Parcel, "KeyedParcels", "no_other", "acme_007"))
        report = await mine.select(Parcel).allow_scan().delete()
        assert report.written == 0
    with pytest.raises(DecodeError, match="says tenant='other', and row_key 'acme_007' tenant='acme'"):
        await db.select(Parcel).allow_scan().all()

    assert await db.exists(PropertyBag.key("KeyedParcels", "no_other", "acme_007"))


class Shelf(Owned, table="KeyedShelves", partition_key="shelf_{tenant}", row_key="shelf_{id:03d}"):
    pass


class Loan(Owned, table="KeyedShelves", partition_key="{day:%Y%m%d}", row_key="loan_{tenant}_{id}"):
    """No loan has the keys of a shelf, and none is in a partition of shelves."""

    day: Mapped[dt.date]


class Seat(Owned, table="KeyedSeats", partition_key="seat_{tenant}", row_key="seat_{zone}_{id:03d}"):
    zone: Mapped[str]


class Ticket(Owned, table="KeyedSeats", partition_key="{day:%Y%m%d}", row_key="ticket_{tenant}_{zone}_{id}"):
    day: Mapped[dt.date]
    zone: Mapped[str]


@pytest.mark.parametrize(
    ("model", "beside", "fields", "key"),
    [
        (Loan, Shelf, {"tenant": "acme"}, ("shelf_other", "loan_acme_1")),
        (Ticket, Seat, {"tenant": "acme", "zone": "east"}, ("seat_other", "ticket_acme_east_1")),
    ],
)
async def test_bags_in_partitions_of_another_tenant(
    db: Database, model: type[Entity], beside: type[Entity], fields: dict[str, str], key: tuple[str, str]
) -> None:
    """
    Where a model gives each tenant partitions, a scope by the RowKeys of another model is rejected: its bags could lie
    in these partitions, and it would read and delete bags that another tenant has there.
    """
    await db.create_tables(model, beside)
    table = model.__schema__.table_name()
    theirs = db.scope(beside, tenant="other")
    bag = PropertyBag(table, *key)
    bag["text"] = "secret of other"
    await theirs.insert(bag)
    with pytest.raises(ModelError, match=rf"may be in partitions '.*' of {beside.__name__}, in which all rows are"):
        db.scope(model, **fields)
    with pytest.raises(ModelError, match="give it a model of the table"):
        await db.scope(**fields).select_raw(table).allow_scan().all()
    assert [bag["text"] for bag in await theirs.select_raw(table).all()] == ["secret of other"]


async def test_entities_beside_partitions_of_other_tenants(db: Database) -> None:
    """Entities of such a model are in the scope as ever, and so are bags of the model that has the partitions."""
    await db.create_tables(Loan, Shelf)
    mine = db.scope(Shelf, tenant="acme")
    await mine.insert(mine.new(Loan, day=dt.date(2026, 1, 2), id=1))
    await mine.insert(PropertyBag("KeyedShelves", "shelf_acme", "loan_other_1"))
    assert [each.id for each in await mine.select(Loan).allow_scan().all()] == [1]
    assert await db.scope(tenant="other").select(Loan).allow_scan().all() == []
    assert [bag.row_key for bag in await mine.select_raw("KeyedShelves").all()] == ["loan_other_1"]


@pytest.mark.parametrize("verb", ["insert", "upsert", "merge", "replace"])
async def test_a_bag_of_a_kind_without_its_keys(db: Database, verb: str) -> None:
    """A bag does not say to be of a model whose keys it does not have: queries of other tenants would fail at it."""
    await db.create_tables(Loan, Shelf)
    theirs = db.scope(Shelf, tenant="other")
    bag = PropertyBag("KeyedShelves", "shelf_other", "loan_acme_1")
    bag["text"] = "of other"
    if verb in ("merge", "replace"):
        await theirs.insert(bag)
    bag["EntityType"] = "Loan:2"
    with pytest.raises(ModelError, match=r"says to be of Loan, whose keys are '\{day:%Y%m%d\}' and 'loan_.*other keys"):
        await getattr(theirs, verb)(bag)
    assert await db.scope(tenant="acme").select(Loan).allow_scan().all() == []
    shelf = PropertyBag("KeyedShelves", "shelf_other", "shelf_001")
    shelf["EntityType"] = "Shelf"
    await theirs.insert(shelf)
    assert await theirs.exists(Shelf, id=1)
