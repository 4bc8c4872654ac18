"""Bounds on how much one request may ask for.

Some bounds are on products: each number of the request is allowed, but all of them together would
cost too much. Called by the service, before anything is sent.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from typing_extensions import assert_never

from proxy.domain.errors import ErrorCode, InvalidRequest
from proxy.domain.model import ModelCard
from proxy.domain.request import (
    ChatPrompt,
    GenerationRequest,
    SinglePrompt,
    TextPrompt,
    TokenPrompt,
)
from proxy.domain.request_limits import smaller

ID_BYTES = 4
ALTERNATIVES_A_PERMIT = 4


def permits_needed(request: GenerationRequest) -> int:
    """How many permits the request takes: one for each choice of each prompt.

    Choices with `top_logprobs` take more, because their tokens cost the proxy more: with twenty
    alternatives a choice takes six permits.
    """
    top = request.sampling.top_log_probs or 0
    return request.generations * (1 + -(-top // ALTERNATIVES_A_PERMIT))


def apply_model_limits(request: GenerationRequest, card: ModelCard) -> GenerationRequest:
    """Checks the operator's limits for this model, for every protocol.

    Returns the request with the limits that only Triton's tokenizer can check, as it alone counts
    a prompt's tokens.

    Raises:
        InvalidRequest: the request asks for more than a limit allows.
    """
    limits = card.limits
    _check_limit("n", request.choices, limits.n, card, param="choices")
    _check_limit("best_of", request.best_of, limits.best_of, card)
    _check_limit("max_tokens", request.max_tokens, limits.max_tokens, card)
    _check_limit("min_tokens", request.sampling.min_tokens, limits.max_tokens, card)
    if not limits.need_the_tokenizer:
        return request
    token_cap = smaller(limits.max_tokens, request.token_cap)
    if request.max_tokens is not None:
        token_cap = None
    return replace(request, token_cap=token_cap, prompt_cap=limits.prompt_tokens)


def _check_limit(
    field: str, given: int | None, most: int | None, card: ModelCard, *, param: str | None = None
) -> None:
    if given is not None and most is not None and given > most:
        raise InvalidRequest(
            f"Invalid value for '{field}': {given}. This server allows at most {most} for the "
            f"model {card.name!r}.",
            code=ErrorCode.INVALID_PARAMETER,
            param=param or field,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestSizeLimits:
    """Limits on products of a request's numbers.

    copied_bytes: bytes of prompts and guides, counted each time that they are sent. log_probs:
    entries in an answer that is not streamed; each token counts, and each of its alternatives.
    """

    copied_bytes: int = 16_000_000
    log_probs: int = 250_000

    def check_copies(self, request: GenerationRequest, texts: Iterable[str | None]) -> None:
        """Checks a request of several choices. `texts`: of each prompt, None if it is token ids.

        Raises:
            InvalidRequest: prompt and guide, copied for each choice, are too large together.
        """
        copies = request.generations
        if copies == 1:
            return
        prompts = sum(0 if text is None else len(text.encode()) for text in texts)
        prompts += sum(
            ID_BYTES * len(prompt.ids)
            for prompt in request.prompts
            if isinstance(prompt, TokenPrompt)
        )
        copied = prompts * request.candidates + _parameter_bytes(request) * copies
        if copied > self.copied_bytes:
            raise InvalidRequest(
                f"Each of the {copies} choices is sent its prompt and its guide, which makes "
                f"{copied} bytes: at most {self.copied_bytes} are allowed. Ask for fewer choices.",
                code=ErrorCode.INVALID_PARAMETER,
                param="choices",
            )

    def limit_log_probs(self, request: GenerationRequest, card: ModelCard) -> GenerationRequest:
        """Bounds the log-probabilities of a request that is not streamed.

        A request without `max_tokens` is returned with a value only if the model's default would
        be too large.

        Raises:
            InvalidRequest: choices x tokens x log-probabilities are more than is allowed.
        """
        top = request.sampling.top_log_probs
        if top is None:
            return request
        each_token = request.generations * (1 + top)
        most = max(self.log_probs // each_token - _echoed_tokens(request, card), 0)
        facts = card.facts
        if request.max_tokens is None:
            default = facts.default_max_tokens or facts.context_length
            usual = smaller(default, request.token_cap) or default
            return request if usual <= most else replace(request, max_tokens=max(most, 1))
        if min(request.max_tokens, facts.context_length) > most:
            raise InvalidRequest(
                f"choices x tokens x (1 + top_logprobs) is more than {self.log_probs}, which is "
                "what the server holds for one answer. Use 'stream', or set 'max_tokens' to "
                f"{most} or less.",
                code=ErrorCode.INVALID_PARAMETER,
                param="max_tokens",
            )
        return request


def _echoed_tokens(request: GenerationRequest, card: ModelCard) -> int:
    """An upper bound on the echoed tokens of the longest prompt: a token has at least one byte."""
    if not request.echoes_prompt:
        return 0
    return min(max(map(_most_tokens, request.prompts)), card.facts.context_length)


def _most_tokens(prompt: SinglePrompt) -> int:
    match prompt:
        case TextPrompt():
            return len(prompt.text.encode()) + 1
        case TokenPrompt():
            return len(prompt.ids)
        case ChatPrompt():
            return 0  # chats are never echoed
        case _:
            assert_never(prompt)


def _parameter_bytes(request: GenerationRequest) -> int:
    """Bytes of the parameters that are sent with each choice and may be large."""
    sampling, constraint = request.sampling, request.constraint
    ids = len(sampling.allowed_token_ids or ()) + 2 * len(sampling.logit_bias or ())
    words = sum(len(word.encode()) for word in sampling.bad_words or ())
    return ID_BYTES * ids + words + (0 if constraint is None else len(constraint.text.encode()))
