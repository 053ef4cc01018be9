"""
Logs in blobs: records as lines of JSON, in segments that are written once, under names by which a time is found.
"""

from .reading import read_log
from .segments import LogRecord
from .stream import LogStream

__all__ = ["LogRecord", "LogStream", "read_log"]
