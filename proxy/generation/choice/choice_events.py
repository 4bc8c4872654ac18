"""What one choice tells: what was found, and of its tokens beside it. Called by choice."""

from __future__ import annotations

from dataclasses import replace

from triton_openai.proxy.domain.events import (
    AnyDelta,
    Finished,
    LoggedToken,
    OutputEvent,
    TextDelta,
)
from triton_openai.proxy.domain.output import FinishReason
from triton_openai.proxy.domain.request import GenerationRequest
from triton_openai.proxy.generation.choice.usage_counter import Tally


class ChoiceEvents:
    """`tally` is the choice's, and goes on counting."""

    def __init__(self, request: GenerationRequest, index: int, tally: Tally) -> None:
        self._index = index
        self._tally = tally
        self._tells_usage = request.tells_usage
        self._tells_ids = request.returns_token_ids
        self._logs = request.sampling.top_log_probs is not None
        self._untold: list[LoggedToken] = []
        self._untold_ids: tuple[int, ...] = ()

    def of_text(
        self, text: str, logged: list[LoggedToken], ids: tuple[int, ...]
    ) -> list[OutputEvent]:
        """Where all of it is text. `ids`: of the tokens taken, where they were asked for."""
        ids = ids if self._tells_ids else ()
        if not (text or logged or ids):
            return []
        usage = self._tally.usage if self._tells_usage else None
        return [
            TextDelta(text, choice=self._index, log_probs=tuple(logged), token_ids=ids, usage=usage)
        ]

    def of_found(
        self,
        found: list[AnyDelta],
        logged: list[LoggedToken],
        ids: tuple[int, ...],
        *,
        is_last: bool,
    ) -> list[OutputEvent]:
        """What the parser found, the first with what there is to tell of the tokens so far."""
        self._untold += logged
        self._untold_ids += ids if self._tells_ids else ()
        if not found:
            if not is_last or not (self._untold or self._untold_ids):
                return []
            found = [TextDelta("")]
        usage = self._tally.usage if self._tells_usage else None
        first, *others = [replace(delta, choice=self._index, usage=usage) for delta in found]
        tokens, self._untold = tuple(self._untold), []
        ids, self._untold_ids = self._untold_ids, ()
        return [replace(first, log_probs=tokens, token_ids=ids), *others]

    def finished(self, reason: FinishReason) -> Finished:
        mean = self._tally.mean_log_prob if self._logs else None
        usage = self._tally.usage
        return Finished(reason=reason, usage=usage, choice=self._index, mean_log_prob=mean)
