"""How many tokens a request can cost at most, before the engine has counted any.

Used by `request_limiter`.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from itertools import repeat

from proxy.domain.engine import EngineRequest
from proxy.domain.model import ModelCard
from proxy.domain.request import GenerationRequest, TextPrompt, TokenPrompt
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
    known = dict[str, int]()  # a query is sent with each document, and looked at once

    def bound(given: str | Sequence[int] | None) -> int:
        if given is None or len(given) >= most:
            return 0 if given is None else most
        if not isinstance(given, str):
            return min(len(given) + ADDED_TOKENS, most)
        if given not in known:
            size = _normalized_bytes(given, is_counted=is_counted)
            known[given] = min(size + ADDED_TOKENS, most)
        return known[given]

    if not request.batch:
        return bound(request.text or "" if request.token_ids is None else request.token_ids)
    return sum(
        bound(each.ids) if isinstance(each, TokenPrompt) else bound(each.text) + bound(each.pair)
        for each in request.batch
    )


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
    texts = sum(map(_characters, requests))
    is_counted = texts <= COUNTED_CHARACTERS
    return {
        each.id: prompt_bound(each, is_counted=is_counted) + (thinking_budget or 0)
        for each in requests
    }


def _characters(request: EngineRequest) -> int:
    if not request.batch:
        return len(request.text or "")
    texts = (each for each in request.batch if isinstance(each, TextPrompt))
    return sum(len(each.text) + len(each.pair or "") for each in texts)


def _normalized_bytes(text: str, *, is_counted: bool) -> int:
    if text.isascii():
        return len(text)
    size = len(text.encode())
    return size + sum(map(GROWTH.get, text, repeat(0))) if is_counted else size * MOST_TIMES
