"""
Whole plans: every request with its keys, its filter, and what is evaluated here, of conditions of many forms.
"""

import datetime as dt
import re
from decimal import Decimal
from typing import Any

from tableorm import Entity, Expression, Mapped, PartitionKey, PropertyBag, RowKey, Timestamp, field
from tableorm.models.kinds import KindSet
from tableorm.protocol.filters import to_odata
from tableorm.queries.planning.plan import Point, QueryPlan
from tableorm.queries.planning.planner import planner_of
from tableorm.stores import Bounds


class Seat(Entity, table="Seats", partition_key="{hall}", row_key="{row:03d}_{place}", kind=None):
    hall: Mapped[str]
    row: Mapped[int]
    place: Mapped[str]
    price: Mapped[int | None] = field(default=None)
    fee: Mapped[Decimal | None] = field(default=None)


class Ticket(Entity, table="Tickets", partition_key="{show}", abstract=True):
    show: Mapped[str]
    id: Mapped[str]
    price: Mapped[int | None] = field(default=None)


class Single(Ticket, row_key="single_{id}"): ...


class Group(Ticket, row_key="group_{size:03d}"):
    size: Mapped[int]


class Gift(Ticket, partition_key="gift-{show}", row_key="{id}"): ...


class Click(Entity, table="Clicks", partition_key="{user:spread(3)}_{day:03d}", row_key="{user}", kind=None):
    user: Mapped[str]
    day: Mapped[int]


class Shelf(Entity, table="Shelves", partition_key="{hall}", row_key="{title}_{n:02d}", kind=None):
    hall: Mapped[str]
    title: Mapped[str]
    n: Mapped[int]
    fee: Mapped[Decimal | None] = field(default=None)


def interval(bounds: Bounds) -> str:
    """An interval of keys; of a single key, the key."""
    if bounds.point:
        return str(bounds.lower)
    return f"{'[('[bounds.lower_open]}{bounds.lower or ''} .. {bounds.upper or ''}{'])'[bounds.upper_open]}"


SHORT = [
    (r"EntityType eq '(\w+)' or EntityType ge '\1:' and EntityType lt '\1;'", r"\1"),
    ("PartitionKey", "PK"),
    ("RowKey", "RK"),
]


def described(plan: QueryPlan) -> list[str]:
    """How rows are found; then the keys, the filter and the conditions that are left of each request."""
    lines = [plan.access.value + ", merged" * plan.merged]
    kinds = plan.target.filter and to_odata(plan.target.filter)
    for request in plan.requests:
        if isinstance(request, Point):
            lines.append(f"{request.partition_key} | {request.row_key}")
            continue
        parts = [interval(request.query.partition), interval(request.query.row)]
        if request.query.where is not None:
            sent = to_odata(request.query.where).replace(kinds or "KIND", "KIND")
            for text, short in SHORT:
                sent = re.sub(text, short, sent)
            parts.append(sent)
        few = "here" if request.drops_few else "here, many"
        lines.append(" | ".join([*parts, *[f"{few}: {each.condition}" for each in request.client_filters]]))
    return lines


def check(models: list[Any] | KindSet, *cases: tuple[list[Expression], list[str]]) -> None:
    """See that conditions are planned like this."""
    kinds = models if isinstance(models, KindSet) else KindSet.of(models)
    found = [described(planner_of(kinds).plan(where, allow_scan=True)) for where, _ in cases]
    assert found == [lines for _, lines in cases]


