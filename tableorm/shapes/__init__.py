"""
Kinds of fields that are stored in several properties: each is one module, which nothing else names.
"""

from . import chunked as chunked
