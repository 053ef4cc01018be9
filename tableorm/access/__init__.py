"""
Access: tokens for rows of a table, stored policies, and scopes.
"""
