"""
Derived data: one folder for each pattern that keeps other rows right.
"""

from .blob import blob as blob
