"""
The stages of a write, each one function in one module.
"""
