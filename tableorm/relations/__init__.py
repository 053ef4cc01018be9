"""
Which entities belong to an entity: declared in the body of its class, and loaded for many entities with few requests.
"""
