"""Holds one request to the operator's limits. Called by the service, for every protocol."""

from __future__ import annotations

from dataclasses import replace

from triton_openai.proxy.domain.errors import ErrorCode, InvalidRequest
from triton_openai.proxy.domain.model import ModelCard
from triton_openai.proxy.domain.request import GenerationRequest


def capped(request: GenerationRequest, card: ModelCard) -> GenerationRequest:
    """The request, with the limits that only Triton's tokenizer can hold it to.

    Raises:
        InvalidRequest: it asks for more than the model's limits allow.
    """
    limits = card.limits
    _check("n", request.choices, limits.n, card, param="choices")
    _check("best_of", request.best_of, limits.best_of, card)
    _check("max_tokens", request.max_tokens, limits.max_tokens, card)
    _check("min_tokens", request.sampling.min_tokens, limits.max_tokens, card)
    if not limits.are_the_tokenizers:
        return request
    token_cap = limits.max_tokens if request.max_tokens is None else None
    return replace(request, token_cap=token_cap, prompt_cap=limits.prompt_tokens)


def _check(
    field: str, given: int | None, most: int | None, card: ModelCard, *, param: str | None = None
) -> None:
    if given is not None and most is not None and given > most:
        raise InvalidRequest(
            f"Invalid value for '{field}': {given}. This server allows at most {most} for the "
            f"model {card.name!r}.",
            code=ErrorCode.INVALID_PARAMETER,
            param=param or field,
        )
