"""
The wire: what is read from requests and written to answers.
"""
