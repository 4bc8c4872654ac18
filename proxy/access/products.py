"""Bounds on products of a caller's numbers: each factor is allowed, and all of them are too much.

Called by the service, before anything is sent.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from typing_extensions import assert_never

from triton_openai.proxy.domain.errors import ErrorCode, InvalidRequest
from triton_openai.proxy.domain.model import ModelCard
from triton_openai.proxy.domain.request import (
    ChatPrompt,
    GenerationRequest,
    SinglePrompt,
    TextPrompt,
    TokenPrompt,
)
from triton_openai.proxy.domain.request_limits import smaller

ID_BYTES = 4
ALTERNATIVES_A_PERMIT = 4


def permits(request: GenerationRequest) -> int:
    """How many generations the request counts as: each choice of each prompt.

    One with alternatives counts for more, as its tokens cost the proxy more: with twenty of them
    six times as much.
    """
    top = request.sampling.top_log_probs or 0
    return request.generations * (1 + -(-top // ALTERNATIVES_A_PERMIT))


@dataclass(frozen=True, slots=True, kw_only=True)
class ProductLimits:
    """Limits of one request.

    copied_bytes: prompts and guides, each as often as it is sent. log_probs: of an answer that is
    not streamed; each token's own and its alternatives.
    """

    copied_bytes: int = 16_000_000
    log_probs: int = 250_000

    def check_copies(self, request: GenerationRequest, texts: Iterable[str | None]) -> None:
        """`texts`: of the prompts, None for one of ids.

        Raises:
            InvalidRequest: its choices copy more than is allowed.
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
        copied = prompts * request.candidates + _bytes_beside(request) * copies
        if copied > self.copied_bytes:
            raise InvalidRequest(
                f"Each of the {copies} choices is sent its prompt and its guide, which makes "
                f"{copied} bytes: at most {self.copied_bytes} are allowed. Ask for fewer choices.",
                code=ErrorCode.INVALID_PARAMETER,
                param="choices",
            )

    def bounded_log_probs(self, request: GenerationRequest, card: ModelCard) -> GenerationRequest:
        """The request, which is not streamed; without `max_tokens` it gets what is allowed.

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
    """The longest prompt's, at most: a token has a byte at least."""
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
            return 0  # no chat is echoed
        case _:
            assert_never(prompt)


def _bytes_beside(request: GenerationRequest) -> int:
    """What else goes with each choice, where it may be large."""
    sampling, constraint = request.sampling, request.constraint
    ids = len(sampling.allowed_token_ids or ()) + 2 * len(sampling.logit_bias or ())
    words = sum(len(word.encode()) for word in sampling.bad_words or ())
    return ID_BYTES * ids + words + (0 if constraint is None else len(constraint.text.encode()))
