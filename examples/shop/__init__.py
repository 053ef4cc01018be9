"""
A service for several shops, in FastAPI: `uvicorn --factory examples.shop.service:from_environment`.
"""
