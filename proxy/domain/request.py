"""What a caller asks for, in no protocol's words. Built by the adapters in api/."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One turn of a chat. `content` is the joined text of its parts."""

    role: str
    content: str
    name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatPrompt:
    """Rendered with the model's chat template, which writes its own special tokens."""

    messages: tuple[Message, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TextPrompt:
    """Tokenized as it is, with the tokenizer's own BOS."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenPrompt:
    """Token ids, passed on as they are."""

    ids: tuple[int, ...]


Prompt = ChatPrompt | TextPrompt | TokenPrompt


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """None: not said by the caller; the registry's default holds, then the engine's.

    logit_bias: (token id, what is added to its logit). top_log_probs: None for no
    log-probabilities, else how many alternatives beside each token's own.
    """

    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    seed: int | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: tuple[tuple[int, float], ...] | None = None
    allowed_token_ids: tuple[int, ...] | None = None
    bad_words: tuple[str, ...] | None = None
    min_tokens: int | None = None
    ignore_eos: bool | None = None
    stop_token_ids: tuple[int, ...] | None = None
    top_log_probs: int | None = None

    def with_defaults(self, defaults: Sampling) -> Sampling:
        """The caller's values where there are any."""
        missing = [field.name for field in fields(self) if getattr(self, field.name) is None]
        return replace(self, **{name: getattr(defaults, name) for name in missing})


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationRequest:
    """One request for one model. `id` is ours, unique, and is the Triton request id too."""

    id: str
    model: str
    prompt: Prompt
    sampling: Sampling = field(default_factory=Sampling)
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    user: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
