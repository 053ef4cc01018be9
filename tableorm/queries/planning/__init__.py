"""
Planning: which requests answer a query.
"""
