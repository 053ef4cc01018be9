"""
The contract of stores as tests, for authors of backends; its parts are exported by `tableorm.testing`.
"""
