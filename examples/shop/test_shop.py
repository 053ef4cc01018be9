"""
What the shop promises: `pytest examples/shop`, also with `--tableorm-url`.
"""

import asyncio
import datetime as dt
import json

import httpx
import pytest

from examples.shop.conftest import TOKENS
from examples.shop.models import MODELS, Customer, Item, Order
from examples.shop.service import from_environment
from tableorm import Database
from tableorm.stores import Clock
from tableorm.testing import Faults, assert_requests

CONTOSO = {"Authorization": f"Bearer {TOKENS['contoso']}"}
ITEMS = {"items": [{"article": "tea", "cents": 450, "count": 2}]}


async def add_ann(client: httpx.AsyncClient) -> httpx.Response:
    return await client.post("/customers", json={"id": "ann", "email": "Ann@example.com"})


async def test_a_customer_is_added_and_read(acme: httpx.AsyncClient, tableorm_db: Database) -> None:
    added = await add_ann(acme)
    with assert_requests(tableorm_db, 1):
        read = await acme.get("/customers/ann")

    expected = {"tenant": "acme", "id": "ann", "email": "Ann@example.com", "name": None, "orders": 0}
    assert (added.status_code, added.json()) == (201, expected)
    assert (read.status_code, read.json(), read.headers["ETag"]) == (200, expected, added.headers["ETag"])


@pytest.mark.parametrize(
    ("body", "where"),
    [
        ({"id": "ann"}, "email"),
        ({"id": "Ann", "email": "ann@example.com"}, "id"),
        ({"id": "ann", "email": "nobody"}, "email"),
        ({"id": "ann", "email": "ann@example.com", "colour": "red"}, "colour"),
    ],
)
async def test_a_body_that_does_not_fit_is_refused(acme: httpx.AsyncClient, body: object, where: str) -> None:
    answer = await acme.post("/customers", json=body)

    assert answer.status_code == 422
    assert [fault["loc"] for fault in answer.json()["detail"]] == [["body", where]]


async def test_an_address_belongs_to_one_customer(acme: httpx.AsyncClient) -> None:
    await add_ann(acme)

    taken = await acme.post("/customers", json={"id": "bo", "email": "ANN@example.com"})
    again = await add_ann(acme)
    found = await acme.get("/customers", params={"email": "ann@EXAMPLE.com"})

    assert (taken.status_code, again.status_code) == (409, 409)
    assert taken.json()["detail"] == "another entity has the same email already"
    assert again.json()["detail"] == "the entity already exists"
    assert [each["id"] for each in found.json()["items"]] == ["ann"]
    assert (await acme.get("/customers", params={"email": "bo@example.com"})).json()["items"] == []


async def test_shops_do_not_see_each_other(acme: httpx.AsyncClient) -> None:
    await add_ann(acme)

    assert (await acme.get("/customers/ann", headers=CONTOSO)).status_code == 404
    assert (await acme.get("/customers", headers=CONTOSO)).json()["items"] == []
    theirs = {"tenant": "acme", "id": "eve", "email": "eve@example.com"}
    assert (await acme.post("/customers", json=theirs, headers=CONTOSO)).status_code == 403
    same = {"id": "ann", "email": "ann@example.com"}
    assert (await acme.post("/customers", json=same, headers=CONTOSO)).status_code == 201
    assert (await acme.get("/customers", headers={"Authorization": "Bearer guess"})).status_code == 401


async def test_a_change_needs_the_version_that_was_read(acme: httpx.AsyncClient) -> None:
    seen = (await add_ann(acme)).headers["ETag"]

    first = await acme.patch("/customers/ann", json={"name": "Ann"}, headers={"If-Match": seen})
    second = await acme.patch("/customers/ann", json={"name": "Anna"}, headers={"If-Match": seen})
    third = await acme.patch("/customers/ann", json={"name": None}, headers={"If-Match": first.headers["ETag"]})

    assert [answer.status_code for answer in (first, second, third)] == [200, 412, 200]
    assert third.json()["name"] is None
    assert (await acme.patch("/customers/ann", json={"id": "bo"})).status_code == 422
    assert (await acme.patch("/customers/bo", json={"name": "Bo"})).status_code == 404


async def test_a_change_of_the_address_moves_the_index(acme: httpx.AsyncClient, tableorm_db: Database) -> None:
    await add_ann(acme)
    await acme.patch("/customers/ann", json={"email": "new@example.com"})

    assert (await acme.get("/customers", params={"email": "ann@example.com"})).json()["items"] == []
    assert (await acme.post("/customers", json={"id": "bo", "email": "ann@example.com"})).status_code == 201
    assert (await tableorm_db.audit(*MODELS)).clean


async def test_orders_are_numbered_and_counted(
    acme: httpx.AsyncClient, tableorm_db: Database, tableorm_clock: Clock
) -> None:
    tableorm_clock.freeze(dt.datetime(2030, 1, 1, tzinfo=dt.UTC))
    await add_ann(acme)
    with assert_requests(tableorm_db, 2) as seen:
        first = await acme.post("/customers/ann/orders", json=ITEMS)
    tableorm_clock.reset()
    others = await asyncio.gather(*(acme.post("/customers/ann/orders", json=ITEMS) for _ in range(5)))

    assert [request.operation for request in seen.requests] == ["get", "transaction"]
    assert first.json() == {
        "tenant": "acme",
        "customer": "ann",
        "number": 1,
        **ITEMS,
        "state": "open",
        "placed_at": "2030-01-01T00:00:00+00:00",
    }
    assert sorted(answer.json()["number"] for answer in others) == [2, 3, 4, 5, 6]
    assert (await acme.get("/customers/ann")).json()["orders"] == 6
    assert (await tableorm_db.audit(*MODELS)).clean


