"""
The Table service's own rules as pure functions: EDM types and JSON, limits, filters, error codes, signatures, tokens.

Everything in tableorm uses this package. It imports nothing else of tableorm, and does no I/O.
"""