def test_ranges_that_touch() -> None:
    """They are requests of their own, unless a key is in both."""
    check(
        [Seat],
        (
            [Seat.hall == "a", (Seat.row <= 5) | (Seat.row >= 5)],
            ["partition scan", "a | [ .. ] | RK lt '006' or RK ge '005'"],
        ),
        ([Seat.hall == "a", (Seat.row < 5) | (Seat.row >= 5)], ["range", "a | [ .. 005)", "a | [005 .. ]"]),
        ([Seat.hall == "a", (Seat.row <= 5) | (Seat.row > 5)], ["range", "a | [ .. 006)", "a | [006 .. ]"]),
        ([Seat.hall == "a", (Seat.row < 5) | (Seat.row > 5)], ["range", "a | [ .. 005)", "a | [006 .. ]"]),
        ([Seat.hall == "a", (RowKey <= "5") | (RowKey > "5")], ["range", "a | [ .. 5]", "a | (5 .. ]"]),
        ([Seat.hall == "a", (RowKey < "5") | (RowKey >= "5")], ["range", "a | [ .. 5)", "a | [5 .. ]"]),
        (
            [Seat.hall == "a", (RowKey <= "5") | (RowKey >= "5")],
            ["partition scan", "a | [ .. ] | RK le '5' or RK ge '5'"],
        ),
        ([Seat.hall == "a", (RowKey < "5") | (RowKey > "5")], ["range", "a | [ .. 5)", "a | (5 .. ]"]),
    )


def test_ranges_that_overlap() -> None:
    """They are one request, with a filter unless one of them is all of it; each partition has its own."""
    check(
        [Seat],
        ([Seat.hall == "a", (Seat.row > 3) | Seat.row.between(5, 6) | (Seat.row > 8)], ["range", "a | [004 .. ]"]),
        (
            [
                Seat.hall == "a",
                (Seat.row < 9) | Seat.row.between(2, 3) | Seat.row.between(5, 12) | Seat.row.between(20, 30),
            ],
            [
                "range",
                "a | [ .. 013) | RK lt '009' or RK ge '002' and RK lt '004' or RK ge '005' and RK lt '013'",
                "a | [020 .. 031)",
            ],
        ),
        ([Seat.hall == "a", (Seat.row < 8) | Seat.row.between(5, 6) | (Seat.row < 3)], ["range", "a | [ .. 008)"]),
        (
            [Seat.hall.in_(["a", "b"]), (Seat.row > 1) | (Seat.row > 3), (Seat.row < 2) | (Seat.price > 1)],
            [
                "range",
                "a | [002 .. ] | PK eq 'a' and RK ge '002' and price gt 1 or PK eq 'a' and RK ge '004' and price gt 1",
                "b | [002 .. ] | PK eq 'b' and RK ge '002' and price gt 1 or PK eq 'b' and RK ge '004' and price gt 1",
            ],
        ),
        (
            [Seat.hall.in_(["a", "b"]), (Seat.row < 3) | (Seat.row > 5)],
            ["range", "a | [ .. 003)", "a | [006 .. ]", "b | [ .. 003)", "b | [006 .. ]"],
        ),
        ([Seat.hall == "a", RowKey < "004", (Seat.row == 3) | Seat.row.between(2, 3)], ["range", "a | [002 .. 004)"]),
        (
            [Seat.hall == "a", Seat.row < 3, (Seat.row == 7) | (Seat.row == 2)],
            ["range", "a | [002_ .. 002`) | RK lt '003'", "a | [007_ .. 007`) | RK lt '003'"],
        ),
        ([Seat.hall == "a", ((Seat.row == 3) & (Seat.row == 4)) | (Seat.row == 5)], ["range", "a | [005_ .. 005`)"]),
        (
            [Seat.hall == "a", Seat.row == 3, Seat.place.startswith("x") | (Seat.place == "xy")],
            ["range", "a | [003_x .. 003_y)"],
        ),
        (
            [Seat.hall == "a", Seat.price > 1, Seat.row.between(1, 4) | Seat.row.between(3, 9)],
            ["range", "a | [001 .. 00:) | price gt 1 and (RK ge '001' and RK lt '005' or RK ge '003' and RK lt '00:')"],
        ),
    )


