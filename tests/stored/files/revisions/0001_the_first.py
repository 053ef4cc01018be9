"""
The first
"""

from tableorm_migrations import Revision

REVISION = Revision(
    name="0001_the_first",
    follows=None,
    steps=(),
    before={},
    after={
        "Setting": {
            "name": "Setting",
            "table": "StoredSettings",
            "kind": "Setting",
            "version": 2,
            "discriminator": "row_key",
            "partition_key": "{user}",
            "row_key": "setting_{name}",
            "fields": {
                "user": {"type": "str", "edm": "Edm.String"},
                "name": {"type": "str", "edm": "Edm.String"},
                "value": {"type": "str", "edm": "Edm.String", "property": "value"},
            },
        },
    },
)
