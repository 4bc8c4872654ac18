"""What a proxy keeps in memory for a time, within bounds that no tenant can use up for others."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Value = TypeVar("Value")
REMOVED_AT_ONCE = 200


@dataclass(frozen=True, slots=True)
class Kept(Generic[Value]):
    """expires_s: by the clock."""

    id: bytes
    tenant: bytes
    value: Value
    size_bytes: int
    expires_s: float


@dataclass(slots=True)
class OfTenant(Generic[Value]):
    """values: by their ids, the oldest first."""

    values: OrderedDict[bytes, Kept[Value]] = field(default_factory=OrderedDict)
    size_bytes: int = 0


class KeptByTenant(Generic[Value]):
    """All are kept for the same time, so the oldest is also the first that expires.

    clock: seconds that never go back. drop: called with each value that is removed.
    """

    def __init__(
        self,
        *,
        keep_s: float,
        most_bytes: int,
        most_of_tenant: int,
        clock: Callable[[], float] = time.monotonic,
        drop: Callable[[Value], None] = lambda value: None,
    ) -> None:
        self._keep_s = keep_s
        self._most_bytes = most_bytes
        self._most_of_tenant = most_of_tenant
        self._clock = clock
        self._drop = drop
        self._kept: OrderedDict[bytes, Kept[Value]] = OrderedDict()  # the oldest first
        self._tenants: dict[bytes, OfTenant[Value]] = {}
        self.size_bytes = 0

    def get(self, id: bytes) -> Value | None:
        kept = self._kept.get(id)
        return None if kept is None or kept.expires_s <= self._clock() else kept.value

    async def put(self, id: bytes, tenant: bytes, value: Value, size_bytes: int) -> None:
        """In place of the one with this id. The oldest may have to make room."""
        self.remove(id)
        kept = Kept(id, tenant, value, size_bytes, self._clock() + self._keep_s)
        self._kept[id] = kept
        its = self._tenants.setdefault(tenant, OfTenant())
        its.values[id] = kept
        its.size_bytes += size_bytes
        self.size_bytes += size_bytes
        await self._remove_while(lambda: self._surplus(tenant))

    def remove(self, id: bytes) -> bool:
        """Whether there was one."""
        kept = self._kept.pop(id, None)
        if kept is None:
            return False
        self._drop(kept.value)
        its = self._tenants[kept.tenant]
        del its.values[id]
        its.size_bytes -= kept.size_bytes
        self.size_bytes -= kept.size_bytes
        if not its.values:
            del self._tenants[kept.tenant]
        return True

    async def remove_expired(self) -> None:
        await self._remove_while(self._expired)

    async def _remove_while(self, next_one: Callable[[], Kept[Value] | None]) -> None:
        removed = 0
        while (kept := next_one()) is not None:
            self.remove(kept.id)
            removed += 1
            if removed % REMOVED_AT_ONCE == 0:
                await asyncio.sleep(0)  # requests are served between two steps

    def _expired(self) -> Kept[Value] | None:
        oldest = next(iter(self._kept.values()), None)
        return oldest if oldest is not None and oldest.expires_s <= self._clock() else None

    def _surplus(self, name: bytes) -> Kept[Value] | None:
        """The tenant's oldest value beyond its number; then the oldest of whichever tenant has most
        bytes, so that no tenant pushes out the values of another.
        """
        tenant = self._tenants.get(name)
        if tenant is None or len(tenant.values) <= self._most_of_tenant:
            if self.size_bytes <= self._most_bytes:
                return None
            tenant = max(self._tenants.values(), key=lambda one: one.size_bytes)
        return next(iter(tenant.values.values()))
