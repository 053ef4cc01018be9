"""
The pictures of docs/operation/browse.md: what `tableorm browse` shows of a made-up database, as SVG.

Run it from the root of the project after a change of what is shown: python -m scripts.browse_pictures
"""

import asyncio
import datetime as dt
import re
from pathlib import Path

from tableorm import Entity, Index, Mapped, connect
from tableorm.explorer.app import Explorer
from tableorm.stores import CLOCK

SIZES = {"Sales": 700, "Marketing": 300, "Support": 200, "Site01": 90, "Site02": 60}
NAMES = ["Ken Kwok", "Ada Berg", "Max Roth", "Ida Sato", "Leo Berg", "Eva Lind", "Jo Park"]
FOLDER = Path(__file__).resolve().parent.parent / "docs" / "operation"


class Employee(Entity, table="Directory", partition_key="{department}", row_key="empid_{id:06d}"):
    """Somebody who is shown."""

    department: Mapped[str]
    id: Mapped[int]
    name: Mapped[str]
    email: Mapped[str]
    age: Mapped[int]

    by_email = Index(row_key="email_{email}", unique=True)


async def main() -> None:
    """Fill a database in memory, look at it, and write the pictures."""
    CLOCK.freeze(dt.datetime(2026, 11, 21, tzinfo=dt.UTC))
    async with connect("local::memory:") as db:
        await db.create_tables(Employee, "Orders", "Sessions")
        async with db.bulk() as bulk:
            for department, count in SIZES.items():
                for id_ in range(count):
                    name, email = NAMES[id_ % len(NAMES)], f"e{id_:04d}@contoso.com"
                    age = 20 + id_ * 7 % 45
                    await bulk.insert(Employee(department=department, id=id_, name=name, email=email, age=age))
        app = Explorer(db, [Employee])
        app.animation_level = "none"
        async with app.run_test(size=(120, 36)) as pilot:

            async def take(name: str, *keys: str) -> None:
                for key in keys:
                    await pilot.press(key)
                    await pilot.pause()
                    while any(not each.is_finished for each in app.workers):
                        await pilot.pause()
                    await pilot.pause()
                # Fonts come from the reader's machine, and nothing from elsewhere; the ids are the same each time.
                text = re.sub(r"@font-face \{.*?\}", "", app.export_screenshot(), flags=re.DOTALL)
                text = re.sub(r"terminal-\d+", "terminal", text)
                text = "\n".join(line.rstrip() for line in text.splitlines() if line.strip())
                (FOLDER / f"{name}.svg").write_text(text + "\n", encoding="utf-8")

            filter_keys = [*"department eq 'Sales' and id ge 100", "enter"]
            await take("browse", "enter", "down", "down", "enter", "slash", *filter_keys, "down", "down")
            await take("browse-partitions", "t", "down", "down", "enter")


if __name__ == "__main__":
    asyncio.run(main())
