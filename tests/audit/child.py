"""
What tests kill: builds an index or repairs one, in small parts, and keeps its cursor after each.
"""

import asyncio
import sys
from pathlib import Path

from tableorm import connect
from tableorm.audit import audit as auditing
from tableorm.audit.report import AuditReport, BuildReport
from tests.audit.foreign import Employee


def keep(state: Path, report: AuditReport | BuildReport) -> None:
    if report.cursor is not None:
        draft = state.with_suffix(".new")
        draft.write_text(report.cursor)
        draft.replace(state)
    print("part", flush=True)  # noqa: T201


async def main(what: str, path: str, state: Path) -> None:
    auditing.SEGMENT = 20
    async with connect(f"local:{path}") as db:
        if what == "build":
            await db.build_index(Employee.by_email, parallel=4, on_progress=lambda report: keep(state, report))
        else:
            await db.audit(Employee, parallel=4, repair=True, on_progress=lambda report: keep(state, report))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], Path(sys.argv[3])))
