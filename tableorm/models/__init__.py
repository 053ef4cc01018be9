"""
Models: what a class declares, and which model a row is of.
"""
