"""A port: where it is kept what operators did that changes nothing in a store."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol


class AuditTrail(Protocol):
    async def note(
        self, action: str, object: str, *, actor: str, details: Mapping[str, Any]
    ) -> None:
        """Keeps one entry. details: JSON's values. Raises StoreUnavailable: it was not kept."""
        ...
