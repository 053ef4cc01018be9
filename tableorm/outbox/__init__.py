"""
What is left to do after a write, in other partitions: decision rows, and the queue that a worker takes its work from.
"""
