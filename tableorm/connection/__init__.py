"""
The connection: one open database, its event loop, counters and retries, and who observes its requests.
"""
