"""
Indexes: further keys under which an entity is found.
"""
