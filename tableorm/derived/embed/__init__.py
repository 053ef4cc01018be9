"""
Embedded copies of fields of another entity.
"""
