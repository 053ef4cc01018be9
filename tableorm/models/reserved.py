"""
Names that tableorm keeps for itself: properties of stored rows, and attributes of entities.
"""

import re

__all__ = [
    "COPY_OF",
    "ENTITY_TYPE",
    "ENTITY_VERSION",
    "MANIFEST",
    "RESERVED_FIELDS",
    "WRITE_TOKENS",
    "is_reserved_property",
]

ENTITY_TYPE = "EntityType"
"""Property that holds the kind, and after a colon the version from 2 on."""

ENTITY_VERSION = "EntityVersion"
"""Property that holds the version from 2 on, where the kind is told by a key or a function."""

WRITE_TOKENS = "_w"
"""Property that holds the tokens of the last writes, newest first; see `tableorm.writes.tail`."""

MANIFEST = "_ix"
"""Property of an entity that notes what was derived from it: JSON text, by name of the index where its copy is."""

COPY_OF = "_of"
"""Property of a copy: the RowKey of its primary, in the same partition."""

RESERVED_FIELDS = frozenset({"etag", "timestamp", "extra", "key", "key_of", "kind", "evolve"})
"""Names on every entity, so never fields of a model."""

_PROPERTIES = re.compile(
    r"PartitionKey|RowKey|Timestamp|EntityType|EntityVersion"  # the service's, and what tells kinds apart
    r"|_w|_ix|_of|_v|_un|_mv|_p[0-9]{2}"  # what multi-row protocols note on a row
)


def is_reserved_property(name: str) -> bool:
    """Whether a stored property name is not free for fields."""
    return _PROPERTIES.fullmatch(name) is not None
