"""The pepper of keys (KEY_PEPPER), and the key of the audit chain that is derived from it."""

from __future__ import annotations

import hmac
from dataclasses import dataclass

CHAIN = b"triton-openai audit chain 1"
ID_CHARACTERS = 16


@dataclass(frozen=True, slots=True)
class ChainKey:
    """The key of the audit log's MACs. Its id stands in each entry, and reveals nothing of it."""

    secret: bytes

    @classmethod
    def derived(cls, pepper: bytes) -> ChainKey:
        return cls(hmac.digest(pepper, CHAIN, "sha256"))

    @property
    def id(self) -> str:
        return self.mac(b"id")[:ID_CHARACTERS]

    def mac(self, *parts: bytes) -> str:
        """HMAC-SHA256 in hex. Each part is preceded by its length, so that none can grow."""
        framed = b"".join(len(part).to_bytes(8, "big") + part for part in parts)
        return hmac.digest(self.secret, framed, "sha256").hex()


@dataclass(frozen=True, slots=True)
class Peppers:
    """`today`: makes digests and audit entries. `earlier`: only verify audit entries."""

    today: bytes
    earlier: tuple[bytes, ...] = ()

    @property
    def chain_key(self) -> ChainKey:
        return ChainKey.derived(self.today)

    @property
    def chain_keys(self) -> dict[str, ChainKey]:
        """By id, those of earlier peppers too."""
        return {key.id: key for key in map(ChainKey.derived, (self.today, *self.earlier))}
