"""
Bulk writes: many operations over any partitions, as entity group transactions.
"""
