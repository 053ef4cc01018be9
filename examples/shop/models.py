"""
The table: each tenant is a partition, so that a customer, the e-mail address and the orders are written together.
"""

import datetime as dt
import enum
from dataclasses import dataclass

import attrs

from tableorm import Count, Entity, Index, Mapped, field, utc_now

NAME = attrs.validators.matches_re(r"[a-z][a-z0-9-]{0,40}")


class State(enum.Enum):
    OPEN = "open"
    PAID = "paid"
    SENT = "sent"
    CANCELLED = "cancelled"


@dataclass(frozen=True)
class Item:
    article: str
    cents: int
    count: int = 1


class Customer(Entity, table="Shop", partition_key="{tenant}", row_key="customer_{id}"):
    """Who buys."""

    tenant: Mapped[str | None] = field(default=None, doc="The shop. Requests leave it out: their token says it.")
    id: Mapped[str] = field(validator=NAME)
    email: Mapped[str] = field(validator=attrs.validators.matches_re(r"\S+@\S+"))
    name: Mapped[str | None] = field(default=None)
    orders: Mapped[int] = field(default=0, maintained=True, doc="How many orders there are.")

    by_email = Index(row_key="email_{email:lower}", unique=True, include="keys")  # entries cannot hold `orders`


class Order(Entity, table="Shop", partition_key="{tenant}", row_key="order_{customer}_{number:06d}"):
    """What a customer has bought. Orders are cancelled and never deleted, so their numbers have no gaps."""

    tenant: Mapped[str | None] = field(default=None)
    customer: Mapped[str] = field(validator=NAME)
    number: Mapped[int]
    items: Mapped[list[Item]] = field(validator=attrs.validators.min_len(1))
    state: Mapped[State] = field(default=State.OPEN)
    placed_at: Mapped[dt.datetime | None] = field(default=None, on_insert=utc_now)

    counted = Count(lambda: Customer.orders, tenant="{tenant}", id="{customer}")


MODELS = (Customer, Order)
