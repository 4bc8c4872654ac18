"""What the next engine is sent for an answer that another engine has begun. Pure.

An engine with the capability `resume` continues exactly. For others the ids of the answer so far
become the end of the prompt, which is exact as long as an engine keeps nothing else of an answer.
A model of others takes text only: the text so far becomes the end of the prompt, which is exact if
the text has these ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum

from proxy.domain.engine import EngineRequest
from proxy.domain.output import FinishReason
from proxy.domain.request import Sampling
from proxy.domain.request_limits import smaller

SCRIPTED = "scripted"


class By(str, Enum):
    """What the next engine continues from. TEXT: its tokens may be others."""

    IDS = "ids"
    TEXT = "text"


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why an answer cannot be continued exactly: a part of a sentence, after "because".

    is_final: no setting allows it, since the rest would not even be an answer to the request.
    """

    reason: str
    is_final: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ContinuationLimits:
    """most: how often one stream is continued after losses; 0: one that has begun never is.

    allows_inexact: the rest of an answer may differ from the one that would have come. within_s:
    how long it waits for an endpoint.
    """

    most: int = 64
    allows_inexact: bool = False
    within_s: float = 60.0

    def allow(self, obstacle: Obstacle | None) -> bool:
        return obstacle is None or (self.allows_inexact and not obstacle.is_final)


def obstacle(request: EngineRequest) -> Obstacle | None:
    """None: any engine of the request's model can continue its answer exactly.

    An answer that is sampled without a seed counts as exact: its rest is drawn from the same
    distribution, and nobody can ask for the one that was lost.
    """
    card, sampling = request.model, request.sampling
    if card.facts.adopted is not None:
        if (by := way_of(request)) is None:
            is_off = card.facts.adopted.continues == "none"
            reason = "the server is configured so" if is_off else "the model reports no token ids"
            return Obstacle(reason, is_final=True)
        if request.constraint is not None:
            return Obstacle("the engine cannot restore the state of a guide", is_final=True)
        return _obstacle_of_sampling(sampling) if by is By.IDS else None
    if "token_ids" not in card.capabilities:
        return Obstacle("the model does not report token ids", is_final=True)
    if "resume" in card.capabilities:
        return None
    if card.facts.runtime == SCRIPTED:
        return Obstacle("this scripted engine can only begin its script again", is_final=True)
    if request.constraint is not None:
        return Obstacle("the engine cannot restore the state of a guide", is_final=True)
    if request.prompt_limit is not None:
        return Obstacle("the prompt may have been truncated", is_final=True)
    return _obstacle_of_sampling(sampling)


def way_of(request: EngineRequest) -> By | None:
    """None: a model of others, whose answers are not continued."""
    card = request.model
    adopted = card.facts.adopted
    if adopted is None:
        return By.IDS
    if adopted.continues == "text":
        return By.TEXT
    reports_ids = "token_ids" in card.capabilities and adopted.tokenizer is not None
    return By.IDS if adopted.continues == "ids" and reports_ids else None


def said_so_far(
    request: EngineRequest, text: str, tokens: int, ids: Sequence[int]
) -> EngineRequest:
    """The rest of an answer of a model of others that has said this. ids: those that the text must
    have; none where it may have others.
    """
    least = request.sampling.min_tokens
    return replace(
        request,
        said=text,
        said_tokens=tokens,
        generated=tuple(ids),
        prompt_cap=None,  # the caller's own prompt was let through
        sampling=replace(
            request.sampling,
            min_tokens=None if least is None else max(least - tokens, 0) or None,
        ),
    )


def _obstacle_of_sampling(sampling: Sampling) -> Obstacle | None:
    is_greedy = sampling.temperature == 0 or sampling.top_k == 1
    if sampling.seed is not None and not is_greedy:
        return Obstacle("the engine cannot restore the random numbers of a seed")
    if sampling.presence_penalty or sampling.frequency_penalty:
        return Obstacle("the engine counts presence and frequency penalties from the answer")
    if sampling.bad_words:
        return Obstacle("a bad word may begin before the place where the answer was cut")
    return None


def continued(request: EngineRequest, ids: Sequence[int], prompt_tokens: int) -> EngineRequest:
    """The rest of an answer whose tokens so far are `ids`; without any, all of it.

    The prompt's own tokens, where they are echoed, are not part of `ids`, and all of them came.
    """
    if not ids:
        return request
    if "resume" in request.model.capabilities:
        return replace(request, generated=tuple(ids), echoes_prompt=False)
    sampling, count = request.sampling, len(ids)
    least, limit = sampling.min_tokens, _token_limit(request, prompt_tokens)
    return replace(
        request,
        token_ids=(*(request.token_ids or ()), *ids),
        max_tokens=max(limit - count, 1),
        token_cap=None,
        prompt_cap=None,  # the caller's own prompt was let through
        echoes_prompt=False,
        sampling=replace(
            sampling, min_tokens=None if least is None else max(least - count, 0) or None
        ),
    )


def known_end(
    request: EngineRequest, ids: Sequence[int], prompt_tokens: int
) -> FinishReason | None:
    """How an answer with these tokens has ended, if it has; the engine was lost before it said so.

    None for engines with `resume`, which know it themselves.
    """
    if not ids or "resume" in request.model.capabilities:
        return None
    sampling = request.sampling
    ends = set(sampling.stop_token_ids or ())
    if not sampling.ignore_eos:
        ends.update(request.model.facts.end_ids)
    if ids[-1] in ends and len(ids) >= (sampling.min_tokens or 0):
        return FinishReason.STOP
    is_cut = len(ids) >= _token_limit(request, prompt_tokens)
    return FinishReason.LENGTH if is_cut else None


def _token_limit(request: EngineRequest, prompt_tokens: int) -> int:
    """Of the whole answer. The tokenizer refuses a `max_tokens` for which the context is short."""
    facts = request.model.facts
    limit = smaller(facts.default_max_tokens, request.token_cap)
    if request.max_tokens is not None:
        limit = request.max_tokens
    room = facts.context_length - prompt_tokens
    return room if limit is None else min(limit, room)
