"""What every object of one response begins with."""

from __future__ import annotations

import hashlib
import time
from functools import lru_cache
from typing import Any

from triton_openai.proxy.api.openai.requests.bodies import GenerationBody
from triton_openai.proxy.domain.model import ModelCard
from triton_openai.proxy.domain.request import GenerationRequest


def head(
    body: GenerationBody, request: GenerationRequest, kind: str, fingerprint: str | None
) -> dict[str, Any]:
    """`request_id` is in the id, which stays of the caller's making: our own is unique."""
    prefix = request.id.partition("-")[0]
    begun = {
        "id": request.id if body.request_id is None else f"{prefix}-{body.request_id}",
        "object": kind,
        "created": int(time.time()),
        "model": request.model,
        "system_fingerprint": fingerprint,
    }
    return begun if body.service_tier is None else {**begun, "service_tier": "default"}


@lru_cache(maxsize=64)
def fingerprint_of(card: ModelCard) -> str:
    """Changes when the model is built anew: equal seeds then no longer mean equal answers."""
    built = f"{card.name} {card.facts.created} {card.facts.engine_model}"
    return f"fp_{hashlib.sha256(built.encode()).hexdigest()[:10]}"
