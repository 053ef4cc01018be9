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


class Order(Entity, table="Directory", partition_key="{company}", row_key="order_{number:03d}"):
    company: Mapped[str]
    number: Mapped[int]

    lines = many(lambda: Line, company="{company}", order="{number}", on_delete="cascade")


class Line(Entity, table="Directory", partition_key="{company}", row_key="order_{order:03d}_{number:03d}"):
    company: Mapped[str]
    order: Mapped[int]
    number: Mapped[int]
    amount: Mapped[int]
