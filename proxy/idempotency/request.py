"""A request that carries an Idempotency-Key, as the records know it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedRequest:
    """id: digest of everything that the key is scoped to. tenant: digest of whose quota the answer
    counts in. body: digest of the raw body. after: the last event that the client has received;
    0 begins with the first. is_private: nothing of the answer leaves this process. is_shared: only
    an address tells the caller from others, so that nobody gets the answer after its end.
    """

    id: bytes
    tenant: bytes
    body: bytes
    after: int = 0
    is_private: bool = False
    is_shared: bool = False


def digest(parts: Iterable[str]) -> bytes:
    """SHA-256 of the parts; each has its length before it, so that no two lists are the same."""
    made = hashlib.sha256()
    for part in parts:
        text = part.encode("utf-8", "surrogateescape")
        made.update(len(text).to_bytes(8, "big") + text)
    return made.digest()
