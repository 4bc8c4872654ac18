"""One job's way through the script. Called by the scripted runtime's thread."""

from __future__ import annotations

import os
import signal

from port import FinishReason, Job
from script import Script


class Playback:
    """What chooses between tokens changes nothing, as the script's have all the probability.

    What would forbid them is refused.
    """

    def __init__(self, job: Job, script: Script) -> None:
        self.job = job
        self.is_over = False
        self._script = script
        self._sampling = sampling = job.input.sampling
        self._tokens = script.answer(job.input.prompt_ids, sampling.log_probs)
        self._given = 0
        job.sink.started(0)

    def step(self) -> int:
        """How many tokens were given."""
        sink = self.job.sink
        if self.job.is_cancelled or sink.is_abandoned():
            self.cancel()
            return 0
        if not self._given and (refused := self._refused()) is not None:
            self.is_over = True
            sink.refuse(refused, f"a scripted model cannot be given {refused}")
            return 0
        if not self._script.step_s and sink.is_behind():
            return 0
        before = self._given
        while not self.is_over and self._given - before < self._script.step_tokens:
            self._give_one()
        return self._given - before

    def cancel(self) -> None:
        self.is_over = True
        self.job.sink.cancelled()

    def _give_one(self) -> None:
        if self._given == self._script.dies_after:
            os.kill(os.getpid(), signal.SIGKILL)
        if self._given == self._script.fails_after:
            self.is_over = True
            self.job.sink.fail(f"the script fails after {self._given} tokens")
            return
        token = self._tokens[self._given % len(self._tokens)]
        self._given += 1
        finish = self._finish(token.id)
        self.is_over = finish is not None
        self.job.sink.token(token, finish)

    def _finish(self, token_id: int) -> FinishReason | None:
        """Why this token is the last one; None where it is not."""
        sampling, given = self._sampling, self._given
        if given >= sampling.min_tokens and (
            token_id in sampling.stop_token_ids or (self._has_ended and not sampling.ignore_eos)
        ):
            return "stop"
        return "length" if given >= self.job.input.max_tokens else None

    @property
    def _has_ended(self) -> bool:
        return not self._script.repeats and self._given % len(self._tokens) == 0

    def _refused(self) -> str | None:
        """The tensor that cannot be honoured."""
        sampling = self._sampling
        given = {
            "guided_decoding_guide": self.job.input.guide,
            "allowed_token_ids": sampling.allowed_token_ids,
            "bad_words_list": sampling.bad_words,
            "logit_bias_ids": sampling.logit_bias,
        }
        return next((name for name, value in given.items() if value), None)
