"""
The programs of the public API, word for word: what a user reads is what runs, on whichever store.

Of the models the index in another partition is left out, which is not there yet.
"""

# ruff: noqa: T201 - they print
from tableorm import Database, Entity, Index, Mapped, PropertyBag, TransactionFailed, field, from_dict, to_dict, upgrade

__all__ = ["Department", "Employee", "everyday", "reading", "writing"]


class Department(Entity, table="Directory", partition_key="{name}", row_key="department"):
    name: Mapped[str]
    employee_count: Mapped[int] = field(default=0, name="EmployeeCount")


class Employee(Entity, table="Directory", partition_key="{department}", row_key="empid_{id:06d}", version=2):
    department: Mapped[str]
    id: Mapped[int]
    first_name: Mapped[str]
    last_name: Mapped[str]
    age: Mapped[int | None] = field(default=None)
    email: Mapped[str | None] = field(default=None)

    by_email = Index(row_key="email_{email}", unique=True)


@upgrade(Employee, from_version=1)
def years_to_age(bag: PropertyBag) -> PropertyBag:
    bag["age"] = bag.pop("years", None)
    return bag


async def everyday(db: Database) -> None:
    await db.create_tables(Department, Employee)
    jun = await db.get(Employee, department="Sales", id=223)
    key = Employee.key(department="Sales", id=223)
    key = Employee.key_of("Sales", "empid_000223")
    jun = await db.get(key)
    some = await db.get_many([key])
    await db.exists(key)
    await db.refresh(jun)
    older = jun.evolve(age=48)
    data = to_dict(older, mode="json")
    await db.delete(key, if_match="*")
    report = await db.select(Employee).where(Employee.department == "Old").delete()
    print(data, some, report)
    print(from_dict(Employee, data))

    def one_more(bag: PropertyBag) -> None:
        bag["EmployeeCount"] += 1

    await db.modify(PropertyBag.key("Directory", "Sales", "department"), one_more)


async def reading(db: Database) -> None:
    jun = await db.get(Employee, department="Sales", id=223)
    maybe = await db.get_or_none(Employee, department="Sales", id=224)
    jun = await db.get(Employee.by_email, department="Sales", email="junc@contoso.com")
    print(jun, maybe)

    q = (
        db.select(Employee)
        .where(Employee.department == "Sales", Employee.id.between(100, 199), Employee.age > 30)
        .only(Employee.first_name, Employee.age)
    )
    print(q.explain())
    async for e in q:
        print(e.first_name, e.age)
    async with q.stream() as stream:
        async for e in stream:
            print(e.first_name)
            break

    page = await q.page(size=50)
    page = await q.page(size=50, cursor=page.cursor)
    first = await q.first()
    everyone = await db.select(Employee).where(Employee.department.in_(["Sales", "Marketing"])).all()
    old = await db.select(Employee).where(Employee.age > 60).allow_scan().count()
    print(first, everyone, old)

    async for thing in db.select(Department, Employee).where(Employee.department == "Sales"):
        print(thing)
    async for bag in db.select_raw("Directory").where("PartitionKey eq {} and Age ge {}", "Sales", 30):
        print(bag["Age"])
    async for e in db.union(*(db.select(Employee).where(Employee.department == d) for d in ("Sales", "HR"))):
        print(e)


async def writing(db: Database) -> None:
    ken = Employee(department="Sales", id=10, first_name="Ken", last_name="Kwok", age=23)
    await db.insert(ken)
    ken.age = 24
    await db.save(ken)
    await db.merge(ken, only=[Employee.age])
    await db.replace(ken)
    await db.upsert(ken, mode="merge")
    await db.replace(ken, if_match="*")

    def birthday(e: Employee) -> None:
        e.age = (e.age or 0) + 1

    await db.modify(ken, birthday)
    print(db.explain_write("save", ken))
    await db.delete(ken, missing_ok=True)

    def one_more(d: Department) -> None:
        d.employee_count += 1

    try:
        async with db.transaction() as tx:
            tx.insert(Employee(department="Sales", id=11, first_name="Ann", last_name="Li"))
            await tx.modify(Department, one_more, name="Sales")
    except TransactionFailed as error:
        print(error.index, error.operation, error.entity, error.code)

    async with db.bulk(concurrency=16) as bulk:
        for n in range(1_000):
            await bulk.upsert(Employee(department=f"D{n % 50}", id=n, first_name="x", last_name="y"))
    print(bulk.report)
