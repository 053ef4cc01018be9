"""
Keys: how fields become PartitionKey and RowKey, and back.
"""
