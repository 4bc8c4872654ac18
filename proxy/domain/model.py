"""What the proxy knows of a model: policy from models.yaml, facts from Triton."""

from __future__ import annotations

from dataclasses import dataclass, field

from proxy.domain.request import Sampling


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """From the Triton config parameters of the ensemble. Lengths in tokens."""

    context_length: int
    chat_template: str | None
    bos_token: str
    eos_token: str
    strips_leading_space: bool
    created: int
    vocab_size: int
    engine_model: str
    tokenizer_model: str
    detokenizer_model: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedModel:
    """An ensemble that Triton has loaded, under Triton's name for it."""

    name: str
    facts: ModelFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCard:
    """One served model. `triton_model` is the ensemble's name."""

    name: str
    triton_model: str
    facts: ModelFacts
    aliases: tuple[str, ...] = ()
    owned_by: str = "triton-openai"
    sampling: Sampling = field(default_factory=Sampling)
