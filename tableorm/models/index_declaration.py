"""
`IndexDeclaration`: what identifies an index, or an index list, whose state is kept in the store.
"""

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, Self

import attrs
import msgspec


@attrs.frozen(kw_only=True)
class IndexDeclaration:
    """
    An index or an index list of one model, as its state in the store names it.

    Args:
        model: Name of the model.
        name: Name of the declaration.
        table: The table of the entities.
        entry_table: The table of the entries or lists; that of the entities for lists in blobs.
        digest: Equal for declarations that keep equal entries, whichever program makes them.
    """

    model: str
    name: str
    table: str
    entry_table: str
    digest: str

    @classmethod
    def of(cls, model: str, name: str, table: str, entry_table: str, layout: Mapping[str, Any]) -> Self:
        """
        Return the declaration of an index or an index list.

        Args:
            model: Name of the model.
            name: Name of the declaration.
            table: The table of the entities.
            entry_table: The table of the entries or lists; that of the entities for lists in blobs.
            layout: What was declared, as JSON has it, with the kind of the entries.
        """
        text = msgspec.json.encode([table.lower(), entry_table.lower(), layout], order="sorted")
        digest = blake2b(text, digest_size=16).hexdigest()
        return cls(model=model, name=name, table=table, entry_table=entry_table, digest=digest)

    def __str__(self) -> str:
        return f"{self.model}.{self.name}"
