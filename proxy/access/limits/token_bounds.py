"""How many tokens a request can cost at most, before the engine has counted any.

Used by `request_limiter`.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from itertools import repeat

from proxy.domain.engine import EngineRequest
from proxy.domain.model import ModelCard
from proxy.domain.request import GenerationRequest
from proxy.domain.request_limits import smaller

# BOS, EOS, the space that some tokenizers put in front, and one to spare
ADDED_TOKENS = 4
# Characters of one request whose growth is looked up, which takes 3 ms for so many.
COUNTED_CHARACTERS = 32_768
# Bytes that a character can gain when a tokenizer normalizes it (NFKC at most). Normalizing the
# whole text to learn its size would take quadratic time for a long run of combining marks.
GROWTH = {
    char: grown
    for char in map(chr, (*range(0x80, 0xD800), *range(0xE000, 0x20000)))
    if unicodedata.decomposition(char)
    and (grown := len(unicodedata.normalize("NFKD", char).encode()) - len(char.encode())) > 0
}
MOST_TIMES = 11  # that a character's bytes can become: U+FDFA


def prompt_bound(request: EngineRequest, *, is_counted: bool = True) -> int:
    """Each token has at least one byte of the text, as the tokenizer may have normalized it.

    is_counted: the text is short enough to look at each character.
    """
    context = request.model.facts.context_length
    limit = None if request.prompt_limit is None else request.prompt_limit.tokens
    most = context if limit is None else min(context, limit)
    if request.token_ids is not None:
        return min(len(request.token_ids) + ADDED_TOKENS, most)
    first = _text_bound(request.text or "", most, is_counted=is_counted)
    if request.pair is None:
        return first
    return first + _text_bound(request.pair, most, is_counted=is_counted)


def _text_bound(text: str, most: int, *, is_counted: bool) -> int:
    if len(text) >= most:
        return most
    return min(_normalized_bytes(text, is_counted=is_counted) + ADDED_TOKENS, most)


def output_bound(request: GenerationRequest, card: ModelCard) -> int:
    """Of all choices together."""
    context, given = card.facts.context_length, request.max_tokens
    if given is None:
        default = card.facts.default_max_tokens
        given = smaller(smaller(default, request.token_cap), context)
    return min(given or 0, context) * request.generations


def prompt_bounds(
    requests: Sequence[EngineRequest], thinking_budget: int | None = None
) -> dict[str, int]:
    """By engine request. A model that has thought enough is sent its thoughts as a prompt."""
    texts = sum(len(each.text or "") + len(each.pair or "") for each in requests)
    is_counted = texts <= COUNTED_CHARACTERS
    return {
        each.id: prompt_bound(each, is_counted=is_counted) + (thinking_budget or 0)
        for each in requests
    }


def _normalized_bytes(text: str, *, is_counted: bool) -> int:
    if text.isascii():
        return len(text)
    size = len(text.encode())
    return size + sum(map(GROWTH.get, text, repeat(0))) if is_counted else size * MOST_TIMES