def test_an_alternative_that_says_nothing_of_keys() -> None:
    """It reads what all others read, so there is one request."""
    check(
        [Seat],
        (
            [Seat.hall == "a", (Seat.row == 3) | (Seat.price > 3)],
            ["partition scan", "a | [ .. ] | price gt 3 or RK ge '003_' and RK lt '003`'"],
        ),
        (
            [Seat.hall == "a", Seat.row > 1, (Seat.row == 3) | (Seat.price > 3) | (Seat.place == "x")],
            ["range", "a | [002 .. ] | here, many: (Seat.price > 3) | (Seat.row == 3) | (Seat.place == 'x')"],
        ),
        (
            [Seat.hall == "a", Seat.row > 5, ((Seat.row < 3) & (Seat.place == "x")) | (Seat.price > 3)],
            ["range", "a | [006 .. ] | price gt 3"],
        ),
        (
            [
                Seat.hall == "a",
                Seat.row > 5,
                ((Seat.row < 3) & (Seat.place == "x")) | ((Seat.fee > Decimal(1)) & (Seat.price > 3)),
            ],
            ["range", "a | [006 .. ] | price gt 3 | here, many: Seat.fee > Decimal('1')"],
        ),
        (
            [Seat.hall == "a", Seat.fee > Decimal(1), (Seat.row < 9) | (Seat.price == 1)],
            ["partition scan", "a | [ .. ] | price eq 1 or RK lt '009' | here, many: Seat.fee > Decimal('1')"],
        ),
        (
            [Seat.hall == "a", (Seat.row != 3) | (Seat.price == 1)],
            ["partition scan", "a | [ .. ] | RK lt '003_' or RK ge '003`' or price eq 1"],
        ),
        (
            [Seat.hall == "a", (RowKey != "x") | (Seat.price == 1)],
            ["partition scan", "a | [ .. ] | RK ne 'x' or price eq 1"],
        ),
        (
            [Seat.hall == "a", (RowKey >= "005") | (Seat.price == 1)],
            ["partition scan", "a | [ .. ] | price eq 1 or RK ge '005'"],
        ),
        (
            [Seat.hall == "a", ((Seat.place > "a") & (Seat.place < "c")) | (Seat.price == 1)],
            [
                "partition scan",
                "a | [ .. ] | here, many: (Seat.price == 1) | ((Seat.place > 'a') & (Seat.place < 'c'))",
            ],
        ),
        (
            [Seat.hall == "a", ((Seat.row > 1) & (Seat.row < 4) & (Seat.price > 1)) | (Seat.price == 7)],
            ["partition scan", "a | [ .. ] | price eq 7 or RK ge '002' and RK lt '004' and price gt 1"],
        ),
        (
            [
                Seat.hall == "a",
                ((Seat.row > 1) & (Seat.price > 1) & (Seat.row < 4) & (Seat.row < 5)) | (Seat.price == 7),
            ],
            ["partition scan", "a | [ .. ] | price eq 7 or RK ge '002' and RK lt '004' and price gt 1"],
        ),
    )


def test_alternatives_in_alternatives() -> None:
    """Those that say something of keys are taken apart, at any depth."""
    check(
        [Seat],
        (
            [Seat.hall == "a", Seat.row.in_([3, 4, 3]) | ((Seat.row == 7) & Seat.place.in_(["x", "y"]))],
            ["range", "a | [003_ .. 003`)", "a | [004_ .. 004`)", "a | 007_x", "a | 007_y"],
        ),
        (
            [Seat.hall == "a", Seat.row.in_([3, 4]) & (Seat.price > 1) | (Seat.row == 9)],
            ["range", "a | [003_ .. 003`) | price gt 1", "a | [004_ .. 004`) | price gt 1", "a | [009_ .. 009`)"],
        ),
        (
            [Seat.hall == "a", ((Seat.row < 3) | (Seat.row > 9)) & ((Seat.price == 1) | (Seat.price == 2))],
            ["range", "a | [ .. 003) | price eq 1 or price eq 2", "a | [00: .. ] | price eq 1 or price eq 2"],
        ),
        (
            [Seat.hall == "a", ((Seat.row < 3) & ((Seat.price == 1) | (Seat.price == 2))) | (Seat.row == 7)],
            ["range", "a | [ .. 003) | price eq 1 or price eq 2", "a | [007_ .. 007`)"],
        ),
        ([Seat.hall == "a", ~((Seat.row > 1) & (Seat.row < 4))], ["range", "a | [ .. 002)", "a | [004 .. ]"]),
        (
            [(PartitionKey == "a") | (PartitionKey == "b"), Seat.row == 3],
            ["range", "a | [003_ .. 003`)", "b | [003_ .. 003`)"],
        ),
        (
            [Seat.hall == "a", (Seat.row == 3) & (Seat.place == "x") | (RowKey == "004_y")],
            ["points", "a | 003_x", "a | 004_y"],
        ),
    )


