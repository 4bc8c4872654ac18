"""One job of the scripted runtime: writes the script's tokens to the job's sink, step by step."""

from __future__ import annotations

import os
import signal
from itertools import cycle, islice

from port import RESUME_PARAM, FinishReason, Job
from scripted.script import Script


class Playback:
    """The script's tokens have all of the probability, so parameters such as top_p change nothing.

    It refuses parameters that could forbid the script's tokens, and to continue an answer that
    does not begin with them.
    """

    def __init__(self, job: Job, script: Script) -> None:
        self.job = job
        self.is_over = False
        self._script = script
        self._sampling = sampling = job.input.sampling
        self._tokens = script.answer(job.input.prompt_ids, sampling.log_probs)
        self._resumed = len(job.input.generated_ids)
        self._written = self._resumed  # with those of the engine that began the answer
        job.sink.started(0)

    def step(self) -> int:
        """Writes the tokens of one step; returns their number."""
        sink = self.job.sink
        if self.job.is_cancelled or sink.is_abandoned():
            self.cancel()
            return 0
        if self._written == self._resumed and self._ends_before_it_begins():
            return 0
        if not self._script.step_s and sink.is_behind():
            return 0
        before = self._written
        while not self.is_over and self._written - before < self._script.step_tokens:
            self._write_token()
        return self._written - before

    def cancel(self) -> None:
        self.is_over = True
        self.job.sink.cancelled()

    def _write_token(self) -> None:
        own = self._written - self._resumed
        if own == self._script.dies_after:
            os.kill(os.getpid(), signal.SIGKILL)
        if own == self._script.fails_after:
            self.is_over = True
            self.job.sink.fail(f"the script fails after {own} tokens")
            return
        token = self._tokens[self._written % len(self._tokens)]
        self._written += 1
        finish = self._finish(token.id)
        self.is_over = finish is not None
        self.job.sink.token(token, finish)

    def _ends_before_it_begins(self) -> bool:
        """Refuses what it does not support, and ends an answer that was complete before."""
        generated, sink = self.job.input.generated_ids, self.job.sink
        if (refused := self._refused()) is not None:
            self.is_over = True
            sink.refuse(refused, f"a scripted model does not support {refused}")
        elif generated and not self._is_of_script(generated):
            self.is_over = True
            sink.refuse(
                RESUME_PARAM, f"the {len(generated)} generated tokens are not those of the script"
            )
        elif generated and (finish := self._finish(generated[-1])) is not None:
            self.is_over = True
            sink.finished(finish)
        return self.is_over

    def _is_of_script(self, generated: list[int]) -> bool:
        script = cycle(token.id for token in self._tokens)
        return generated == list(islice(script, len(generated)))

    def _finish(self, token_id: int) -> FinishReason | None:
        """The finish reason, if this token is the last one."""
        sampling, given = self._sampling, self._written
        if given >= sampling.min_tokens and (
            token_id in sampling.stop_token_ids or (self._has_ended and not sampling.ignore_eos)
        ):
            return "stop"
        return "length" if given >= self.job.input.max_tokens else None

    @property
    def _has_ended(self) -> bool:
        return not self._script.repeats and self._written % len(self._tokens) == 0

    def _refused(self) -> str | None:
        """The tensor of a parameter that it cannot support, if the job has one."""
        sampling = self._sampling
        given = {
            "guided_decoding_guide": self.job.input.guide,
            "allowed_token_ids": sampling.allowed_token_ids,
            "bad_words_list": sampling.bad_words,
            "logit_bias_ids": sampling.logit_bias,
        }
        return next((name for name, value in given.items() if value), None)
