"""
A service that hands each user a token for that user's own rows: `python examples/notes/demo.py`.
"""
