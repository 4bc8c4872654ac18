"""The tokens to replay: script.json, which build_engines/scripted_build.py writes."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

from port import Token, TokenLogProbs


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
    """See build_engines.scripted_options. The last part answers every prompt."""

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
