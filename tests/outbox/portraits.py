"""
A model with a blob, and what must be true of its rows and blobs.
"""

from collections.abc import Mapping

import msgspec

from tableorm import Blob, Entity, Index, Mapped, field
from tableorm.models.manifest import MARK_LENGTH, UploadEntry
from tableorm.stores import Row, TableStore
from tableorm.testing.contract.base import everything


class Portrait(Entity, table="Gallery", partition_key="{hall}", row_key="portrait_{id:03d}"):
    hall: Mapped[str]
    id: Mapped[int]
    title: Mapped[str] = field(default="")
    picture: Mapped[Blob | None] = field(default=None)

    by_title = Index(row_key="title_{title}_{id:03d}")


async def portraits_of(store: TableStore) -> list[Row]:
    """Return the rows of all portraits."""
    return [row for row in await everything(store, "Gallery") if row.get("EntityType") == "Portrait"]


async def wrong_pictures(store: TableStore, blobs: Mapping[str, str]) -> list[str]:
    """
    Return which portraits have a picture that is not there, or is not held for them.

    Args:
        store: The tables.
        blobs: What blobs hold, by name.
    """
    rows = {(row["PartitionKey"], row["RowKey"]): row for row in await everything(store, "Gallery")}
    problems: list[str] = []
    for portrait in await portraits_of(store):
        if "picture" not in portrait:
            continue
        table, token, partition = portrait["picture"].split("/")
        held = rows.get((partition, f"~b_{token}"), {})
        text = blobs.get(UploadEntry(table, token, partition).name)
        if held.get("State") != "held" or text is None or len(text) != int(portrait["picture_length"]):
            problems.append(f"{portrait['picture']} is {text!r}, and its row {held}")
        if msgspec.json.decode(portrait["_ix"])["picture"] != {"up": [table, token, partition]}:
            problems.append(f"the manifest does not name {portrait['picture']}")
    return problems


async def extra_pictures(store: TableStore, blobs: Mapping[str, str]) -> set[str]:
    """Return the tokens of blobs, and of the rows of blobs, that no portrait has."""
    used = {row["picture"].split("/")[1] for row in await portraits_of(store) if "picture" in row}
    held = {row["RowKey"][3:] for row in await everything(store, "Gallery") if row.get("State") == "held"}
    return ({name.partition("/")[2][MARK_LENGTH:] for name in blobs} | held) - used
