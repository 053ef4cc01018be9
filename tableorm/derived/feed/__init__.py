"""
The pattern of change feeds: rows that say which entities of a partition each transaction has changed, in order.
"""
