"""The form of an API key, `sk-<id>-<43 random characters>`, and its digest.

The id is public: it is in logs and in the store. Only the digest of the whole key is stored.
"""

from __future__ import annotations

import hmac
import re
import secrets

SECRET_BYTES = 32
_FORM = re.compile(rb"sk-([A-Za-z0-9]{4,32})-[A-Za-z0-9_-]{43}")


def made(key_id: str) -> str:
    """A new key with 256 random bits, in base64url."""
    return f"sk-{key_id}-{secrets.token_urlsafe(SECRET_BYTES)}"


def id_of(key: bytes) -> str | None:
    """The public part of a key; None if it has another form."""
    match = _FORM.fullmatch(key)
    return None if match is None else match[1].decode()


def digest(key: bytes, pepper: bytes) -> bytes:
    """HMAC-SHA256 of the whole key. 32 bytes."""
    return hmac.digest(pepper, key, "sha256")