def test_partitions_that_are_scanned() -> None:
    """What else is wanted of them comes with it."""
    check(
        [Seat],
        (
            [(Seat.hall > "m") | ((Seat.hall == "a") & (Seat.row == 7) & (Seat.place == "x"))],
            ["partition range", "a | 007_x", "(m .. ] | [ .. ]"],
        ),
        ([(Seat.hall > "m") | (Seat.hall < "c")], ["partition range", "[ .. c) | [ .. ]", "(m .. ] | [ .. ]"]),
        ([(Seat.hall > "m") | (Seat.hall > "p")], ["partition range", "(m .. ] | [ .. ]"]),
        (
            [Seat.hall > "c", Seat.hall.between("d", "m") | Seat.hall.between("g", "x")],
            ["partition range", "[d .. x] | [ .. ] | PK ge 'd' and PK le 'm' or PK ge 'g' and PK le 'x'"],
        ),
        (
            [Seat.hall > "c", (Seat.hall.in_(["a", "x"])) | (Seat.hall == "b")],
            ["partition scan", "a | [ .. ] | PK gt 'c'", "b | [ .. ] | PK gt 'c'", "x | [ .. ] | PK gt 'c'"],
        ),
        (
            [(Seat.hall.in_(["a", "x"])) | (Seat.price == 1)],
            ["table scan", "[ .. ] | [ .. ] | price eq 1 or PK eq 'a' or PK eq 'x'"],
        ),
        (
            [Seat.hall > "c", Seat.row == 3, (Seat.hall < "m") | (Seat.hall > "g")],
            ["partition range", "(c .. ] | [003_ .. 003`) | PK lt 'm' or PK gt 'g'"],
        ),
    )


