"""One job of the scripted runtime: writes the script's tokens to the job's sink, step by step.

build_engines/scripted_build.py writes the script, script.json.
"""

from __future__ import annotations

import json
import os
import signal
from dataclasses import dataclass, field
from itertools import cycle, islice
from pathlib import Path

from port import RESUME_PARAM, FinishReason, Job, Token, TokenLogProbs


@dataclass(frozen=True, slots=True)
class Part:
    """`ids` answer a prompt that ends with the ids `after`."""

    after: tuple[int, ...]
    ids: tuple[int, ...]
    _with_log_probs: dict[int, list[Token]] = field(default_factory=dict)

    def tokens(self, log_probs: int | None, own: float) -> list[Token]:
        """The part's tokens, with their log-probability `own` if `log_probs` is set.

        The alternatives are the token itself, then the ids after it, each one less likely. Cached
        for each number of alternatives.
        """
        key = -1 if log_probs is None else log_probs
        if key not in self._with_log_probs:
            self._with_log_probs[key] = [_token(token, log_probs, own) for token in self.ids]
        return self._with_log_probs[key]


def _token(token: int, log_probs: int | None, own: float) -> Token:
    if log_probs is None:
        return Token(token)
    top = tuple((token + rank if rank else token, own - rank) for rank in range(log_probs))
    return Token(token, TokenLogProbs(own, top))


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """See ScriptedOptions of build_engines.models_file. The last part answers every prompt."""

    parts: tuple[Part, ...]
    repeats: bool
    step_tokens: int
    step_s: float
    log_prob: float
    fails_after: int | None
    dies_after: int | None = None

    @classmethod
    def read(cls, path: Path) -> Script:
        stored = json.loads(path.read_text(encoding="utf-8"))
        return cls(
            parts=tuple(Part(tuple(one["after"]), tuple(one["ids"])) for one in stored["parts"]),
            repeats=stored["repeats"],
            step_tokens=stored["step_tokens"],
            step_s=stored["step_ms"] / 1000,
            log_prob=stored["log_prob"],
            fails_after=stored["fails_after"],
            dies_after=stored.get("dies_after"),
        )

    def answer(self, prompt: list[int], log_probs: int | None) -> list[Token]:
        for part in self.parts:
            if prompt[len(prompt) - len(part.after) :] == [*part.after]:
                return part.tokens(log_probs, self.log_prob)
        raise ValueError("the script has no part for every prompt")


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