async def test_orders_have_items_and_a_customer(acme: httpx.AsyncClient) -> None:
    await add_ann(acme)

    assert (await acme.post("/customers/ann/orders", json={"items": []})).status_code == 422
    assert (await acme.post("/customers/bo/orders", json=ITEMS)).status_code == 404
    assert (await acme.get("/customers/ann/orders/1")).status_code == 404
    assert (await acme.get("/customers/ann/orders/12345678")).status_code == 422


async def test_an_order_is_changed(acme: httpx.AsyncClient) -> None:
    await add_ann(acme)
    seen = (await acme.post("/customers/ann/orders", json=ITEMS)).headers["ETag"]

    paid = await acme.patch("/customers/ann/orders/1", json={"state": "paid"}, headers={"If-Match": seen})
    late = await acme.patch("/customers/ann/orders/1", json={"state": "cancelled"}, headers={"If-Match": seen})
    wrong = await acme.patch("/customers/ann/orders/1", json={"items": [], "state": "lost"})

    assert (paid.status_code, paid.json()["state"]) == (200, "paid")
    assert late.status_code == 412
    assert (wrong.status_code, [fault["loc"][1] for fault in wrong.json()["detail"]]) == (422, ["state", "items"])


async def test_a_customer_with_orders_stays(acme: httpx.AsyncClient) -> None:
    etag = (await add_ann(acme)).headers["ETag"]
    await acme.post("/customers/ann/orders", json=ITEMS)
    await acme.post("/customers", json={"id": "bo", "email": "bo@example.com"})

    assert (await acme.delete("/customers/ann", headers={"If-Match": ""})).status_code == 400
    assert (await acme.delete("/customers/ann", headers={"If-Match": etag})).status_code == 412
    assert (await acme.delete("/customers/ann")).status_code == 409
    assert (await acme.delete("/customers/bo")).status_code == 204
    assert (await acme.delete("/customers/bo")).status_code == 404


async def test_pages_lead_to_the_end(acme: httpx.AsyncClient) -> None:
    await acme.post("/customers/import", json=[{"id": f"c{n}", "email": f"c{n}@example.com"} for n in range(7)])
    ids: list[list[str]] = []
    params: dict[str, str | int] = {"size": 3}
    while True:
        page = (await acme.get("/customers", params=params)).json()
        ids.append([each["id"] for each in page["items"]])
        if page["cursor"] is None:
            break
        params["cursor"] = page["cursor"]

    assert ids == [["c0", "c1", "c2"], ["c3", "c4", "c5"], ["c6"]]
    assert (await acme.get("/customers", params={"cursor": "made-up"})).status_code == 422
    assert (await acme.get("/customers/c1/orders", params={"cursor": params["cursor"]})).status_code == 422
    assert (await acme.get("/customers", params={"size": 0})).status_code == 422


async def test_an_import_names_what_it_leaves_out(acme: httpx.AsyncClient, tableorm_db: Database) -> None:
    await add_ann(acme)
    customers = [{"id": "ann", "email": "other@example.com"}, {"id": "bo", "email": "bo@example.com"}]
    customers.append({"id": "cy", "email": "bo@EXAMPLE.com"})

    answer = (await acme.post("/customers/import", json=customers)).json()

    assert answer["written"] == 1
    assert answer["failed"] == {
        "ann": "the entity already exists",
        "cy": "another entity has the same email already",
    }
    assert (await tableorm_db.audit(*MODELS)).clean


async def test_a_busy_store_is_503(acme: httpx.AsyncClient, tableorm_faults: Faults) -> None:
    with tableorm_faults.fail_next("transaction", with_="ServerBusy"):
        assert (await add_ann(acme)).status_code == 503
    assert (await add_ann(acme)).status_code == 201


async def test_a_lost_reply_does_not_order_twice(
    acme: httpx.AsyncClient, tableorm_db: Database, tableorm_faults: Faults
) -> None:
    await add_ann(acme)
    with tableorm_faults.lose_reply("transaction"):
        assert (await acme.post("/customers/ann/orders", json=ITEMS)).json()["number"] == 1

    assert (await acme.get("/customers/ann")).json()["orders"] == 1
    orders = tableorm_db.scope(tenant="acme").select(Order).where(Order.customer == "ann")
    assert [(order.number, order.items) for order in await orders.all()] == [(1, [Item("tea", 450, 2)])]


async def test_an_audit_finds_what_another_program_has_done(acme: httpx.AsyncClient, tableorm_db: Database) -> None:
    await add_ann(acme)
    async for row in tableorm_db.select_raw("Shop").where("RowKey eq {}", "email_ann@example.com").allow_scan():
        await tableorm_db.delete(row)

    report = await tableorm_db.audit(*MODELS, repair=True)

    assert dict(report.counts) == {"missing": 1}
    assert report.clean
    assert (await acme.get("/customers", params={"email": "ann@example.com"})).json()["items"][0]["id"] == "ann"
    assert await tableorm_db.exists(Customer, tenant="acme", id="ann")


async def test_the_program_opens_its_tables_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_URL", "local::memory:")
    monkeypatch.setenv("SHOP_TOKENS", json.dumps(TOKENS))
    app = from_environment()
    headers = {"Authorization": f"Bearer {TOKENS['acme']}"}
    transport = httpx.ASGITransport(app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://shop", headers=headers) as client,
    ):
        assert (await client.get("/customers")).json() == {"items": [], "cursor": None}
        assert "Customer" in (await client.get("/openapi.json")).json()["components"]["schemas"]
