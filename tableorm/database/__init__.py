"""
The database: the face that users see, each verb a signature, a docstring and a call.
"""
