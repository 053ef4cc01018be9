"""
Random programs change a model again and again, write entities, and apply revisions at random moments, or die meanwhile.
"""

import random
import types
from contextlib import suppress
from pathlib import Path
from typing import Any

import attrs

from tableorm import Database, Entity, Index, Mapped, PropertyBag, connect, upgrade
from tableorm_migrations import StepReport, apply_revisions, migration_status, write_revision
from tests.torture import seeds

TABLE = "RandomRevisions"


@attrs.define
class Program:
    """The newest program, and the database."""

    folder: Path
    random: random.Random
    version: int = 1
    indexes: tuple[str, ...] = ()
    used: int = 0
    stored: dict[int, int] = attrs.field(factory=dict[int, int])

    def model(self) -> Any:
        """The model as it is now: field `n1`, `n2`, ... by its version, with each number one more than before."""

        def fill(names: dict[str, Any]) -> None:
            number = f"n{self.version}"
            names["__module__"] = __name__
            names["__annotations__"] = {"group": Mapped[str], "id": Mapped[int], number: Mapped[int]}
            for index in self.indexes:
                names[index] = Index(row_key=f"{index}_{{id:03d}}")

        keywords = {
            "table": TABLE,
            "kind": "Item",
            "version": self.version,
            "partition_key": "{group}",
            "row_key": "item_{id:03d}",
        }
        model: Any = types.new_class("Item", (Entity,), keywords, fill)
        for version in range(1, self.version):
            upgrade(model, from_version=version)(_raise_from(version))
        return model

    def change(self) -> None:
        """Change the model, and write a revision."""
        what = self.random.choice(["version", "add", "add", "remove"])
        if what == "version":
            self.version += 1
        elif what == "add":
            self.used += 1
            self.indexes += (f"index{self.used}",)
        elif self.indexes:
            self.indexes = tuple(name for name in self.indexes if name != self.random.choice(self.indexes))
        write_revision([self.model()], self.folder / "revisions", what, snapshot=self.folder / "kept.json")

    def open(self) -> Database:
        return connect(f"local:{self.folder}/test.tables")

    async def write(self) -> None:
        """Insert, change and delete entities, as any program does."""
        model = self.model()
        async with self.open() as db:
            await db.create_tables(model)
            for _ in range(self.random.randint(1, 4)):
                number = self.random.randrange(20)
                key = {"group": "g", "id": number}
                if number not in self.stored:
                    await db.insert(model(**key, **{f"n{self.version}": 100 * self.version}))
                    self.stored[number] = 100 * self.version - self.version
                elif self.random.random() < 0.5:
                    entity = await db.get(model, **key)
                    setattr(entity, f"n{self.version}", 7000)
                    await db.save(entity)
                    self.stored[number] = 7000 - self.version
                else:
                    await db.delete(await db.get(model, **key))
                    del self.stored[number]

    async def apply(self, *, final: bool, dies: bool) -> None:
        """Apply revisions; a program that dies does so at some moment of its progress."""
        left = self.random.randint(1, 6)

        def die(_: StepReport) -> None:
            nonlocal left
            left -= 1
            if dies and not left:
                raise InterruptedError

        with suppress(InterruptedError):
            async with self.open() as db:
                await apply_revisions(
                    db,
                    [self.model()],
                    self.folder / "revisions",
                    no_older_writers=final,
                    parallel=2,
                    lease=0.2,
                    on_progress=die,
                )


def _raise_from(version: int) -> Any:
    def add_one(bag: PropertyBag) -> PropertyBag:
        number: Any = bag.pop(f"n{version}")
        bag[f"n{version + 1}"] = number + 1
        return bag

    return add_one


@seeds(1, 200)
async def test_changes_at_random(tmp_path: Path, seed: int) -> None:
    """In the end all rows are of the last version, with the values they had, and each index is read and complete."""
    program = Program(tmp_path, random.Random(seed))
    write_revision([program.model()], tmp_path / "revisions", "first", snapshot=tmp_path / "kept.json")
    for _ in range(12):
        what = program.random.choice(["change", "write", "write", "apply"])
        if what == "change":
            program.change()
        elif what == "write":
            await program.write()
        else:
            await program.apply(final=program.random.random() < 0.5, dies=program.random.random() < 0.5)
    await program.write()
    await program.apply(final=True, dies=False)

    model = program.model()
    values = {number: base + program.version for number, base in program.stored.items()}
    async with program.open() as db:
        found: list[Any] = await db.select(model).where(model.group == "g").all()
        assert {each.id: getattr(each, f"n{program.version}") for each in found} == values
        for name in program.indexes:
            rows: list[Any] = await db.select(getattr(model, name)).where(model.group == "g").all()
            assert {each.id: getattr(each, f"n{program.version}") for each in rows} == values
        kinds = {str(row["EntityType"]).partition(":")[2] for row in await db.select_raw(TABLE).allow_scan().all()}
        assert kinds <= {"" if program.version == 1 else str(program.version)}
        assert (await db.audit(model)).clean
        status = await migration_status(db, tmp_path / "revisions")
        assert all(each.applied is not None for each in status.revisions)
