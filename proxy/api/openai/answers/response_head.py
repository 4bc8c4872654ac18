"""The fields that every object of one response begins with. Used by the renderers."""

from __future__ import annotations

import hashlib
import time
from functools import lru_cache
from typing import Any

from proxy.api.openai.requests.generation_body import GenerationBody
from proxy.domain.model import ModelCard
from proxy.domain.request import GenerationRequest


def response_head(
    body: GenerationBody, request: GenerationRequest, kind: str, fingerprint: str | None
) -> dict[str, Any]:
    """The fields. The id is the caller's `request_id` with our prefix, else our own unique id."""
    prefix = request.id.partition("-")[0]
    fields = {
        "id": request.id if body.request_id is None else f"{prefix}-{body.request_id}",
        "object": kind,
        "created": int(time.time()),
        "model": request.model,
        "system_fingerprint": fingerprint,
    }
    return fields if body.service_tier is None else {**fields, "service_tier": "default"}


@lru_cache(maxsize=64)
def system_fingerprint(card: ModelCard) -> str:
    """A text that changes when the model is rebuilt: equal seeds may then give other answers."""
    built = f"{card.name} {card.facts.created} {card.facts.engine_model}"
    return f"fp_{hashlib.sha256(built.encode()).hexdigest()[:10]}"
