"""
Types of fields for which Python has no type.
"""

from typing import Annotated

from .protocol.edm import Edm

__all__ = ["Int32"]

Int32 = Annotated[int, Edm.INT32]
"""
An int stored as Edm.Int32: `age: Mapped[Int32]`. An enum of ints is declared `level: Mapped[Annotated[Level, Int32]]`.
"""
