"""
Blobs as fields of entities: the row of each blob, and what becomes of one that is dropped.
"""
