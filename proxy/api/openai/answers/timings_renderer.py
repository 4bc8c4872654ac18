"""Adds `timings` to the output of another renderer: what `include_timings` asks for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from proxy.api.answers.exchange import Renderer
from proxy.api.answers.stream_format import Part, Payload
from proxy.domain.answer_times import AnswerTimes
from proxy.domain.completion import Completion
from proxy.domain.events import Finished, OutputEvent
from proxy.domain.output import Usage
from proxy.domain.request import GenerationRequest


class TimingsRenderer:
    """Implements answer.Renderer."""

    def __init__(self, inner: Renderer, request: GenerationRequest) -> None:
        self._inner = inner
        self._unfinished = request.choices * len(request.prompts)
        self._usage = Usage()
        self._times = AnswerTimes()

    @property
    def field_names(self) -> Mapping[str, str]:
        return self._inner.field_names

    def chunks(self, event: OutputEvent) -> Sequence[Part]:
        """The inner chunks; the last one of the stream gets `timings`."""
        chunks = [*self._inner.chunks(event)]
        if not isinstance(event, Finished):
            return chunks
        self._usage += event.usage
        self._times = self._times.beside(event.times)
        self._unfinished -= 1
        last = chunks.pop()
        if self._unfinished or not isinstance(last, dict):
            return [*chunks, last]
        return [*chunks, {**last, "timings": timings_body(self._usage, self._times)}]

    def kept(self, event: OutputEvent) -> OutputEvent:
        return self._inner.kept(event)

    def full(self, completion: Completion) -> Payload:
        whole = self._inner.full(completion)
        return {**whole, "timings": timings_body(completion.usage, completion.times)}


def timings_body(usage: Usage, times: AnswerTimes) -> dict[str, Any]:
    """With llama.cpp's names, and `queue_ms`. What an engine does not report is None."""
    return {
        "cache_n": usage.cached_tokens,
        **_speed("prompt", usage.prompt_tokens - usage.cached_tokens, times.prefill_s),
        **_speed("predicted", usage.completion_tokens, times.decode_s),
        "queue_ms": milliseconds(times.queue_s),
    }


def milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 3)


def _speed(name: str, tokens: int, seconds: float | None) -> dict[str, Any]:
    """No speed without tokens or without time: an answer of one token has no time to decode."""
    token_s = seconds / tokens if seconds and tokens else None
    return {
        f"{name}_n": tokens,
        f"{name}_ms": milliseconds(seconds),
        f"{name}_per_token_ms": milliseconds(token_s),
        f"{name}_per_second": round(1 / token_s, 3) if token_s else None,
    }
