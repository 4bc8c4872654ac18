"""The ports to whatever generates tokens: generating, and what is loaded and ready there."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from proxy.domain.constraint import Constraint
from proxy.domain.image import Image
from proxy.domain.interrupt import Interrupt
from proxy.domain.model import CAPABILITIES, LoadedModel, ModelCard
from proxy.domain.output import TokenDelta
from proxy.domain.record import Stage
from proxy.domain.request import PromptLimit, Sampling, TextPrompt, TokenPrompt
from proxy.domain.request_limits import smaller

HIGHEST_PRIORITY = 2**31 - 1
LOWEST_PRIORITY = -HIGHEST_PRIORITY


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineRequest:
    """A request as an engine takes it: text or ids, no messages.

    `add_special_tokens`: the tokenizer adds its own BOS and EOS (chat templates write theirs).
    `wants_log_prob_ids`: log-probabilities have the ids of their tokens. `plain_spans`: where
    `text` spells control tokens that are plain text, see domain.plain_spans. `token_cap`,
    `prompt_cap`: see GenerationRequest. `keeps_ids`: deltas have ids where the model can report
    them, so that another engine can continue the answer; unlike `wants_token_ids`, a model that
    cannot report them still takes the request.
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
    shows_specials: bool = False  # the text of special tokens belongs to the answer
    includes_stop: bool = False  # so does that of a stop token
    keeps_ids: bool = False
    wants_log_prob_ids: bool = False
    priority: int | None = None  # a higher one goes first
    cache_salt: str | None = None
    reads_cache: bool = True  # False: no cached prefix, of an engine that takes no salt
    plain_spans: bytes = b""
    images: tuple[Image, ...] = ()  # in the order of their places in `text`; none has a `url`
    token_cap: int | None = None
    prompt_cap: int | None = None
    avoids: frozenset[str] = frozenset()  # endpoints that were lost with it
    generated: tuple[int, ...] = ()  # ids of its answer that another stream has given already
    said: str | None = None  # the text of that answer, for a model that takes text only
    said_tokens: int = 0  # as they were counted: where nobody has its tokenizer
    interrupt: Interrupt | None = field(default=None, compare=False)
    embeds: int | None = None  # instead of generating: so many dimensions, 0 for the model's own
    pair: str | None = None  # the text that is scored with `text`
    batch: tuple[TextPrompt | TokenPrompt, ...] = ()  # all inputs that are embedded
    stage: Stage | None = field(default=None, compare=False)  # of the request's record

    def continued(self, text: str, tokens: int, constraint: Constraint | None) -> EngineRequest:
        """Asks for the rest of an answer that has `text`, for which `tokens` were generated."""
        limit, cap, least = self.max_tokens, self.token_cap, self.sampling.min_tokens
        return replace(
            self,
            id=f"{self.id}-more",
            text=(self.text or "") + text,
            constraint=constraint,
            max_tokens=None if limit is None else max(limit - tokens, 1),
            token_cap=None if cap is None else max(cap - tokens, 1),
            prompt_cap=None,  # the caller's own prompt was let through
            generated=(),  # `text` has them
            sampling=replace(
                self.sampling, min_tokens=None if least is None else max(least - tokens, 0) or None
            ),
        )

    @property
    def needed_capabilities(self) -> frozenset[str]:
        """What a model must be capable of to take it."""
        return frozenset(filter(self.needs, CAPABILITIES))

    def needs(self, capability: str) -> bool:
        """Whether a model must have this one of CAPABILITIES to take it."""
        if (is_needed := _NEEDS.get(capability)) is not None:
            return is_needed(self)
        return getattr(self.sampling, capability, None) is not None


# Of a capability that has not the name of a field of Sampling: whether a request needs it.
_NEEDS: Mapping[str, Callable[[EngineRequest], bool]] = {
    "max_tokens": lambda request: request.max_tokens is not None and request.embeds is None,
    "log_probs": lambda request: request.sampling.top_log_probs is not None,
    "top_log_probs": lambda request: bool(request.sampling.top_log_probs),
    "constraint": lambda request: request.constraint is not None,
    "prompt_limit": lambda request: request.prompt_limit is not None,
    "echo_prompt": lambda request: request.echoes_prompt,
    "token_ids": lambda request: request.wants_token_ids,
    "log_prob_ids": lambda request: (
        request.wants_log_prob_ids and bool(request.sampling.top_log_probs)
    ),
    "priority": lambda request: request.priority is not None,
    "cache_salt": lambda request: request.cache_salt is not None,
    "lora": lambda request: request.model.parent is not None,
    "prompt_token_ids": lambda request: request.token_ids is not None and request.embeds is None,
    "embeddings": lambda request: request.embeds is not None and request.pair is None,
    "scores": lambda request: request.pair is not None,
    "special_text": lambda request: request.shows_specials,
    "plain_spans": lambda request: bool(request.plain_spans),
    "images": lambda request: bool(request.images),
    "resume": lambda request: bool(request.generated),
    "limits": lambda request: smaller(request.token_cap, request.prompt_cap) is not None,
}


class TokenSource(Protocol):
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


class Engine(TokenSource, Protocol):
    """All engines together, however many there are."""

    def has_another(self, request: EngineRequest) -> bool:
        """Whether an endpoint that the request does not avoid can take it now."""
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
    """Says which models are loaded and ready."""

    def is_available(self, card: ModelCard) -> bool:
        """Whether this build of the model can be served now."""
        ...

    def rows(self, card: ModelCard) -> int:
        """Requests that all engines of this build decode at once."""
        ...

    async def load(self) -> tuple[LoadedModel, ...]:
        """Every model that can be served; at least one. Raises NotReady."""
        ...
