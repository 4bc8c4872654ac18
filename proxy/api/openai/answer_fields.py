"""What answers to chats and completions share: the fields that every object of one response begins
with, token usage, and how tokens' ids and log-probabilities get into them.
"""

from __future__ import annotations

import hashlib
import time
from abc import ABC, abstractmethod
from dataclasses import replace
from functools import lru_cache
from typing import Any

from proxy.api.openai.generation_body import GenerationBody
from proxy.api.openai.log_prob_renderer import LogProbRenderer
from proxy.domain.completion import Answer, Completion
from proxy.domain.events import AnyDelta, Finished, OutputEvent
from proxy.domain.model import ModelCard
from proxy.domain.output import Usage
from proxy.domain.request import GenerationRequest

# Audio and predictions are not supported, so these are 0. Clients with strict types (MacPaw's for
# Swift, older ones for PHP) lose the whole block, or fail, if one of these fields is missing.
NO_AUDIO = {"audio_tokens": 0}
NOT_PREDICTED = {"accepted_prediction_tokens": 0, "rejected_prediction_tokens": 0}


def usage_body(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.total_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens, **NO_AUDIO},
        "completion_tokens_details": {
            "reasoning_tokens": usage.reasoning_tokens,
            **NO_AUDIO,
            **NOT_PREDICTED,
        },
    }


class StreamUsage:
    """Adds usage to the chunks of a stream, and makes the usage chunk at its end."""

    def __init__(self, body: GenerationBody, choices: int) -> None:
        self._has_last_chunk = body.includes_usage
        self._is_continuous = body.has_continuous_usage
        self._unfinished = choices
        self._by_choice: dict[int, Usage] = {}

    @property
    def head(self) -> dict[str, Any]:
        """The usage field that every chunk of the stream has."""
        return {"usage": None} if self._has_last_chunk or self._is_continuous else {}

    def chunk(
        self, head: dict[str, Any], event: OutputEvent, choice: dict[str, Any]
    ) -> dict[str, Any]:
        """A choice's chunk, with usage so far if the request wants continuous usage."""
        chunk = {**head, "choices": [choice]}
        if self._is_continuous:
            if event.usage is not None:
                self._by_choice[event.choice] = event.usage
            chunk["usage"] = usage_body(self._sum())
        return chunk

    def opening(
        self, head: dict[str, Any], event: OutputEvent, choice: dict[str, Any]
    ) -> dict[str, Any]:
        """A chunk before the choice has any text: its usage counts only the prompt."""
        usage = event.usage
        if usage is not None:
            event = replace(event, usage=replace(usage, completion_tokens=0, reasoning_tokens=0))
        return self.chunk(head, event, choice)

    def last_chunks(self, head: dict[str, Any], event: Finished) -> list[dict[str, Any]]:
        """The usage chunk, once the last choice has finished and if the request wants it."""
        self._by_choice[event.choice] = event.usage
        self._unfinished -= 1
        if self._unfinished or not self._has_last_chunk:
            return []
        return [{**head, "choices": [], "usage": usage_body(self._sum())}]

    def _sum(self) -> Usage:
        return sum(self._by_choice.values(), start=Usage())


def response_head(
    body: GenerationBody, request: GenerationRequest, kind: str, fingerprint: str | None
) -> dict[str, Any]:
    """The fields. The id is the caller's `request_id` with our prefix, else our own unique id."""
    prefix = request.id.partition("-")[0]
    fields = {
        "id": request.id if body.request_id is None else f"{prefix}-{body.request_id}",
        "object": kind,
        "created": int(time.time()),
        "model": request.model,
        "system_fingerprint": fingerprint,
    }
    return fields if body.service_tier is None else {**fields, "service_tier": "default"}


@lru_cache(maxsize=64)
def system_fingerprint(card: ModelCard) -> str:
    """A text that changes when the model is rebuilt: equal seeds may then give other answers."""
    built = f"{card.name} {card.facts.created} {card.facts.engine_model}"
    return f"fp_{hashlib.sha256(built.encode()).hexdigest()[:10]}"


class AnswerRenderer(ABC):
    """The part of exchange.Renderer that is the same for chats and completions."""

    def __init__(
        self,
        body: GenerationBody,
        request: GenerationRequest,
        *,
        kind: str,
        fingerprint: str | None,
        log_probs: LogProbRenderer | None,
    ) -> None:
        """kind: the `object` of a whole answer. log_probs: None if the request wants none."""
        self._log_probs = log_probs
        self._returns_ids = bool(body.return_token_ids)
        self._choices = request.choices * len(request.prompts)
        self._usage = StreamUsage(body, self._choices)
        self._head = response_head(body, request, kind, fingerprint)

    @abstractmethod
    def _whole(self, index: int, answer: Answer) -> dict[str, Any]:
        """A choice of a whole answer, without log-probabilities and ids."""

    def kept(self, event: OutputEvent) -> OutputEvent:
        return event if self._log_probs is None else self._log_probs.kept(event)

    def full(self, completion: Completion) -> dict[str, Any]:
        choices = []
        for index, answer in enumerate(completion.choices):
            choice = self._whole(index, answer)
            choice["logprobs"] = self._log_probs and self._log_probs.of_choice(index)
            if self._returns_ids:
                choice["token_ids"] = list(answer.token_ids)
            choices.append(choice)
        return {**self._head, "choices": choices, "usage": usage_body(completion.usage)}

    def _with_tokens(self, choice: dict[str, Any], part: AnyDelta) -> dict[str, Any]:
        if self._log_probs is not None and part.log_probs:
            choice["logprobs"] = self._log_probs.rendered(part.log_probs)
        if self._returns_ids:
            choice["token_ids"] = list(part.token_ids)
        return choice
