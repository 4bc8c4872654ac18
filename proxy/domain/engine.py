"""The ports to whatever generates tokens: generating, and what is loaded and ready there."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection
from dataclasses import dataclass, replace
from typing import Protocol

from triton_openai.proxy.domain.constraint import Constraint
from triton_openai.proxy.domain.model import LoadedModel, ModelCard
from triton_openai.proxy.domain.output import TokenDelta
from triton_openai.proxy.domain.request import PromptLimit, Sampling
from triton_openai.proxy.domain.request_limits import smaller


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineRequest:
    """A request as an engine takes it: text or ids, no messages.

    `add_special_tokens`: the tokenizer adds its own BOS and EOS (chat templates write theirs).
    `wants_log_prob_ids`: log-probabilities tell the ids of their tokens. `plain_spans`: where
    `text` spells control tokens that are none, see domain.plain_spans. `token_cap`, `prompt_cap`:
    see GenerationRequest.
    """

    id: str
    model: ModelCard
    text: str | None = None
    token_ids: tuple[int, ...] | None = None
    add_special_tokens: bool = True
    max_tokens: int | None = None
    timeout_s: float
    sampling: Sampling
    constraint: Constraint | None = None
    prompt_limit: PromptLimit | None = None
    echoes_prompt: bool = False  # its tokens come first, with log-probabilities as the others
    wants_token_ids: bool = False
    wants_log_prob_ids: bool = False
    priority: int | None = None  # a higher one goes first
    cache_salt: str | None = None
    plain_spans: bytes = b""
    token_cap: int | None = None
    prompt_cap: int | None = None

    def continued(self, text: str, tokens: int, constraint: Constraint | None) -> EngineRequest:
        """The rest of an answer that goes on behind `text`, of which `tokens` were generated."""
        limit, cap, least = self.max_tokens, self.token_cap, self.sampling.min_tokens
        return replace(
            self,
            id=f"{self.id}-more",
            text=(self.text or "") + text,
            constraint=constraint,
            max_tokens=None if limit is None else max(limit - tokens, 1),
            token_cap=None if cap is None else max(cap - tokens, 1),
            prompt_cap=None,  # the caller's own prompt was let through
            sampling=replace(
                self.sampling, min_tokens=None if least is None else max(least - tokens, 0) or None
            ),
        )

    @property
    def asks_for(self) -> frozenset[str]:
        """The capabilities that a model must have to take it."""
        alternatives = self.sampling.top_log_probs
        given = {
            "log_probs": alternatives,
            "constraint": self.constraint,
            "prompt_limit": self.prompt_limit,
            "echo_prompt": self.echoes_prompt or None,
            "token_ids": self.wants_token_ids or None,
            "log_prob_ids": (self.wants_log_prob_ids and alternatives) or None,
            "priority": self.priority,
            "cache_salt": self.cache_salt,
            "lora": self.model.parent,
            "plain_spans": self.plain_spans or None,
            "limits": smaller(self.token_cap, self.prompt_cap),
        }
        asked = self.sampling.given | {name for name, value in given.items() if value is not None}
        return asked if alternatives else asked - {"top_log_probs"}


class Engine(Protocol):
    """One verb. Closing the generator early ends the generation in the engine.

    Entered before the first request, left after the last.
    """

    async def __aenter__(self) -> object: ...

    async def __aexit__(self, *exc_info: object) -> None: ...

    def generate(self, request: EngineRequest) -> AsyncGenerator[TokenDelta, None]:
        """Deltas up to the one with a finish reason.

        Raises:
            InvalidRequest: the tokenizer refused it.
            ModelUnavailable: the engine cannot be reached, or went away.
            DeadlineExceeded: `timeout_s` is over, and nobody has closed the deltas.
            EngineFailed: the engine gave up on this request.
        """
        ...


class NotReady(Exception):
    """Triton, a model or the contract is not as it must be.

    The message is for the log: it says which and why, and may name addresses. `category` is for
    everyone.
    """

    def __init__(self, message: str, category: str = "Triton or a model is not ready") -> None:
        super().__init__(message)
        self.category = category


class Catalog(Protocol):
    """What is loaded. Both raise NotReady."""

    async def load(self) -> tuple[LoadedModel, ...]:
        """Every model that can be served; at least one."""
        ...

    async def check_ready(self, models: Collection[str]) -> None:
        """Returns when the server and these models are ready."""
        ...
