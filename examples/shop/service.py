"""
The service: a token opens one shop's rows, and nobody overwrites what they have not seen.
"""

import hmac
import json
import os
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Annotated, TypeVar

from fastapi import APIRouter, Body, Depends, FastAPI, Header, HTTPException, Query, Request, Response
from fastapi.responses import JSONResponse
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import BaseModel

from examples.shop.models import MODELS, Customer, Item, Order
from tableorm import (
    Database,
    Entity,
    InvalidInput,
    Page,
    Partial,
    Scope,
    TableOrmError,
    Transaction,
    connect,
    http_message,
    http_status,
)

E = TypeVar("E", bound=Entity)


def answer_error(_: Request, error: Exception) -> Response:
    """What the client sees of an error. One that is the program's own fault goes on, and becomes status 500."""
    status = http_status(error)
    if status == 500:
        raise error
    if not isinstance(error, InvalidInput):
        return JSONResponse({"detail": http_message(error)}, status)
    faults = [{"loc": ["body", *fault.path], "msg": str(fault), "type": fault.kind} for fault in error.faults]
    return JSONResponse({"detail": faults}, status)


# What every request has


def database(request: Request) -> Database:
    """The open database; tests put theirs in its place."""
    db: Database = request.app.state.db
    return db


def scope_of_tenant(
    request: Request,
    db: Annotated[Database, Depends(database)],
    credentials: Annotated[HTTPAuthorizationCredentials, Depends(HTTPBearer())],
) -> Scope:
    """The rows of the shop whose token is sent. A real service asks whoever signs its users in."""
    tokens: Mapping[str, str] = request.app.state.tokens
    for tenant, token in tokens.items():
        if hmac.compare_digest(token.encode(), credentials.credentials.encode()):
            return db.scope(tenant=tenant)
    raise HTTPException(401, "the token is of no shop", {"WWW-Authenticate": "Bearer"})


Shop = Annotated[Scope, Depends(scope_of_tenant)]
IfMatch = Annotated[str | None, Header()]
Size = Annotated[int, Query(ge=1, le=100)]


def with_etag(entity: E, response: Response) -> E:
    """Tell the client the version that it gets, for its next If-Match."""
    if entity.etag is not None:
        response.headers["ETag"] = entity.etag
    return entity


# Customers

router = APIRouter()


class Imported(BaseModel):
    """What an import has done."""

    written: int
    failed: dict[str, str]


@router.post("/customers", status_code=201)
async def add_customer(shop: Shop, customer: Customer, response: Response) -> Customer:
    await shop.insert(customer)
    return with_etag(customer, response)


@router.post("/customers/import")
async def import_customers(shop: Shop, customers: Annotated[list[Customer], Body(max_length=10_000)]) -> Imported:
    """Those whose id or e-mail address is taken are left out, and named."""
    async with shop.bulk(errors="report") as bulk:
        for customer in customers:
            await bulk.insert(customer)
    failed = {
        each.entity.id: http_message(each.error) for each in bulk.report.failed if isinstance(each.entity, Customer)
    }
    return Imported(written=bulk.report.written, failed=failed)


@router.get("/customers")
async def list_customers(
    shop: Shop, email: str | None = None, cursor: str | None = None, size: Size = 20
) -> Page[Customer]:
    """All of them, by id, or the one with an e-mail address."""
    if email is not None:
        found = await shop.get_or_none(Customer.by_email, email=email)
        return Page([] if found is None else [found], cursor=None)
    return await shop.select(Customer).page(size=size, cursor=cursor)


@router.get("/customers/{customer}")
async def read_customer(shop: Shop, customer: str, response: Response) -> Customer:
    return with_etag(await shop.get(Customer, id=customer), response)


@router.patch("/customers/{customer}")
async def change_customer(
    shop: Shop, customer: str, changes: Partial[Customer], response: Response, if_match: IfMatch = None
) -> Customer:
    stored = await shop.modify(Customer, lambda stored: stored.update(changes), id=customer, if_match=if_match)
    return with_etag(stored, response)


@router.delete("/customers/{customer}", status_code=204)
async def delete_customer(shop: Shop, customer: str, if_match: IfMatch = None) -> None:
    """A customer who has orders stays: they count in it."""
    await shop.delete(Customer, id=customer, if_match="*" if if_match is None else if_match)


# Orders


@router.post("/customers/{customer}/orders", status_code=201)
async def place_order(
    shop: Shop, customer: str, items: Annotated[list[Item], Body(embed=True, min_length=1)], response: Response
) -> Order:
    """The customer's next order. Whoever was faster takes the number, and this one gets the one after."""

    async def place(tx: Transaction) -> Order:
        buyer = await tx.get(Customer, id=customer, guard=True)
        order = shop.new(Order, customer=customer, number=buyer.orders + 1, items=items)
        tx.insert(order)
        return order

    return with_etag(await shop.run_transaction(place), response)


@router.get("/customers/{customer}/orders")
async def list_orders(shop: Shop, customer: str, cursor: str | None = None, size: Size = 20) -> Page[Order]:
    return await shop.select(Order).where(Order.customer == customer).page(size=size, cursor=cursor)


@router.get("/customers/{customer}/orders/{number}")
async def read_order(shop: Shop, customer: str, number: int, response: Response) -> Order:
    return with_etag(await shop.get(Order, customer=customer, number=number), response)


@router.patch("/customers/{customer}/orders/{number}")
async def change_order(
    shop: Shop, customer: str, number: int, changes: Partial[Order], response: Response, if_match: IfMatch = None
) -> Order:
    stored = await shop.modify(
        Order, lambda stored: stored.update(changes), customer=customer, number=number, if_match=if_match
    )
    return with_etag(stored, response)


# The program


def make_app(url: str, tokens: Mapping[str, str]) -> FastAPI:
    """
    The application.

    Args:
        url: What it opens when it starts, and closes when it ends.
        tokens: Of each tenant.
    """

    @asynccontextmanager
    async def open_tables(app: FastAPI) -> AsyncGenerator[None]:
        async with connect(url) as db:
            await db.create_tables(*MODELS)
            app.state.db = db
            yield

    app = FastAPI(title="Shop", lifespan=open_tables)
    app.state.tokens = tokens
    app.add_exception_handler(TableOrmError, answer_error)
    app.include_router(router)
    return app


def from_environment() -> FastAPI:
    """The application of SHOP_URL and SHOP_TOKENS: `uvicorn --factory examples.shop.service:from_environment`."""
    return make_app(os.environ["SHOP_URL"], json.loads(os.environ["SHOP_TOKENS"]))
