"""
Models that commands import by name.
"""

from tableorm import Entity, Mapped


class Employee(Entity, table="Directory", partition_key="{department}", row_key="empid_{id:06d}"):
    department: Mapped[str]
    id: Mapped[int]


class Manager(Entity, table="Directory", partition_key="{department}", row_key="manager_{id:06d}"):
    department: Mapped[str]
    id: Mapped[int]
