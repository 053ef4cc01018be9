"""
Names that tableorm reserves for itself: properties of stored rows, and attributes of entities.
"""

import re

from ..protocol.edm import SYSTEM_MEMBERS

ENTITY_TYPE = "EntityType"
"""The property that holds a row's kind and, from version 2 on, a colon and the version."""

ENTITY_VERSION = "EntityVersion"
"""The property that holds the version from 2 on, for models whose kind is told by a key or a function."""

WRITE_TOKENS = "_w"
"""The property that holds the tokens of the last writes, newest first; see `tableorm.models.write_tokens`."""

MANIFEST = "_ix"
"""The property that holds an entity's manifest: JSON text that lists what other rows hold because of the entity."""

MOVE = "_mv"
"""The property of a row in a move that says how far that is; see `tableorm.models.marker_rows`."""

COPY_OF = "_of"
"""The property of an index entry that tells its primary: its RowKey, or JSON text with both keys if it is elsewhere."""

COPIED_VERSION = "_v"
"""
The property of an index entry of another partition that holds the newest write token of the row that it copies; of one
that reserves a unique value, the token of the change that claimed it.
"""

METADATA = "_en"
"""The property with the metadata of a row that has encrypted properties; see `tableorm.shapes.encryption`."""

OPENED = "odata.sealed"
"""
The member by which a row says how it can be unsealed, and then the metadata that it had. It is stored nowhere, and no
property can have the name.
"""

PART = "#_part"
"""What the kind of a further row of an entity has behind the kind of the entity, which is stored in several rows."""

FIRST_OF_SEVERAL = "+"
"""
What the kind and version of the first row of such an entity have at the end: `Year:1+`. A model that does not know of
further rows refuses the row, since that is no version.
"""

PLACES = "_p00"
"""
The property by which a row that was joined of several says where its properties are. It is stored nowhere; `_p01` and
those that follow are, see `tableorm.shapes.wide`.
"""

BOUND_TO_KEYS = (MANIFEST, MOVE, WRITE_TOKENS)
"""
The properties that say of a row what holds under its own keys alone: what is derived from it, how far its move is, and
who wrote it.
"""

NOT_PROPERTIES = SYSTEM_MEMBERS | {*BOUND_TO_KEYS, PLACES, OPENED}
"""Members of a row that are no properties of an entity's own."""

SUBTOTAL_HEAD = "~n_"
"""What the RowKey of each row of a count across partitions begins with; see `tableorm.models.marker_rows`."""

BLOB_FIELDS = "tableorm-blobs"
"""The container of the blobs that are fields of entities, to whose name a database adds its prefix."""

BLOB_LISTS = "tableorm-lists"
"""The container of the index lists that lie in blobs, to whose name a database adds its prefix."""

UPKEEP_TABLE = "TableormUpkeep"
"""The table of the mapper's own records: states of indexes, runs that several processes share, revisions of models."""

RESERVED_FIELDS = frozenset({"etag", "timestamp", "extra", "key", "key_of", "kind", "evolve", "update"})
"""Attributes of every entity, whose names no field of a model may have."""

VERB_OPTIONS = frozenset({"attempts", "concurrency", "create", "guard", "if_match", "missing_ok"})
"""Options of verbs that take the fields of a key beside them, so that no such field can be called so."""

_PROPERTIES = re.compile(
    r"PartitionKey|RowKey|Timestamp|EntityType|EntityVersion"  # the service's, and what tells kinds apart
    r"|_w|_ix|_of|_v|_un|_mv|_en|_p[0-9]{2}"  # what writes of several rows store in a row
)


def is_reserved_property(name: str) -> bool:
    """Return whether fields may not be stored under this property name."""
    return _PROPERTIES.fullmatch(name) is not None


def is_reserved_table(name: str) -> bool:
    """Return whether a table has records of tableorm itself. Names of tables are compared without regard to case."""
    return name.lower() == UPKEEP_TABLE.lower()
