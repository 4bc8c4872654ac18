"""The stages of one stream of an endpoint, in its request's record. Used by engine_stream."""

from __future__ import annotations

from dataclasses import replace
from time import perf_counter

from proxy.domain.engine import EngineRequest
from proxy.domain.interrupt import Cause
from proxy.domain.output import TokenDelta
from proxy.domain.record import Stage, StageName, stage


class EngineStages:
    """Records a stage for each part of a stream; `begin` ends the stage of the part before."""

    __slots__ = ("_queue_s", "_stage")

    def __init__(self) -> None:
        self._stage: Stage | None = None
        self._queue_s = 0.0

    def begin(self, part: EngineRequest) -> EngineRequest:
        """The part as it is sent, with the stage that the endpoint's own stages are within."""
        self.end()
        self._stage = begun = stage(StageName.TRITON)
        begun.attributes["id"] = part.id
        return replace(part, stage=begun)

    def see_first(self, delta: TokenDelta) -> None:
        if self._stage is not None:
            self._queue_s = delta.queue_s or 0.0
            self._stage.attributes["first_response_s"] = perf_counter() - self._stage.began

    def lose(self, cause: Cause) -> None:
        """The part ended before its answer did."""
        if self._stage is not None:
            self._stage.error = cause.value
        self.end()

    def end(self, last: TokenDelta | None = None) -> None:
        """last: the delta with the engine's own times, if it came."""
        ended, self._stage = self._stage, None
        if ended is None:
            return
        ended.end()
        if last is not None and last.times is not None and ended.ended is not None:
            times = last.times
            spans = (
                (StageName.ENGINE_DECODE, times.decode_s),
                (StageName.ENGINE_PREFILL, times.prefill_s),
                (StageName.ENGINE_QUEUE, self._queue_s),
            )
            _before(ended, ended.ended, spans)


def _before(whole: Stage, at: float, spans: tuple[tuple[StageName, float], ...]) -> None:
    """Stages that end one before the other, the first at `at`. The engine measures durations: its
    clock is another one, so they are placed back from the last response.
    """
    for name, seconds in spans:
        began = max(at - seconds, whole.began)
        whole.stage(name, began).end(at)
        at = began
