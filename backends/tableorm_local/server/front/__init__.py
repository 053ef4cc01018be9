"""
The front: HTTP, what clients can make the server hold, the access log and the metrics.
"""
