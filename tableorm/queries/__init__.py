"""
Queries: from `select` to entities.
"""
