"""
Index lists: one row that holds the keys of all entities with a value.
"""
