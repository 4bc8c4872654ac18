"""The port to a model's tokenizer: a prompt as the engine would get it, and tokens back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from proxy.domain.engine import EngineRequest
from proxy.domain.model import ModelCard


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmittedPrompt:
    """`max_tokens`: how many new ones may follow, default and room settled."""

    ids: tuple[int, ...]
    max_tokens: int


class Tokenizer(Protocol):
    """Both raise ModelUnavailable, DeadlineExceeded, EngineFailed."""

    async def admit(self, request: EngineRequest) -> AdmittedPrompt:
        """The prompt's tokens, without generating.

        Raises:
            InvalidRequest: it is refused, as it would be in a generation.
        """
        ...

    async def token_bytes(self, model: ModelCard, ids: Sequence[int]) -> tuple[bytes, ...]:
        """Each token's raw bytes; a special token has none."""
        ...
