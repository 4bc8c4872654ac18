"""All parameters of the training."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import pairwise

from demo_model.training.corpus import (
    APART,
    ASKING,
    BALANCED,
    BROADER,
    CLEARER,
    CLOSING,
    DEEPER,
    ENDING,
    FIRST,
    LATE,
    MAIN,
    PHRASES,
    PLAINER,
    SETTLED,
    STRUCTURED,
    THIRD,
    WIDER,
    Mixture,
)
from demo_model.training.network import Shape
from demo_model.training.stages import Stage

Schedule = tuple[tuple[int, float], ...]  # (step, share of the full learning rate)
Phases = tuple[tuple[int, Mixture], ...]  # the step at which a mixture begins

# Warm up, hold while copying is learned, fall to zero; rise again for each further cycle.
RATES: Schedule = (
    (-1, 0.0),
    (59, 1.0),
    (1300, 1.0),
    (2400, 0.72),
    (5900, 0.0),
    (5980, 0.7),
    (7388, 0.66),
    (8016, 0.495),
    (8913, 0.31625),
    (9057, 0.2645),
    (9457, 0.0345),
    (9657, 0.0207),
    (9757, 0.0),
    (9837, 0.7),
    (11000, 0.6),
    (11400, 0.57),
    (13260, 0.228),
    (14700, 0.02),
    (14950, 0.0),
    (15030, 0.8),
    (16500, 0.75),
    (16800, 0.6328125),
    (18050, 0.0),
    (18130, 0.8),
    (18199, 0.797283464567),
    (18200, 0.797445255474),
    (18599, 0.782883211679),
    (18600, 0.782196969697),
    (19450, 0.75),
    (20800, 0.0),
    (20860, 0.35),
    (21300, 0.33),
    (22000, 0.0),
    (22040, 0.3),
    (23000, 0.0),
    (23020, 0.12),
    (23360, 0.0),
    (23420, 0.35),
    (23600, 0.3),
    (23900, 0.0),
    (23915, 0.18),
    (24050, 0.0),
    (24060, 0.2),
    (24170, 0.0),
    (24180, 0.22),
    (24280, 0.0),
)
PHASES: Phases = (
    (0, FIRST),
    (150, MAIN),
    (4100, LATE),
    (5900, WIDER),
    (7388, CLOSING),
    (9757, THIRD),
    (12000, ENDING),
    (14950, DEEPER),
    (15500, BROADER),
    (18200, PHRASES),
    (19800, PLAINER),
    (20800, STRUCTURED),
    (22000, BALANCED),
    (23000, STRUCTURED),
    (23360, ASKING),
    (23900, CLEARER),
    (24050, SETTLED),
    (24170, APART),
)

# The fourth cycle has two more layers and two batches per step, one per core. Most of the text is
# learned by then, so its middle selects the hardest rows; its end takes all rows again. The fifth
# cycle does the same. The sixth begins with the weights of step 20,800 as they were shipped, and
# later goes back to them in part: calls had become worse.
STAGES = (
    Stage(),
    Stage(start=14950, repeated=(1, 2), batches=2, is_compiled=True),
    Stage(start=16000, batches=2, candidates=3, is_compiled=True),
    Stage(start=17900, batches=2, is_compiled=True),
    Stage(start=18050, batches=2, candidates=3, is_compiled=True),
    Stage(start=20650, batches=2, is_compiled=True),
    Stage(start=20800, batches=2, is_compiled=True, is_rounded=True),
    Stage(start=23000, batches=2, is_compiled=True, returned=0.4),
    Stage(start=23360, batches=2, is_compiled=True, is_rounded=True),
    Stage(start=23900, batches=2, is_compiled=True, is_rounded=True),
    Stage(start=24050, batches=2, is_compiled=True, is_rounded=True),
    Stage(start=24170, batches=2, is_compiled=True, is_rounded=True),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    shape: Shape = field(default_factory=Shape)
    seed: int = 1
    phases: Phases = PHASES
    stages: tuple[Stage, ...] = STAGES
    batch_tokens: int = 4096
    muon_rate: float = 0.002  # matrices, scaled like AdamW's
    adam_rate: float = 0.004  # embedding and norms
    weight_decay: float = 0.02
    rates: Schedule = RATES

    def __post_init__(self) -> None:
        if any(later[0] <= earlier[0] for earlier, later in pairwise(self.rates)):
            raise ValueError("the steps of the rates must rise")
        starts = [start for start, _ in self.phases]
        if starts != sorted({0, *starts}):
            raise ValueError(f"the phases must rise from step 0: {starts}")
        starts = [stage.start for stage in self.stages]
        if starts != sorted({0, *starts}):
            raise ValueError(f"the stages must rise from step 0: {starts}")

    @property
    def steps(self) -> int:
        return self.rates[-1][0]

    def entered(self, step: int) -> tuple[Stage, ...]:
        """The stages of the first `step` updates; the first stage is always among them."""
        first, *others = self.stages
        return (first, *(stage for stage in others if stage.start < step))

    def shape_at(self, step: int) -> Shape:
        """The network's shape after `step` updates."""
        added = sum(len(stage.repeated) for stage in self.entered(step))
        return replace(self.shape, layers=self.shape.layers + added)

    def mixture(self, step: int) -> Mixture:
        """The mixture of the phase that contains the step."""
        return [mixture for start, mixture in self.phases if start <= step][-1]

    def rate(self, step: int) -> float:
        """The share of the full learning rate at a step, interpolated between the given points."""
        for (start, before), (stop, after) in pairwise(self.rates):
            if start <= step <= stop:
                return before + (after - before) * (step - start) / (stop - start)
        raise ValueError(f"no rate is given for step {step}")
