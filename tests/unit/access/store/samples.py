"""What tests of the store put into it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timezone

from proxy.access.store.store import Store
from proxy.domain.identity import Limits, ModelPatterns, Scope
from proxy.domain.usage import UsageRow

PEPPER = b"a pepper of the tests, thirty-two bytes long"
ACTOR = "key:tester"
LIMITS = Limits(requests_per_second=2.5, burst=4, tokens_per_day=1000, monthly_budget=9.5)
KEY = {
    "name": "batch jobs",
    "scopes": frozenset({Scope.CHAT, Scope.MODELS}),
    "models": ModelPatterns(patterns=("llama-*", "demo")),
    "limits": LIMITS,
}


@asynccontextmanager
async def opened(
    url: str, pepper: bytes = PEPPER, earlier: Sequence[bytes] = ()
) -> AsyncIterator[Store]:
    """A store that is prepared, and writes nothing by itself."""
    store = Store(url, pepper, earlier)
    try:
        await store.prepare()
        yield store
    finally:
        await store.close()


def used(**changes: object) -> UsageRow:
    """What one request used."""
    row: dict[str, object] = {
        "tenant": "acme",
        "key_id": "k1",
        "model": "demo",
        "at": datetime(2026, 3, 1, 23, 59, 59, tzinfo=timezone.utc),
        "requests": 1,
        "errors": 0,
        "prompt_tokens": 10,
        "cached_tokens": 4,
        "output_tokens": 7,
        "reasoning_tokens": 3,
        "queue_s": 0.25,
        "cost": 0.5,
    }
    return UsageRow(**{**row, **changes})  # type: ignore[arg-type]
