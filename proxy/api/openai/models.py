"""Model cards as GET /v1/models and /v1/models/{id} show them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from triton_openai.proxy.api.openai.requests.field_names import FIELD_NAMES
from triton_openai.proxy.domain.model import ModelCard
from triton_openai.proxy.domain.request_limits import smaller
from triton_openai.proxy.syntax import parsers

_NAMES = {**FIELD_NAMES, "constraint": "guided_decoding"}
_INNER = {"limits", "deadline", "plain_spans", "queue_time"}  # no parameters of the caller's


def model_list(cards: Iterable[ModelCard]) -> dict[str, Any]:
    return {"object": "list", "data": [model_body(card, card.name) for card in cards]}


def model_body(card: ModelCard, name: str) -> dict[str, Any]:
    """`name`: the one it was asked for by, which may be an alias."""
    families = parsers.families_of(card)
    return {
        "id": name,
        "object": "model",
        "created": card.facts.created,
        "owned_by": card.owned_by,
        "root": card.parent or card.name,
        "parent": card.parent,
        "context_length": card.facts.context_length,
        "max_model_len": card.facts.context_length,  # as vLLM, SGLang and trtllm-serve call it
        "max_output_tokens": smaller(card.facts.context_length, card.limits.max_tokens),
        "limits": asdict(card.limits),
        "tool_parser": families.tools,
        "reasoning_parser": families.reasoning,
        "capabilities": sorted(_NAMES.get(name, name) for name in card.capabilities - _INNER),
    }
