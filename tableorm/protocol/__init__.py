"""
The Table service's own rules, as pure functions: EDM types and JSON, limits, filters, error codes, signatures, tokens.

Everything in tableorm uses this package; it imports nothing of ours and does no I/O.
"""
