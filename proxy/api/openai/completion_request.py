"""POST /v1/completions: a checked body -> GenerationRequest. Called by `request_builder`."""

from __future__ import annotations

from secrets import token_hex
from typing import Any

from triton_openai.proxy.api.openai.requests.completion_body import CompletionBody
from triton_openai.proxy.domain.model import ModelCard
from triton_openai.proxy.domain.request import (
    GenerationRequest,
    Prompt,
    PromptBatch,
    TextPrompt,
    TokenPrompt,
)
from triton_openai.proxy.domain.request_limits import smaller

DEFAULT_TOKENS = 16  # from OpenAI's specification


def to_domain(body: CompletionBody, card: ModelCard, caller: str) -> GenerationRequest:
    """`card`: the card of the model that the body names."""
    return GenerationRequest(
        caller=caller,
        id=f"cmpl-{token_hex(16)}",
        prompt=_prompt(body.prompt, body.suffix),
        max_tokens=_token_limit(body, card),
        best_of=body.best_of,
        echoes_prompt=bool(body.echo),
        **body.shared(body.logprobs),
    )


def _token_limit(body: CompletionBody, card: ModelCard) -> int | None:
    """None lets the tokenizer apply the model's own default, cut to what the context has left."""
    if body.max_tokens is not None or card.facts.default_max_tokens is not None:
        return body.max_tokens
    return smaller(max(DEFAULT_TOKENS, body.min_tokens or 0), card.limits.max_tokens)


def _prompt(given: str | list[str] | list[int] | list[list[int]], suffix: str | None) -> Prompt:
    if isinstance(given, str) or isinstance(given[0], int):
        return _one_prompt(given, suffix)
    return PromptBatch(prompts=tuple(_one_prompt(one, suffix) for one in given))


def _one_prompt(given: Any, suffix: str | None) -> TextPrompt | TokenPrompt:
    if isinstance(given, str):
        return TextPrompt(text=given, suffix=suffix)
    return TokenPrompt(ids=tuple(given))
