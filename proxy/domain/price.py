"""What tokens of a model cost. From models.yaml; counted by access.limits."""

from __future__ import annotations

from dataclasses import dataclass

NANOS = 1_000_000_000  # in a unit of the currency


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """In any currency, for a million tokens. cached_input: of the prompt, where the engine had them
    computed already.
    """

    input: float = 0.0
    cached_input: float = 0.0
    output: float = 0.0

    def nanos(self, *, prompt_tokens: int, cached_tokens: int, output_tokens: int) -> int:
        """Billionths of the currency, rounded up. prompt_tokens includes cached_tokens."""
        millionths = (
            (prompt_tokens - cached_tokens) * self.input
            + cached_tokens * self.cached_input
            + output_tokens * self.output
        )
        return -int(-millionths * 1000 // 1)


FREE = Price()
