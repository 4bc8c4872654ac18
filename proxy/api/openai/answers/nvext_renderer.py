"""Adds annotations and the response's `nvext` to the output of another renderer."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping, Sequence
from typing import Any

from proxy.api.answers.exchange import Renderer
from proxy.api.answers.stream_format import Annotation, Part, Payload
from proxy.api.openai.answers.timings_renderer import milliseconds
from proxy.api.openai.requests.nvext import NvExt
from proxy.domain.answer_times import AnswerTimes
from proxy.domain.completion import Completion
from proxy.domain.events import Finished, OutputEvent
from proxy.domain.model import ModelCard
from proxy.domain.output import Timing, Usage
from proxy.domain.request import GenerationRequest


class NvExtRenderer:
    """Implements answer.Renderer. `prompt_annotations` precede the first chunk."""

    def __init__(
        self,
        inner: Renderer,
        ext: NvExt,
        request: GenerationRequest,
        card: ModelCard,
        prompt_annotations: list[Annotation],
    ) -> None:
        self._inner = inner
        self._prompt_annotations = prompt_annotations
        self._annotates_timing = "timing" in (ext.annotations or ())
        self._extra_fields = ext.extra_fields or []
        self._worker = worker_number(card)
        self._received_ms = round(time.time() * 1000)
        self._unfinished = request.choices * len(request.prompts)
        self._usage = Usage()
        self._times = AnswerTimes()

    @property
    def field_names(self) -> Mapping[str, str]:
        return self._inner.field_names

    def chunks(self, event: OutputEvent) -> Sequence[Part]:
        """The inner chunks. The one that finishes the last choice gets `nvext`; timing follows."""
        prompt_annotations, self._prompt_annotations = self._prompt_annotations, []
        chunks = [*self._inner.chunks(event)]
        if not isinstance(event, Finished):
            return [*prompt_annotations, *chunks]
        self._usage += event.usage
        self._times = self._times.beside(event.times)
        self._unfinished -= 1
        if self._unfinished:
            return [*prompt_annotations, *chunks]
        parts = self._with_extra(chunks, event.timing)
        if self._annotates_timing:
            timing = self._timing(event.timing, self._usage, self._times)
            parts.append(Annotation("timing", timing))
        return [*prompt_annotations, *parts]

    def kept(self, event: OutputEvent) -> OutputEvent:
        return self._inner.kept(event)

    def full(self, completion: Completion) -> Payload:
        whole = self._inner.full(completion)
        return {**whole, **self._extra(completion.timing, completion.usage, completion.times)}

    def _with_extra(self, chunks: list[Part], timing: Timing | None) -> list[Part]:
        """Adds `nvext` to the chunk that finishes a choice, not to a chunk of usage after it."""
        return [
            {**chunk, **self._extra(timing, self._usage, self._times)}
            if isinstance(chunk, dict) and any(_finishes(choice) for choice in chunk["choices"])
            else chunk
            for chunk in chunks
        ]

    def _extra(self, timing: Timing | None, usage: Usage, times: AnswerTimes) -> Payload:
        if not self._extra_fields:
            return {}
        extra: dict[str, Any] = {}
        if "timing" in self._extra_fields:
            extra["timing"] = self._timing(timing, usage, times)
        if "worker_id" in self._extra_fields:
            extra["worker_id"] = dict.fromkeys(
                ("prefill_worker_id", "decode_worker_id"), self._worker
            )
        return {"nvext": extra}

    def _timing(self, timing: Timing | None, usage: Usage, times: AnswerTimes) -> Payload:
        """Timing with Dynamo's names. `kv_hit_rate`: share of the prompt in the prefix cache."""
        fields: dict[str, Any] = {"request_received_ms": self._received_ms}
        if timing is not None:
            fields["ttft_ms"] = round(timing.first_token_s * 1000, 3)
            fields["total_time_ms"] = round(timing.total_s * 1000, 3)
        if usage.prompt_tokens:
            fields["kv_hit_rate"] = round(usage.cached_tokens / usage.prompt_tokens, 4)
        fields["queue_time_ms"] = milliseconds(times.queue_s)
        fields["prefill_time_ms"] = milliseconds(times.prefill_s)
        fields["decode_time_ms"] = milliseconds(times.decode_s)
        return fields


def worker_number(card: ModelCard) -> int:
    """A number for the loaded engine. Dynamo reports numbers of workers, so clients expect one."""
    engine = f"{card.facts.engine_model} {card.facts.created}"
    return int.from_bytes(hashlib.sha256(engine.encode()).digest()[:6], "big")


def _finishes(choice: dict[str, Any]) -> bool:
    return choice["finish_reason"] is not None
