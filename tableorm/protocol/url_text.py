"""
Bytes as text that is safe in a URL: base64 without its padding.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode


def to_url_text(data: bytes) -> str:
    """Return the text of bytes."""
    return urlsafe_b64encode(data).rstrip(b"=").decode("ascii")


def from_url_text(text: str) -> bytes:
    """Return the bytes of a text. Raises ValueError."""
    return urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))
