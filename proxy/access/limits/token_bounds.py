"""How many tokens a request can cost at most, before the engine has counted any.

Used by `request_limiter`.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

from triton_openai.proxy.domain.engine import EngineRequest
from triton_openai.proxy.domain.model import ModelCard
from triton_openai.proxy.domain.request import GenerationRequest
from triton_openai.proxy.domain.request_limits import smaller

# BOS, EOS, the space that some tokenizers put in front, and one to spare
ADDED_TOKENS = 4


def prompt_bound(request: EngineRequest) -> int:
    """Each token has at least one byte of the text, as the tokenizer may have normalized it."""
    context = request.model.facts.context_length
    if request.token_ids is not None:
        bound = len(request.token_ids)
    else:
        bound = _normalized_bytes(request.text or "")
    limit = None if request.prompt_limit is None else request.prompt_limit.tokens
    return min(bound + ADDED_TOKENS, context, context if limit is None else limit)


def output_bound(request: GenerationRequest, card: ModelCard) -> int:
    """Of all choices together."""
    context, given = card.facts.context_length, request.max_tokens
    if given is None:
        default = card.facts.default_max_tokens
        given = smaller(smaller(default, request.token_cap), context)
    return min(given or 0, context) * request.generations


def prompt_bounds(
    requests: Iterable[EngineRequest], thinking_budget: int | None = None
) -> dict[str, int]:
    """By engine request. A model that has thought enough is sent its thoughts as a prompt."""
    return {each.id: prompt_bound(each) + (thinking_budget or 0) for each in requests}


def _normalized_bytes(text: str) -> int:
    if text.isascii():
        return len(text)
    size = len(text.encode())
    if unicodedata.is_normalized("NFKC", text):
        return size
    return max(size, len(unicodedata.normalize("NFKC", text).encode()))
