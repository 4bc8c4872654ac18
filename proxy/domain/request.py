"""What a caller asks for, in no protocol's words. Built by the adapters in api/."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


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
    """None: not said by the caller; the registry's default holds, then the engine's."""

    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None

    def with_defaults(self, defaults: Sampling) -> Sampling:
        """The caller's values where there are any."""
        return Sampling(
            temperature=defaults.temperature if self.temperature is None else self.temperature,
            top_p=defaults.top_p if self.top_p is None else self.top_p,
            seed=defaults.seed if self.seed is None else self.seed,
        )


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
