"""
The backend of Azure: Azure Storage tables, queues and blobs, and the Cosmos DB Table API, through the SDK for Python.
"""

from .backend import AzureBackend

__all__ = ["AzureBackend"]
