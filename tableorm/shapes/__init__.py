"""
What models store otherwise than a value in a property: kinds of fields that are several properties, and row stages.
Each is one module, which nothing else names.
"""

from . import chunked as chunked
from . import link as link
from . import wide as wide
