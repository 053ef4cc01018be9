"""
Security: who signed a request, which accounts there are, and which web pages may call.
"""