def test_parts_of_a_key() -> None:
    """What bounds no keys is sent as a condition on the whole key, or evaluated here."""
    check(
        [Seat],
        (
            [Seat.hall == "a", Seat.place.startswith("x")],
            ["partition scan", "a | [ .. ] | here, many: Seat.place.startswith('x')"],
        ),
        ([Seat.hall == "a", Seat.row == 3, Seat.place > "x"], ["range", "a | (003_x .. 003`)"]),
        ([Seat.hall == "a", Seat.row == 3, Seat.place != "x"], ["range", "a | [003_ .. 003`) | RK ne '003_x'"]),
        ([Seat.hall == "a", Seat.place > "x"], ["partition scan", "a | [ .. ] | here, many: Seat.place > 'x'"]),
        (
            [Seat.hall == "a", Seat.row > 3, Seat.place == "x"],
            ["range", "a | [004 .. ] | here, many: Seat.place == 'x'"],
        ),
        (
            [Seat.hall == "a", Seat.row == 3, ~Seat.place.startswith("x")],
            ["range", "a | [003_ .. 003`) | here, many: ~(Seat.place.startswith('x'))"],
        ),
        (
            [Seat.hall == "a", ~Seat.row.in_([3, 4])],
            ["partition scan", "a | [ .. ] | (RK lt '003_' or RK ge '003`') and (RK lt '004_' or RK ge '004`')"],
        ),
        (
            [Seat.hall == "a", Seat.row == 3, Seat.place.in_(["x", "y"]) | (Seat.price == 1)],
            ["range", "a | [003_ .. 003`) | price eq 1 or RK eq '003_x' or RK eq '003_y'"],
        ),
        (
            [Seat.hall == "a", ~Seat.place.in_(["x", "y"]), Seat.row == 3],
            ["range", "a | [003_ .. 003`) | RK ne '003_x' and RK ne '003_y'"],
        ),
        (
            [Seat.hall == "a", Seat.row == 3, (Seat.place != "x") | (Seat.price == 1)],
            ["range", "a | [003_ .. 003`) | RK ne '003_x' or price eq 1"],
        ),
        (
            [Seat.hall == "a", Seat.row == 3, ((Seat.place > "x") & (Seat.price == 1)) | (Seat.price == 7)],
            ["range", "a | [003_ .. 003`) | price eq 7 or RK gt '003_x' and RK lt '003`' and price eq 1"],
        ),
        (
            [Seat.hall == "a", Seat.row == 3, ((Seat.place == "x") & (Seat.place > "c")) | (Seat.price == 1)],
            ["range", "a | [003_ .. 003`) | price eq 1 or RK eq '003_x' and RK gt '003_c' and RK lt '003`'"],
        ),
        (
            [Seat.hall == "a", Seat.row == 3, (Seat.place > "x") | (Seat.price == 1), Seat.place != "z"],
            ["range", "a | [003_ .. 003`) | RK ne '003_z' and (price eq 1 or RK gt '003_x' and RK lt '003`')"],
        ),
    )
    check(
        [Shelf],
        ([Shelf.hall == "a", Shelf.title > "x"], ["range", "a | [x .. ] | here: Shelf.title > 'x'"]),
        (
            [Shelf.hall == "a", Shelf.title > "x", Shelf.fee > Decimal(1)],
            ["range", "a | [x .. ] | here, many: Shelf.title > 'x' | here, many: Shelf.fee > Decimal('1')"],
        ),
        (
            [Shelf.hall == "a", Shelf.fee > Decimal(1), Shelf.title > "x"],
            ["range", "a | [x .. ] | here, many: Shelf.fee > Decimal('1') | here, many: Shelf.title > 'x'"],
        ),
        (
            [Shelf.hall == "a", Shelf.title == "x", Shelf.n > 3],
            ["range", "a | (x_03 .. x`) | here: Shelf.title == 'x' | here: Shelf.n > 3"],
        ),
        (
            [Shelf.hall == "a", Shelf.title.startswith("x")],
            ["range", "a | [x .. y) | here: Shelf.title.startswith('x')"],
        ),
        (
            [Shelf.hall == "a", (Shelf.title > "x") | (Shelf.title < "c")],
            ["range", "a | [ .. c) | here: Shelf.title < 'c'", "a | [x .. ] | here: Shelf.title > 'x'"],
        ),
    )


def test_properties() -> None:
    """What the service compares otherwise is evaluated here."""
    check(
        [Seat],
        (
            [Seat.hall == "a", ~Seat.price.in_([3, 4]), Seat.price.in_([7, 8])],
            ["partition scan", "a | [ .. ] | price ne 3 and price ne 4 and (price eq 7 or price eq 8)"],
        ),
        ([Seat.hall == "a", ~(Seat.price > 3)], ["partition scan", "a | [ .. ] | price le 3"]),
        (
            [Seat.hall == "a", ~(Seat.price > 2**40)],
            [
                "partition scan",
                "a | [ .. ] | not (price gt 1099511627776L) and (price eq 1099511627776L or price ne 1099511627776L)",
            ],
        ),
        (
            [Seat.hall == "a", ~(Seat.fee > Decimal(3))],
            ["partition scan", "a | [ .. ] | here, many: ~(Seat.fee > Decimal('3'))"],
        ),
        (
            [Seat.hall == "a", Seat.fee > Decimal(3), Seat.price == 1],
            ["partition scan", "a | [ .. ] | price eq 1 | here, many: Seat.fee > Decimal('3')"],
        ),
        (
            [Seat.hall == "a", (Seat.fee > Decimal(3)) | (Seat.price == 1)],
            ["partition scan", "a | [ .. ] | here, many: (Seat.fee > Decimal('3')) | (Seat.price == 1)"],
        ),
        (
            [Seat.hall == "a", Seat.price.is_none(), ~Seat.fee.is_none()],
            ["partition scan", "a | [ .. ] | fee eq '' or fee ne '' | here, many: Seat.price.is_none()"],
        ),
        ([Seat.hall == "a", Seat.price == 1, Seat.price == 2], ["nothing"]),
        (
            [Seat.hall == "a", ((Seat.price > 1) & (Seat.price < 4)) | (Seat.price == 7)],
            ["partition scan", "a | [ .. ] | price gt 1 and price lt 4 or price eq 7"],
        ),
        (
            [Seat.hall == "a", ~(Timestamp > dt.datetime(2024, 1, 1, tzinfo=dt.UTC))],
            ["partition scan", "a | [ .. ] | Timestamp le datetime'2024-01-01T00:00:00.0000009Z'"],
        ),
    )


