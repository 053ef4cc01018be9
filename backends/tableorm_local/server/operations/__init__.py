"""
The operations of the Table service, each a function of what is asked that returns an answer.
"""
