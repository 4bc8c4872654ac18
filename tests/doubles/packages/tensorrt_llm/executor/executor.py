"""A thread that "decodes": a prompt is said again from its beginning, over and over.

An adapter says tokens whose ids are higher by its own.

`stand_in.json` in the model's folder changes that: `step_s`, `tokens_a_response`, `answer` (ids
said instead), `empty_last` (the end comes in a response without tokens), `crash_at` (the executor
dies when a request has so many tokens), `error_at` (only the request does), `stall_at` (the
executor stands still, without an error, while a request has so many tokens), `alternatives` (ranks
that have log-probabilities, the token said being rank 1), `ignores_guides`, `stillborn` (it is
dead from the beginning), `hides_end` (an end token is not in the output, as with TRTLLMSampler),
`kv_blocks` (how many blocks of prompts are kept; the newest are evicted first), `lost_event` (an
event that does not arrive).
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..sampling_params import SamplingParams
from .guide import Guided
from .request import LoRARequest
from .result import GenerationResult, IterationResult, Logprob, Response

BLOCK = 32


@dataclass
class Request:
    prompt: list[int]
    sampling: SamplingParams
    result: GenerationResult
    guided: Guided | None
    adapter: LoRARequest | None
    cached: int
    said: list[int] = field(default_factory=list)
    unsent: list[int] = field(default_factory=list)


class GenerationExecutor:
    def __init__(self, model: Path, script: dict[str, Any]) -> None:
        self.script = script
        self.requests: list[tuple[list[int], SamplingParams, str | None]] = []
        self.adapters: list[LoRARequest | None] = []  # one a request
        self._model = model
        self.running: dict[int, Request] = {}
        self._seen: dict[tuple[object, tuple[int, ...]], None] = {}
        self._error_queue: queue.Queue[Exception] = queue.Queue()
        self.iterations: IterationResult | None = None
        self.kv_events: IterationResult | None = None
        self._events = 0
        self._lock = threading.Lock()
        self._is_shutdown = bool(script.get("stillborn"))
        threading.Thread(target=self._run, daemon=True).start()

    def is_shutdown(self) -> bool:
        return self._is_shutdown

    def shutdown(self) -> None:
        self._is_shutdown = True

    def submit(
        self,
        prompt: list[int],
        sampling: SamplingParams,
        adapter: LoRARequest | None,
        cache_salt: str | None,
    ) -> GenerationResult:
        with self._lock:
            if self.iterations is None:
                self.iterations, self.kv_events = IterationResult(), IterationResult()
                self._tell({"type": "created", "num_blocks_per_cache_level": [64, 0]})
            self.iterations.mark_undone()
            result = GenerationResult(len(self.requests), self)
            self.requests.append((prompt, sampling, cache_salt))
            self.adapters.append(adapter)
            guide = None if self.script.get("ignores_guides") else sampling.guided_decoding
            self.running[result.request_id] = Request(
                prompt,
                sampling,
                result,
                None if guide is None else Guided(self._model, guide),
                adapter,
                self._cached(prompt, (cache_salt, adapter and adapter.lora_int_id)),
            )
        self.handle_background_error()
        return result

    def handle_background_error(self) -> None:
        if not self._error_queue.empty():
            self._is_shutdown = True
            raise self._error_queue.get()

    def abort_request(self, request_id: int) -> None:
        with self._lock:
            request = self.running.pop(request_id, None)
        if request is not None:
            request.result.put(Response(finish_reason="cancelled"))

    def _cached(self, prompt: list[int], salt: object) -> int:
        ends = range(BLOCK, len(prompt), BLOCK)
        cached = max((end for end in ends if (salt, tuple(prompt[:end])) in self._seen), default=0)
        new = [(salt, tuple(prompt[:end])) for end in ends if end > cached]
        room = self.script.get("kv_blocks", 1_000_000)
        while self._seen and len(self._seen) + len(new) > room:
            self._tell({"type": "removed", "block_hashes": [hash(self._seen.popitem()[0])]})
        self._seen.update(dict.fromkeys(new))
        if new:
            before = (salt, tuple(prompt[:cached]))
            self._tell({
                "type": "stored",
                "parent_hash": hash(before) if cached else None,
                "blocks": [self._block(one) for one in new],
            })  # fmt: skip
        return cached

    def _block(self, block: tuple[object, tuple[int, ...]]) -> dict[str, Any]:
        tokens = [
            {"type": "unique_token", "token_id": token, "token_extra_id": 0}
            for token in block[1][-BLOCK:]
        ]
        own = {"type": "stored_block", "block_hash": hash(block), "tokens": tokens}
        return {**own, "cache_level": 0, "priority": 35}

    def _tell(self, data: dict[str, Any]) -> None:
        if self.kv_events is not None and self._events != self.script.get("lost_event"):
            self.kv_events.put({"event_id": self._events, "window_size": 4096, "data": data})
        self._events += 1

    def _run(self) -> None:
        while not self._is_shutdown:
            time.sleep(self.script.get("step_s", 0.001))
            with self._lock:
                batch = list(self.running.items())
            if any(len(one.said) == self.script.get("stall_at") for _, one in batch):
                continue
            for request_id, request in batch:
                self._step(request_id, request)
            if batch and self.iterations is not None:
                stats = {"numContextRequests": 0, "numGenRequests": len(batch)}
                blocks = {"maxNumBlocks": 40, "usedNumBlocks": len(batch), "tokensPerBlock": 32}
                iteration = {"inflightBatchingStats": stats, "kvCacheStats": blocks}
                self.iterations.put({"iterLatencyMS": 1.0, **iteration})

    def _step(self, request_id: int, request: Request) -> None:
        token = self._next(request)
        request.said.append(token)
        request.unsent.append(token)
        if len(request.said) == self.script.get("crash_at"):
            return self._crash()
        if len(request.said) == self.script.get("error_at"):
            self.running.pop(request_id, None)
            return request.result.put(Response(error="CUDA error in one request"))
        finish = self._finish(request, token)
        if finish is not None:
            with self._lock:
                if self.running.pop(request_id, None) is None:
                    return None  # aborted meanwhile
            if self.script.get("hides_end") and finish == "stop":
                request.unsent.pop()
                return request.result.put(Response(finish_reason=finish))
            if self.script.get("empty_last"):
                self._send(request, None)
            return self._send(request, finish)
        if len(request.unsent) >= self.script.get("tokens_a_response", 1):
            self._send(request, None)
        return None

    def _next(self, request: Request) -> int:
        answer = self.script.get("answer") or request.prompt
        token = answer[len(request.said) % len(answer)]
        token += 0 if request.adapter is None else request.adapter.lora_int_id
        if request.guided is not None:
            return request.guided.next()
        bias = request.sampling.embedding_bias
        if bias is not None and float(bias[token]) != 0:
            return int(bias.argmax())
        if [token] in request.sampling._get_bad_words():
            return token + 1
        return token

    def _finish(self, request: Request, token: int) -> str | None:
        sampling, said = request.sampling, len(request.said)
        is_end = token == sampling.end_id and not sampling.ignore_eos
        if (is_end and said >= (sampling.min_tokens or 0)) or token in (
            sampling.stop_token_ids or ()
        ):
            return "stop"
        return "length" if said >= sampling.max_tokens else None

    def _send(self, request: Request, finish: str | None) -> None:
        ids, request.unsent = request.unsent, []
        wanted = request.sampling.logprobs
        ranks = self.script.get("alternatives") or range(1, 1 + max(1, wanted or 0))
        logprobs = None if wanted is None else [_log_probs(token, ranks) for token in ids]
        request.result.put(Response(ids, logprobs, finish, cached_tokens=request.cached))

    def _crash(self) -> None:
        self._is_shutdown = True
        with self._lock:
            running, self.running = self.running, {}
        for request in running.values():
            request.result.put(Response(error="Error in thread: CUDA out of memory"))


def _log_probs(token: int, ranks: Iterable[int]) -> dict[int, Logprob]:
    return {token + rank - 1: Logprob(0.5 - rank, rank) for rank in ranks}
