"""
Writes: from a verb to the store.
"""
