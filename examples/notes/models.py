"""
The table: each user's notes are a partition, the newest first, so that a range of keys is all that is the user's.
"""

import datetime as dt
from uuid import UUID, uuid4

from tableorm import Entity, Mapped, field


class Profile(Entity, table="Notes", partition_key="{user}", row_key="profile"):
    user: Mapped[str]
    full_name: Mapped[str]


class Note(Entity, table="Notes", partition_key="{user}", row_key="note_{at:ticks_desc}_{id}"):
    user: Mapped[str]
    at: Mapped[dt.datetime] = field(factory=lambda: dt.datetime.now(dt.UTC))
    id: Mapped[UUID] = field(factory=uuid4)
    text: Mapped[str]
