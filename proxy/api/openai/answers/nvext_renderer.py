"""Annotations and the response's `nvext`, around the chunks of another renderer."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping, Sequence
from typing import Any

from triton_openai.proxy.api.answers.exchange import Renderer
from triton_openai.proxy.api.answers.framing import Annotation, Part, Payload
from triton_openai.proxy.api.openai.requests.nvext import NvExt
from triton_openai.proxy.domain.completion import Completion
from triton_openai.proxy.domain.events import Finished, OutputEvent
from triton_openai.proxy.domain.model import ModelCard
from triton_openai.proxy.domain.output import Timing, Usage
from triton_openai.proxy.domain.request import GenerationRequest


class NvExtRenderer:
    """`before`: what is told before the first chunk."""

    def __init__(
        self,
        inner: Renderer,
        ext: NvExt,
        request: GenerationRequest,
        card: ModelCard,
        before: list[Annotation],
    ) -> None:
        self._inner = inner
        self._before = before
        self._tells_timing = "timing" in (ext.annotations or ())
        self._extra_fields = ext.extra_fields or []
        self._worker = worker_number(card)
        self._received_ms = round(time.time() * 1000)
        self._unfinished = request.choices * len(request.prompts)
        self._usage = Usage()

    @property
    def field_names(self) -> Mapping[str, str]:
        return self._inner.field_names

    def chunks(self, event: OutputEvent) -> Sequence[Part]:
        """`nvext` stands in the chunk that finishes the last choice; its timing follows."""
        before, self._before = self._before, []
        chunks = [*self._inner.chunks(event)]
        if not isinstance(event, Finished):
            return [*before, *chunks]
        self._usage += event.usage
        self._unfinished -= 1
        if self._unfinished:
            return [*before, *chunks]
        parts = self._with_extra(chunks, event.timing)
        if self._tells_timing:
            parts.append(Annotation("timing", self._timing(event.timing, self._usage)))
        return [*before, *parts]

    def kept(self, event: OutputEvent) -> OutputEvent:
        return self._inner.kept(event)

    def full(self, completion: Completion) -> Payload:
        whole = self._inner.full(completion)
        return {**whole, **self._extra(completion.timing, completion.usage)}

    def _with_extra(self, chunks: list[Part], timing: Timing | None) -> list[Part]:
        """Not in the chunk of usage alone, which may follow."""
        return [
            {**chunk, **self._extra(timing, self._usage)}
            if isinstance(chunk, dict) and any(_finishes(choice) for choice in chunk["choices"])
            else chunk
            for chunk in chunks
        ]

    def _extra(self, timing: Timing | None, usage: Usage) -> Payload:
        if not self._extra_fields:
            return {}
        told: dict[str, Any] = {}
        if "timing" in self._extra_fields:
            told["timing"] = self._timing(timing, usage)
        if "worker_id" in self._extra_fields:
            told["worker_id"] = dict.fromkeys(
                ("prefill_worker_id", "decode_worker_id"), self._worker
            )
        return {"nvext": told}

    def _timing(self, timing: Timing | None, usage: Usage) -> Payload:
        """Dynamo's names. `kv_hit_rate`: the share of the prompt that was computed before."""
        told: dict[str, Any] = {"request_received_ms": self._received_ms}
        if timing is not None:
            told["ttft_ms"] = round(timing.first_token_s * 1000, 3)
            told["total_time_ms"] = round(timing.total_s * 1000, 3)
        if usage.prompt_tokens:
            told["kv_hit_rate"] = round(usage.cached_tokens / usage.prompt_tokens, 4)
        return told


def worker_number(card: ModelCard) -> int:
    """Dynamo's workers have numbers: this one stands for the engine that is built and loaded."""
    engine = f"{card.facts.engine_model} {card.facts.created}"
    return int.from_bytes(hashlib.sha256(engine.encode()).digest()[:6], "big")


def _finishes(choice: dict[str, Any]) -> bool:
    return choice["finish_reason"] is not None
