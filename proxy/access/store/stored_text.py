"""Text that both databases can store: PostgreSQL refuses NUL, and both need valid Unicode."""

from __future__ import annotations


def storable(text: str) -> bool:
    return cleaned(text) == text


def cleaned(text: str) -> str:
    """With U+FFFD for NUL, and `?` for half of a surrogate pair."""
    return text.encode("utf-8", "replace").decode().replace("\0", "\ufffd")
