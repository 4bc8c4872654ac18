"""Bounds on how much one request may ask for.

Some bounds are on products: each number of the request is allowed, but all of them together would
cost too much. Called by the service, before anything is sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from proxy.domain.engine import EngineRequest
from proxy.domain.errors import InvalidRequest
from proxy.domain.model import ModelCard
from proxy.domain.request import GenerationRequest, TextPrompt, TokenPrompt
from proxy.domain.request_limits import smaller

ID_BYTES = 4
COPIED_BYTES = 16_000_000
LOG_PROBS = 250_000


def apply_model_limits(
    request: GenerationRequest, card: ModelCard, *, clamps: bool = False
) -> GenerationRequest:
    """Checks the operator's limits for this model, for every protocol.

    Returns the request with the limits that only Triton's tokenizer can check, as it alone counts
    a prompt's tokens. clamps: a `max_tokens` over the limit becomes the limit, and one over what
    the context leaves becomes that.

    Raises:
        InvalidRequest: the request asks for more than a limit allows.
    """
    limits = card.limits
    if clamps and limits.max_tokens is not None and (request.max_tokens or 0) > limits.max_tokens:
        request = replace(request, max_tokens=limits.max_tokens)
    for field, param, given, most in (
        ("n", "choices", request.choices, limits.n),
        ("best_of", "best_of", request.best_of, limits.best_of),
        ("max_tokens", "max_tokens", request.max_tokens, limits.max_tokens),
        ("min_tokens", "min_tokens", request.sampling.min_tokens, limits.max_tokens),
    ):
        if given is not None and most is not None and given > most:
            raise InvalidRequest(
                f"Invalid value for '{field}': {given}. This server allows at most {most} for the "
                f"model {card.name!r}.",
                param=param,
            )
    lowers = clamps and request.max_tokens is not None and "limits" in card.capabilities
    if not limits.need_the_tokenizer and not lowers:
        return request
    token_cap = smaller(limits.max_tokens, request.token_cap)
    if request.max_tokens is not None:
        token_cap = request.max_tokens if lowers else None
    return replace(request, token_cap=token_cap, prompt_cap=limits.prompt_tokens)


def check_copies(
    request: GenerationRequest, engine_requests: Sequence[EngineRequest], most: int = COPIED_BYTES
) -> None:
    """Checks a request of several choices. most: bytes of prompts and guides, counted each time
    that they are sent.

    Raises:
        InvalidRequest: prompt and guide, copied for each choice, are too large together.
    """
    copies = request.generations
    if copies == 1:
        return
    sampling, constraint = request.sampling, request.constraint
    ids = len(sampling.allowed_token_ids or ()) + 2 * len(sampling.logit_bias or ())
    left = most - ID_BYTES * ids * copies
    for each in engine_requests:
        sizes = ID_BYTES * len(each.token_ids or ()) + sum(len(one.base64) for one in each.images)
        left -= sizes * request.candidates
    prompts = [(each.text or "", request.candidates) for each in engine_requests]
    shared = [*(sampling.bad_words or ()), "" if constraint is None else constraint.text]
    if exceed(left, [*prompts, *((text, copies) for text in shared)]):
        raise InvalidRequest(
            f"Each of the {copies} choices is sent its prompt and its guide, and at most {most} "
            "bytes are allowed. Ask for fewer choices.",
            param="choices",
        )


def exceed(most: int, copied: Iterable[tuple[str, int]]) -> bool:
    """Whether texts, each with the number of its copies, have more bytes than `most` together.

    Costs less than what it bounds: a text that is too long by its characters is not encoded.
    """
    for text, copies in copied:
        if len(text) * copies <= most:
            most -= (len(text) if text.isascii() else len(text.encode())) * copies
        else:
            most = -1
        if most < 0:
            return True
    return most < 0


def limit_log_probs(
    request: GenerationRequest, card: ModelCard, entries: int = LOG_PROBS
) -> GenerationRequest:
    """Bounds the log-probabilities of a request that is not streamed.

    A request without `max_tokens` is returned with a value only if the model's default would
    be too large. entries: each token counts, and each of its alternatives.

    Raises:
        InvalidRequest: choices x tokens x log-probabilities are more than is allowed.
    """
    top = request.sampling.top_log_probs
    if top is None:
        return request
    each_token = request.generations * (1 + top)
    most = max(entries // each_token - _echoed_tokens(request, card), 0)
    facts = card.facts
    if request.max_tokens is None:
        default = facts.default_max_tokens or facts.context_length
        usual = smaller(default, request.token_cap) or default
        return request if usual <= most else replace(request, max_tokens=max(most, 1))
    if min(request.max_tokens, facts.context_length) > most:
        raise InvalidRequest(
            f"choices x tokens x (1 + top_logprobs) is more than {entries}, which is what the "
            f"server holds for one answer: 'max_tokens' can be {most} here, and more in a stream.",
            param="max_tokens",
        )
    return request


def _echoed_tokens(request: GenerationRequest, card: ModelCard) -> int:
    """An upper bound on the echoed tokens of the longest prompt: a token has at least one byte.
    Chats are never echoed.
    """
    if not request.echoes_prompt:
        return 0
    most = 0
    for prompt in request.prompts:
        if isinstance(prompt, TextPrompt):
            is_short = len(prompt.text) < card.facts.context_length
            most = max(most, len(prompt.text.encode() if is_short else prompt.text) + 1)
        elif isinstance(prompt, TokenPrompt):
            most = max(most, len(prompt.ids))
    return min(most, card.facts.context_length)
