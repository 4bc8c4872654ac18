"""What `include_timings` and `nvext` add to an answer: `timings`, annotations, and the answer's own
`nvext`, with the names of llama.cpp and Dynamo.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Collection, Sequence
from typing import Any

from proxy.api.http.answer import Renderer
from proxy.api.http.stream_format import Annotation, Part, Payload
from proxy.api.openai.generation_body import GenerationBody
from proxy.domain.completion import Completion
from proxy.domain.events import Finished, OutputEvent
from proxy.domain.model import ModelCard
from proxy.domain.output import AnswerTimes, Timing, Usage
from proxy.domain.request import GenerationRequest
from proxy.domain.tokenizer import Tokenizer
from proxy.generation.service import Service


class ExtrasRenderer:
    """Implements answer.Renderer: adds to the output of another one.

    prompt_annotations: precede the first chunk.
    """

    def __init__(
        self,
        inner: Renderer,
        body: GenerationBody,
        request: GenerationRequest,
        card: ModelCard,
        prompt_annotations: list[Annotation],
    ) -> None:
        ext = body.nvext
        self._inner = inner
        self._prompt_annotations = prompt_annotations
        self._has_timings = bool(body.include_timings)
        self._annotates_timing = ext is not None and "timing" in (ext.annotations or ())
        self._extra_fields = [] if ext is None else ext.extra_fields or []
        self._card = card
        self._received_ms = round(time.time() * 1000)
        self._unfinished = request.choices * len(request.prompts)
        self._usage = Usage()
        self._times = AnswerTimes()

    def chunks(self, event: OutputEvent) -> Sequence[Part]:
        """The inner chunks. The one that finishes the last choice gets `nvext`, the last one of the
        stream `timings`; the annotation of the timing follows.
        """
        parts: list[Part] = [*self._prompt_annotations, *self._inner.chunks(event)]
        self._prompt_annotations = []
        if not isinstance(event, Finished):
            return parts
        self._usage += event.usage
        self._times = self._times.beside(event.times)
        self._unfinished -= 1
        if self._unfinished:
            return parts
        timing, usage, times = event.timing, self._usage, self._times
        if self._has_timings and isinstance(last := parts[-1], dict):
            parts[-1] = {**last, "timings": timings_body(usage, times)}
        parts = [
            {**part, **self._nvext(timing, usage, times)}
            if isinstance(part, dict) and any(map(_finishes, part["choices"]))
            else part
            for part in parts
        ]
        if self._annotates_timing:
            parts.append(Annotation("timing", self._timing(timing, usage, times)))
        return parts

    def kept(self, event: OutputEvent) -> OutputEvent:
        return self._inner.kept(event)

    def full(self, completion: Completion) -> Payload:
        whole, usage, times = self._inner.full(completion), completion.usage, completion.times
        if self._has_timings:
            whole = {**whole, "timings": timings_body(usage, times)}
        return {**whole, **self._nvext(completion.timing, usage, times)}

    def _nvext(self, timing: Timing | None, usage: Usage, times: AnswerTimes) -> Payload:
        if not self._extra_fields:
            return {}
        extra: dict[str, Any] = {}
        if "timing" in self._extra_fields:
            extra["timing"] = self._timing(timing, usage, times)
        if "worker_id" in self._extra_fields:
            worker = worker_number(self._card)
            extra["worker_id"] = {"prefill_worker_id": worker, "decode_worker_id": worker}
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


async def prompt_annotations(
    service: Service,
    tokenizer: Tokenizer,
    request: GenerationRequest,
    card: ModelCard,
    names: Collection[str],
) -> list[Annotation]:
    """The annotations with these names; for several prompts each value is a list.

    Raises what a generation of the request would raise.
    """
    if not names:
        return []
    found = []
    if "request_id" in names:
        found.append(Annotation("request_id", request.id))
    prompts = await service.engine_requests(request, card)
    if "formatted_prompt" in names:
        found.append(Annotation("formatted_prompt", _unwrapped([one.text for one in prompts])))
    if "token_ids" in names:
        ids = [list((await tokenizer.admit(one)).ids) for one in prompts]
        found.append(Annotation("token_ids", _unwrapped(ids)))
    return found


def _unwrapped(values: list[Any]) -> Any:
    return values[0] if len(values) == 1 else values
