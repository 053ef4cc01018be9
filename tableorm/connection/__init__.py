"""
The connection: one open database, its event loop, counters and retries.
"""