def test_kinds_in_several_partitions() -> None:
    """Each partition is read for the kinds that can be there."""
    check(
        [Single, Group, Gift],
        (
            [Ticket.show == "p"],
            ["partition scan", "gift-p | [ .. ] | Gift", "p | [group_ .. single`) | Single or Group"],
        ),
        (
            [Ticket.show == "p", Ticket.id == "x"],
            ["range", "gift-p | x", "p | [group_ .. single_x] | Single or Group | here, many: Ticket.id == 'x'"],
        ),
        (
            [Ticket.show == "p", Ticket.id > "x"],
            [
                "partition scan",
                "gift-p | (x .. ] | Gift",
                "p | [group_ .. single`) | Single or Group | here, many: Ticket.id > 'x'",
            ],
        ),
        (
            [Ticket.show == "p", (Ticket.id > "x") | (Ticket.id < "b")],
            [
                "range",
                "gift-p | [ .. b) | Gift",
                "gift-p | (x .. ] | Gift",
                "p | [group_ .. single`) | KIND | here, many: (Ticket.id > 'x') | (Ticket.id < 'b')",
            ],
        ),
        (
            [Ticket.show == "p", (Group.size > 3) | (Group.size < 7)],
            [
                "range",
                "gift-p | [group_ .. group`) | KIND | here, many: (Group.size < 7) | (Group.size > 3)",
                "p | [group_ .. group`) | KIND | here, many: (Group.size < 7) | (Group.size > 3)",
            ],
        ),
        (
            [Ticket.show == "p", (Group.size == 3) | (Group.size == 7)],
            ["points", "gift-p | group_003", "gift-p | group_007", "p | group_003", "p | group_007"],
        ),
        (
            [Ticket.show == "p", (RowKey > "h") | (RowKey < "x")],
            [
                "partition scan",
                "gift-p | [ .. ] | (KIND) and (RK lt 'x' or RK gt 'h')",
                "p | [group_ .. single`) | (KIND) and (RK lt 'x' or RK gt 'h')",
            ],
        ),
        (
            [Ticket.show == "p", Ticket.price == 3, (RowKey > "h") | (RowKey < "x")],
            [
                "partition scan",
                "gift-p | [ .. ] | (KIND) and price eq 3 and (RK lt 'x' or RK gt 'h')",
                "p | [group_ .. single`) | (KIND) and price eq 3 and (RK lt 'x' or RK gt 'h')",
            ],
        ),
    )
    check(
        [Single, Gift],
        (
            [Ticket.show.in_(["p", "q"]), Ticket.id == "x"],
            ["points", "gift-p | x", "gift-q | x", "p | single_x", "q | single_x"],
        ),
    )
    check(
        [Single, Group],
        (
            [Ticket.show == "p", (Group.size == 3) | (Single.id == "x")],
            ["range", "p | [group_ .. single_x] | KIND | here, many: (Single.id == 'x') | (Group.size == 3)"],
        ),
        ([Ticket.show == "p", Group.size == 3], ["point", "p | group_003"]),
        ([Ticket.show == "p", Group.size > 3], ["range", "p | (group_003 .. group`) | Group"]),
        ([Ticket.show > "p", Group.size > 3], ["partition range", "(p .. ] | (group_003 .. group`) | KIND"]),
        (
            [Ticket.show == "p", (RowKey >= "h") | (RowKey >= "i")],
            ["range", "p | [single_ .. single`) | (KIND) and (RK ge 'h' or RK ge 'i')"],
        ),
    )


