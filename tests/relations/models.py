"""Models that the tests of relations share."""

from tableorm import Entity, Index, Key, Mapped, field, many, one


class Team(Entity, table="Directory", partition_key="{company}", row_key="team_{name}"):
    company: Mapped[str]
    name: Mapped[str]

    employees = many(lambda: Employee, company="{company}", team="{name}", on_delete="keep")
    by_name = many(lambda: Employee, company="{company}", nick="{name}", on_delete="keep")


class Employee(Entity, table="Directory", partition_key="{company}", row_key="emp_{team}_{id:06d}"):
    company: Mapped[str]
    team: Mapped[str]
    id: Mapped[int]
    age: Mapped[int] = field(default=30)
    nick: Mapped[str | None] = field(default=None)
    boss: Mapped[Key["Employee"] | None] = field(default=None)

    by_nick = Index(row_key="nick_{nick}_{team}_{id:06d}")
    manager = one(lambda: Employee, key="boss")
    own_team = one(lambda: Team, company="{company}", name="{team}")
    reviews = many(lambda: Review, employee="{id}", on_delete="keep")


class Review(Entity, table="Reviews", partition_key="{employee}", row_key="{year}"):
    employee: Mapped[int]
    year: Mapped[int]


class Buyer(Entity, table="MisfitBuyers", partition_key="{tenant}", row_key="buyer_{id:03d}"):
    tenant: Mapped[str]
    id: Mapped[int]
    age: Mapped[int] = field(default=1)


class Purchase(Entity, table="MisfitPurchases", partition_key="{tenant}", row_key="purchase_{id:03d}"):
    tenant: Mapped[str]
    id: Mapped[int]
    buyer: Mapped[Key[Buyer] | None]

    customer = one(lambda: Buyer, key="buyer")
    items = many(lambda: Item, tenant="{tenant}", purchase="{id}", on_delete="cascade")


class Item(Entity, table="MisfitPurchases", partition_key="{tenant}", row_key="purchase_{purchase:03d}_{id:03d}"):
    tenant: Mapped[str]
    purchase: Mapped[int]
    id: Mapped[int]
    size: Mapped[int] = field(default=0)

    of = one(lambda: Purchase, tenant="{tenant}", id="{purchase}")
