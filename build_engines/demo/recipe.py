"""Everything that decides what the trained model is."""

from __future__ import annotations

from dataclasses import dataclass, field

from build_engines.demo.corpus import FIRST, MAIN, Mixture
from build_engines.demo.network import Shape


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """Learning rates warm up, hold, and fall to zero over the last part of the steps."""

    shape: Shape = field(default_factory=Shape)
    seed: int = 1
    steps: int = 3600
    first_steps: int = 150  # of them on the copying mixture
    batch_tokens: int = 4096
    muon_rate: float = 0.002  # matrices, scaled like AdamW's
    adam_rate: float = 0.004  # embedding and norms
    weight_decay: float = 0.02
    warmup_steps: int = 60
    decay_share: float = 0.76

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise ValueError("steps must be positive")

    def mixture(self, step: int) -> Mixture:
        return FIRST if step < self.first_steps else MAIN

    def rate(self, step: int) -> float:
        """The share of the full learning rate at a step."""
        falling = (self.steps - step) / (self.steps * self.decay_share)
        return min(1.0, (step + 1) / self.warmup_steps, falling)
