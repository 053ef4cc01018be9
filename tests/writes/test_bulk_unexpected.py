"""
A function of a model that raises while a chunk of a bulk is derived: the other entities of the chunk are written.
"""

import pytest

from tableorm import Database, Entity, Index, Mapped


def _refuse_seven(entity: Entity) -> bool:
    assert isinstance(entity, Thing)
    if entity.number == 7:
        raise LookupError("seven")
    return True


class Thing(Entity, table="Things", partition_key="g", row_key="thing_{number:03d}"):
    number: Mapped[int]
    by_number = Index(row_key="number_{number:03d}", where=_refuse_seven)


@pytest.mark.parametrize("numbers", [[7], [7, 1], [1, 7], [1, 7, 2], [1, 2, 3, 7]])
async def test_one_entity_fails_by_itself(db: Database, numbers: list[int]) -> None:
    """However many there are beside it, and wherever it stands among them."""
    await db.create_tables(Thing)
    async with db.bulk(errors="report") as bulk:
        for number in numbers:
            await bulk.insert(Thing(number=number))

    assert (bulk.report.written, bulk.report.failures) == (len(numbers) - 1, 1)
    (failure,) = bulk.report.failed
    assert "seven" in str(failure.error)
    found = await db.select(Thing).where(Thing.number < 100).all()
    assert [each.number for each in found] == sorted(set(numbers) - {7})
