"""A double of domain.key_records.KeySource: keys and tenants in memory, and keys to use them."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import datetime, timezone

from proxy.access.authentication import api_key
from proxy.domain.identity import ALL_SCOPES, Limits, ModelPatterns, Scope
from proxy.domain.key_records import KeyRecord, KeysUnavailable, TenantRecord

PEPPER = "a pepper of the tests, 32 bytes.".replace(" ", "-")
BEGAN = datetime(2026, 1, 1, tzinfo=timezone.utc)


def whole_key(key_id: str, letter: str = "x") -> str:
    return f"sk-{key_id}-{letter * 43}"


def digest(key: str) -> bytes:
    return api_key.digest(key.encode(), PEPPER.encode())


class KeysInMemory:
    """`is_down`: every read fails. `delay_s`: how long a read takes. `reads`: names, in order."""

    def __init__(self) -> None:
        self.keys: dict[str, KeyRecord] = {}
        self.tenants: dict[str, TenantRecord] = {}
        self.changes = 0
        self.reads: list[str] = []
        self.at_once = self.most_at_once = 0
        self.is_down = False
        self.delay_s = 0.0
        self.add_tenant("acme")

    def add_tenant(self, name: str, **fields: object) -> None:
        self.tenants[name] = TenantRecord(**{"name": name, "created_at": BEGAN, **fields})
        self.changes += 1

    def add(
        self,
        key_id: str,
        *,
        tenant: str = "acme",
        scopes: frozenset[Scope] = ALL_SCOPES,
        models: tuple[str, ...] = (),
        expires_at: datetime | None = None,
    ) -> str:
        """Returns the whole key."""
        key = whole_key(key_id)
        self.keys[key_id] = KeyRecord(
            id=key_id,
            tenant=tenant,
            name=f"the key {key_id}",
            digest=digest(key),
            scopes=scopes,
            models=ModelPatterns(patterns=models),
            limits=Limits(),
            created_at=BEGAN,
            expires_at=expires_at,
        )
        self.changes += 1
        return key

    def change(self, key_id: str, **fields: object) -> None:
        self.keys[key_id] = replace(self.keys[key_id], **fields)
        self.changes += 1

    async def generation(self) -> int:
        if self.is_down:
            raise KeysUnavailable("down")
        return self.changes

    async def key(self, key_id: str) -> KeyRecord | None:
        await self._read(key_id)
        return self.keys.get(key_id)

    async def tenant(self, name: str) -> TenantRecord | None:
        await self._read(name)
        return self.tenants.get(name)

    async def _read(self, name: str) -> None:
        self.reads.append(name)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await asyncio.sleep(self.delay_s)
            if self.is_down:
                raise KeysUnavailable("down")
        finally:
            self.at_once -= 1