def test_rows_of_any_kind() -> None:
    """Only what conditions say bounds them, and a text between two keys says nothing of a field."""
    check(
        [Seat, PropertyBag],
        ([Seat.hall == "a", Seat.row == 3], ["range", "a | [003_ .. 003`) | here, many: Seat.row == 3"]),
        ([Seat.hall == "a", Seat.row == 3, Seat.place == "x"], ["point", "a | 003_x"]),
        (
            [Seat.hall == "a", (Seat.row == 3) | (Seat.row == 5)],
            [
                "range",
                "a | [003_ .. 003`) | here, many: Seat.row == 3",
                "a | [005_ .. 005`) | here, many: Seat.row == 5",
            ],
        ),
        ([Seat.hall == "a", Seat.row > 3], ["range", "a | [004 .. ] | here, many: Seat.row > 3"]),
        (
            [Seat.hall == "a", ~(Seat.price > 3)],
            ["partition scan", "a | [ .. ] | not (price gt 3) and (price eq 3 or price ne 3)"],
        ),
        (
            [PartitionKey == "a", RowKey > "3", Seat.place == "x"],
            ["range", "a | (3 .. ] | here, many: Seat.place == 'x'"],
        ),
    )
    check(
        KindSet.of([PropertyBag], "Seats"),
        (
            [Seat.hall == "a", (Seat.row == 3) | (Seat.row == 5)],
            [
                "range",
                "a | [003_ .. 003`) | here, many: Seat.row == 3",
                "a | [005_ .. 005`) | here, many: Seat.row == 5",
            ],
        ),
        ([Seat.hall == "a", Seat.row == 3, Seat.place == "x"], ["point", "a | 003_x"]),
        ([PartitionKey == "a", RowKey == "x/y"], ["nothing"]),
        ([PartitionKey == "x/y", RowKey == "a"], ["nothing"]),
    )


def test_hash_buckets() -> None:
    """Each that conditions leave is a partition."""
    check(
        [Click],
        ([Click.day == 1], ["partition scan, merged", "0_001 | [ .. ]", "1_001 | [ .. ]", "2_001 | [ .. ]"]),
        ([Click.day == 1, Click.user == "x"], ["point", "0_001 | x"]),
        (
            [Click.day == 1, Click.user > "x"],
            ["range, merged", "0_001 | (x .. ]", "1_001 | (x .. ]", "2_001 | (x .. ]"],
        ),
        (
            [(Click.day == 1) | (Click.day == 2)],
            [
                "partition scan, merged",
                "0_001 | [ .. ]",
                "0_002 | [ .. ]",
                "1_001 | [ .. ]",
                "1_002 | [ .. ]",
                "2_001 | [ .. ]",
                "2_002 | [ .. ]",
            ],
        ),
        ([Click.day == 1, PartitionKey > "1"], ["partition scan, merged", "1_001 | [ .. ]", "2_001 | [ .. ]"]),
        ([Click.day == 1, PartitionKey == "1_001"], ["partition scan", "1_001 | [ .. ]"]),
        (
            [Click.day == 1, (PartitionKey < "1") | (PartitionKey > "2")],
            ["partition scan, merged", "0_001 | [ .. ]", "2_001 | [ .. ]"],
        ),
        ([Click.day == 1, Click.user.in_(["a", "b", "c"])], ["points", "0_001 | c", "2_001 | a", "2_001 | b"]),
        (
            [Click.day == 1, (RowKey > "m") | (RowKey < "c")],
            [
                "range, merged",
                "0_001 | [ .. c)",
                "0_001 | (m .. ]",
                "1_001 | [ .. c)",
                "1_001 | (m .. ]",
                "2_001 | [ .. c)",
                "2_001 | (m .. ]",
            ],
        ),
        (
            [Click.day == 1, (RowKey > "c") | (RowKey < "m")],
            [
                "partition scan, merged",
                "0_001 | [ .. ] | RK lt 'm' or RK gt 'c'",
                "1_001 | [ .. ] | RK lt 'm' or RK gt 'c'",
                "2_001 | [ .. ] | RK lt 'm' or RK gt 'c'",
            ],
        ),
        (
            [Click.day == 1, Click.user.startswith("x")],
            ["range, merged", "0_001 | [x .. y)", "1_001 | [x .. y)", "2_001 | [x .. y)"],
        ),
    )
