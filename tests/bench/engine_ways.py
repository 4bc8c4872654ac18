"""Ways to run the same generations: our scheduler, and onnxruntime-genai's own Engine.

Each takes arrivals and gives greedy answers of the lengths that they ask for.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from guides.compiler import GuideCompiler
from onnx_cpu.decoder import OnnxDecoder
from onnx_cpu.runtime import OnnxRuntime
from onnx_cpu.scheduler import SchedulerConfig
from port import GenerationInput, Guide, Job, SamplingParams
from tests.doubles.sink import KeptTokens


@dataclass(frozen=True)
class Arrival:
    """A request: when it comes, in seconds, what it says, and how many tokens it wants."""

    moment: float
    prompt: list[int]
    max_tokens: int


@dataclass
class Outcome:
    """Seconds since the start: when each token of each request came."""

    arrivals: list[float]
    times: list[list[float]] = field(default_factory=list)

    @property
    def tokens(self) -> int:
        return sum(map(len, self.times))

    @property
    def tokens_a_second(self) -> float:
        return self.tokens / max(times[-1] for times in self.times)

    @property
    def decode_rate(self) -> float:
        """Tokens a second while all of them decode."""
        start, stop = max(times[0] for times in self.times), min(t[-1] for t in self.times)
        inside = sum(start < moment <= stop for times in self.times for moment in times)
        return inside / (stop - start)

    def first_token_ms(self) -> list[float]:
        pairs = zip(self.arrivals, self.times, strict=True)
        return [1000 * (times[0] - arrival) for arrival, times in pairs]


class OurEngine:
    """The onnx runtime, without Triton around it."""

    def __init__(self, artifacts: Path, *, rows: int, threads: int) -> None:
        decoder = OnnxDecoder(
            artifacts / "engine", threads=threads, rows=rows + 1, context_length=1024
        )
        config = SchedulerConfig(rows=rows, step_tokens=512, kv_bytes=2_000_000_000)
        guides = GuideCompiler(artifacts / "guide.json", cache_bytes=100_000_000, threads=1)
        self.runtime = OnnxRuntime(decoder, guides, config, end_ids=frozenset())

    def run(self, arrivals: list[Arrival], guide: Guide | None = None) -> Outcome:
        outcome = Outcome([arrival.moment for arrival in arrivals])
        start, sinks = time.perf_counter(), []
        for number, arrival in enumerate(arrivals):
            time.sleep(max(0.0, start + arrival.moment - time.perf_counter()))
            times: list[float] = []
            outcome.times.append(times)
            sink = KeptTokens(lambda _, times=times: times.append(time.perf_counter() - start))
            wanted = GenerationInput(
                prompt_ids=arrival.prompt,
                max_tokens=arrival.max_tokens,
                sampling=SamplingParams(temperature=0),
                guide=guide,
            )
            self.runtime.submit(Job(str(number), wanted, sink))
            sinks.append(sink)
        for sink in sinks:
            sink.is_over.wait()
        return outcome

    def close(self) -> None:
        self.runtime.close()


class GenaiEngine:
    """onnxruntime-genai's Engine as it comes."""

    def __init__(self, artifacts: Path) -> None:
        import onnxruntime_genai

        self._genai = onnxruntime_genai
        self._model = onnxruntime_genai.Model(str(artifacts / "engine"))
        self._engine = onnxruntime_genai.Engine(self._model)
        self._buffer = self._engine.create_event_buffer(256)

    def run(self, arrivals: list[Arrival]) -> Outcome:
        outcome = Outcome([arrival.moment for arrival in arrivals])
        waiting, numbers, start = list(arrivals), {}, time.perf_counter()
        while waiting or self._engine.has_pending_requests():
            now = time.perf_counter() - start
            while waiting and waiting[0].moment <= now:
                numbers[self._begin(waiting.pop(0))] = len(outcome.times)
                outcome.times.append([])
            if not self._engine.has_pending_requests():
                time.sleep(0.0005)
                continue
            for event in self._engine.run(self._buffer):
                if event.flags & self._genai.EngineEventFlags.TOKEN:
                    times = outcome.times[numbers[event.request]]
                    times.append(time.perf_counter() - start)
        return outcome

    def _begin(self, arrival: Arrival):
        request = self._engine.create_request()
        options = self._genai.TurnOptions(request)
        options.set_do_sample(False)
        options.set_min_generated_tokens(arrival.max_tokens)
        options.set_max_generated_tokens(arrival.max_tokens)
        request.begin_turn(np.array(arrival.prompt, np.int32), options)
        return request
