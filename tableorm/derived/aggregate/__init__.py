"""
Counts and sums.
"""
