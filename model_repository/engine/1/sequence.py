"""One job's way through the scheduler: its tokens, how many of them a row holds, its states."""

from __future__ import annotations

from concurrent.futures import Future

from guide_compiler import CompiledGuide
from guide_state import GuideState
from port import FinishReason, Job
from prefix_cache import BLOCK, BlockKey, BlockKeys
from prompt_echo import PromptEcho
from sampler_state import SamplerState


class Sequence:
    """`tokens` are prompt and answer; the row holds keys and values of the first `computed`."""

    def __init__(
        self, job: Job, arrival: int, sampler: SamplerState, guide: Future[CompiledGuide] | None
    ) -> None:
        self.job = job
        self.arrival = arrival
        self.sampler = sampler
        self.guide_to_come = guide
        self.guide: GuideState | None = None
        self.tokens = list(job.input.prompt_ids)
        self.computed = 0
        self.row: int | None = None
        self.has_started = False
        self.echo = self._echo_of(job)
        self.is_gone = False  # its job is over
        self._keys = BlockKeys(job.input.cache_salt)

    @property
    def order(self) -> tuple[int, int]:
        """Who goes first: the smallest."""
        return (-self.job.input.priority, self.arrival)

    @property
    def missing(self) -> int:
        """Tokens to feed before the next one can be sampled; 1 while decoding."""
        return len(self.tokens) - self.computed

    def is_over(self) -> bool:
        """Whether someone wants this to end."""
        return self.job.is_cancelled or self.job.sink.is_abandoned()

    def reusable_keys(self) -> list[BlockKey]:
        """Blocks that may come from the cache: where logits are needed, tokens are computed."""
        needed_from = len(self.tokens) - 1
        if self.echo is not None and self.echo.unscored_from is not None:
            needed_from = self.echo.unscored_from
        return self._keys.of(self.tokens)[: needed_from // BLOCK]

    def computed_keys(self) -> list[BlockKey]:
        """The full blocks that the row holds."""
        return self._keys.of(self.tokens)[: self.computed // BLOCK]

    @staticmethod
    def _echo_of(job: Job) -> PromptEcho | None:
        wanted = job.input
        if not wanted.echoes_prompt:
            return None
        return PromptEcho(wanted.prompt_ids, wanted.sampling.log_probs)

    def append(self, token_id: int) -> FinishReason | None:
        """Takes a generated token in; why it is the last one, if it is."""
        is_end = self.sampler.ends_with(token_id)
        self.sampler.append(token_id)
        self.tokens.append(token_id)
        if self.guide is not None:
            self.guide.take(token_id)
            is_end = is_end or self.guide.is_terminated
        if is_end:
            return "stop"
        return "length" if self.sampler.generated >= self.job.input.max_tokens else None
