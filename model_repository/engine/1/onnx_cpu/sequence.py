"""One job in the scheduler: its tokens, how many of them its row holds, and its states.

Its echo reports the prompt's tokens before the answer, if wanted with probabilities.
"""

from __future__ import annotations

import math

import numpy as np

from block_log import BlockKey, BlockKeys
from guides.state import GuideState
from onnx_cpu.prefix_cache import BLOCK
from port import FinishReason, Job, Token, TokenLogProbs
from sampling.log_probs import log_probs
from sampling.ranking import Logits
from sampling.state import SamplerState

ROWS_AT_ONCE = 32  # of logits; each needs a copy of a vocabulary


class PromptEcho:
    """`log_probs`: None for none, else the number of alternatives for each token."""

    def __init__(self, prompt_ids: list[int], log_probs: int | None) -> None:
        self._ids = prompt_ids
        self._top = log_probs
        # The first token follows nothing, so it has no probability. Its alternatives are
        # placeholders, because every token must have the same number of them.
        self._scores = [TokenLogProbs(math.nan, ((-1, -math.inf),) * (log_probs or 0))]

    @property
    def unscored_from(self) -> int | None:
        """The first token whose logits are still needed; None: all may come from the cache."""
        if self._top is None or len(self._scores) == len(self._ids):
            return None
        return len(self._scores) - 1

    def score(self, logits: Logits, start: int) -> None:
        """Scores the tokens from `start` on. logits: [tokens, vocab], not changed."""
        first = self.unscored_from
        if self._top is None or first is None:
            return
        last = min(start + len(logits), len(self._ids) - 1)
        for at in range(first, last, ROWS_AT_ONCE):
            end = min(at + ROWS_AT_ONCE, last)
            rows = logits[at - start : end - start]
            following = np.array(self._ids[at + 1 : end + 1], np.int64)
            self._scores += log_probs(rows, rows.max(axis=1), following, [self._top] * len(rows))

    def tokens(self) -> list[Token]:
        """The prompt's tokens, once all of them are scored."""
        if self._top is None:
            return [Token(token) for token in self._ids]
        return [Token(*pair) for pair in zip(self._ids, self._scores, strict=True)]


class Sequence:
    """`tokens` are prompt and answer; the row holds keys and values of the first `computed`.

    Prefill feeds the tokens before `prefill_end`, decode those from there on.
    """

    def __init__(self, job: Job, arrival: int, sampler: SamplerState) -> None:
        self.job = job
        self.arrival = arrival
        self.sampler = sampler
        self.guide: GuideState | None = None
        self.tokens = [*job.input.prompt_ids, *job.input.generated_ids]
        self.computed = 0
        self.prefill_end = len(self.tokens)
        self.row: int | None = None
        self.has_started = False
        self.echo = self._echo_of(job)
        self.is_gone = False  # its job has ended
        self._keys = BlockKeys(job.input.cache_salt, BLOCK)

    @property
    def order(self) -> tuple[int, int]:
        """The sequence with the smallest order goes first."""
        return (-self.job.input.priority, self.arrival)

    @property
    def missing(self) -> int:
        """The tokens to feed before the next one can be sampled; 1 while decoding."""
        return len(self.tokens) - self.computed

    def start(self, cached: int, most_replayed: int) -> None:
        """Begins to compute tokens after the `cached` ones, which the row holds.

        Of an answer that has begun here or in another engine, decode computes those tokens once
        more, one a step, if they are at most `most_replayed`: prefill is faster, but its results
        differ in their last bits.
        """
        self.computed = cached
        self.prefill_end = len(self.tokens)
        answer_start = max(cached, len(self.job.input.prompt_ids))
        if self.prefill_end - answer_start <= most_replayed:
            self.prefill_end = answer_start

    @property
    def needs_guide(self) -> bool:
        """Whether its guide is not compiled yet."""
        return self.guide is None and self.job.input.guide is not None

    def must_end(self) -> bool:
        """Whether the job was cancelled, or its client has disconnected."""
        return self.job.is_cancelled or self.job.sink.is_abandoned()

    def reusable_keys(self) -> list[BlockKey]:
        """The blocks before the first token that needs logits: they may come from the cache."""
        needed_from = len(self.tokens) - 1
        if self.echo is not None and self.echo.unscored_from is not None:
            needed_from = self.echo.unscored_from
        return self._keys.of(self.tokens)[: needed_from // BLOCK]

    def computed_keys(self) -> list[BlockKey]:
        """The full blocks that the row holds."""
        return self._keys.of(self.tokens)[: self.computed // BLOCK]

    def append(self, token_id: int) -> FinishReason | None:
        """Adds a generated token; returns a finish reason if it is the last one."""
        self.sampler.append(token_id)
        self.tokens.append(token_id)
        if self.guide is not None:
            self.guide.take(token_id)
        return self._finish_after(token_id)

    @property
    def finish_before(self) -> FinishReason | None:
        """The finish reason if the tokens that were generated before are the whole answer."""
        generated = self.job.input.generated_ids
        return self._finish_after(generated[-1]) if generated else None

    def _finish_after(self, token_id: int) -> FinishReason | None:
        guide_is_over = self.guide is not None and self.guide.is_terminated
        if guide_is_over or self.sampler.ends_with(token_id):
            return "stop"
        return "length" if self.sampler.generated >= self.job.input.max_tokens else None

    @staticmethod
    def _echo_of(job: Job) -> PromptEcho | None:
        if not job.input.echoes_prompt:
            return None
        return PromptEcho(job.input.prompt_ids, job.input.sampling.log_probs)
