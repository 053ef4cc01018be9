"""
Cursors of pages in a scope: programs give them to clients, who can read the key in them.
"""

import base64

import pytest

from tableorm import Database, Entity, Index, Mapped, PropertyBag, field


class Message(Entity, table="PagedMessages", partition_key="{country}", row_key="message_{topic}_{tenant}"):
    """Rows of all tenants lie side by side, since the tenant comes last in the key."""

    country: Mapped[str]
    topic: Mapped[str]
    tenant: Mapped[str]
    state: Mapped[str] = field(default="open")

    by_state = Index(row_key="state_{state}_{topic}_{tenant}", include="keys")


def read_text(cursor: str) -> str:
    return base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode("latin-1")


async def fill(db: Database, tenants: str) -> None:
    """Insert messages on topics a, b, c and so on, one for each tenant: A is the scope's, Z is another one."""
    await db.create_tables(Message)
    for topic, letter in zip("abcdefghijkl", tenants, strict=False):
        tenant = {"A": "acme", "Z": "other"}[letter]
        await db.insert(Message(country="se", topic=f"{topic}-secret" if letter == "Z" else topic, tenant=tenant))


@pytest.mark.one_of(5)
@pytest.mark.parametrize("tenants", ["AAZ", "AAZZAZ", "ZAZAZAZA", "AZAZZZZZZZZZ", "ZZZA", "AAAA"])
@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("way", ["keys", "index", "limit"])
async def test_a_cursor_does_not_tell_keys_of_others(db: Database, tenants: str, size: int, way: str) -> None:
    """A page ends behind its last entity, not behind a row of others; together the pages have each entity once."""
    await fill(db, tenants)
    mine = db.scope(tenant="acme")
    query = mine.select(Message.by_state if way == "index" else Message).where(Message.country == "se")
    if way == "limit":
        query = query.limit(100)
    topics: list[str] = []
    cursor: str | None = None
    while True:
        page = await query.page(size, cursor)
        topics += [each.topic for each in page.items]
        cursor = page.cursor
        if cursor is None:
            break
        assert "secret" not in read_text(cursor)
        assert "other" not in read_text(cursor)

    assert topics == [topic for topic, letter in zip("abcdefghijkl", tenants, strict=False) if letter == "A"]


async def test_a_cursor_of_a_sparse_page(db: Database) -> None:
    """A page that ends because the store was asked ten times ends behind its last entity too."""
    await db.create_tables(Message)
    await db.insert(Message(country="se", topic="0000", tenant="acme"))
    async with db.bulk() as bulk:
        for number in range(1, 11_000):
            bag = PropertyBag("PagedMessages", "se", f"message_{number:05d}_other")
            bag["EntityType"] = "Message"
            await bulk.insert(bag)
    page = await db.scope(tenant="acme").select(Message).where(Message.country == "se").page(5)

    assert [each.topic for each in page.items] == ["0000"]
    assert page.cursor is not None
    assert "0000_acme" in read_text(page.cursor)
