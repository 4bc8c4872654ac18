"""What in-flight batching gains, in one run: rows, late arrivals, guides, and the whole API.

usage: make bench-engine        writes bench/engine.json

Every comparison alternates its ways within one run and takes medians of ROUNDS rounds; the
machine's noise is in the spread, which is printed beside. Figures are ratios first.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).parents[2] / "model_repository" / "engine" / "1"))

import onnxruntime_genai

from block_log import BlockLog
from build_engines.build import build_all
from build_engines.models_file import ModelsFile, OnnxEntry, load
from guides.compiler import GuideCompiler
from onnx_cpu.decoder import OnnxDecoder
from onnx_cpu.prefix_cache import BLOCK
from onnx_cpu.runtime import OnnxRuntime
from onnx_cpu.scheduler import SchedulerConfig
from port import GenerationInput, Guide, Job, SamplingParams
from tests.bench.scripted_stack import demo, running
from tests.doubles.sink import KeptTokens
from tests.fixtures.random_model import medium
from tests.fixtures.stack import ROOT

TARGET = ROOT / "bench"
ROUNDS = 5
PROMPT_TOKENS, NEW_TOKENS = 50, 150
THREADS = 2
KINDS: dict[str, dict[str, object]] = {
    "name": {"type": "string"},
    "age": {"type": "integer"},
    "score": {"type": "number"},
    "active": {"type": "boolean"},
    "color": {"enum": ["red", "green", "blue"]},
}
FIELDS = {f"{name}_{n}": kind for n in range(4) for name, kind in KINDS.items()}
SCHEMA = {
    "type": "object",
    "properties": FIELDS,
    "required": list(FIELDS),
    "additionalProperties": False,
}
Figures = dict[str, float]


@dataclass(frozen=True)
class Arrival:
    """A request: when it comes, in seconds, its prompt, and how many tokens it wants."""

    moment: float
    prompt: list[int]
    max_tokens: int


@dataclass
class Outcome:
    """Seconds since the start: when each token of each request came."""

    arrivals: list[float]
    times: list[list[float]] = field(default_factory=list)

    @property
    def tokens_a_second(self) -> float:
        return sum(map(len, self.times)) / max(times[-1] for times in self.times)

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

    def __init__(self, artifacts: Path, *, rows: int) -> None:
        decoder = OnnxDecoder(
            artifacts / "engine", threads=THREADS, rows=rows + 1, context_length=1024
        )
        config = SchedulerConfig(rows=rows, step_tokens=512, kv_bytes=2_000_000_000)
        guides = GuideCompiler(artifacts / "guide.json", cache_bytes=100_000_000, threads=1)
        self._runtime = OnnxRuntime(
            decoder, guides, config, end_ids=frozenset(), blocks=BlockLog("bench", BLOCK)
        )

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
            self._runtime.submit(Job(str(number), wanted, sink))
            sinks.append(sink)
        for sink in sinks:
            sink.is_over.wait()
        return outcome

    def close(self) -> None:
        self._runtime.close()


class GenaiEngine:
    """onnxruntime-genai's Engine as it comes."""

    def __init__(self, artifacts: Path) -> None:
        self._engine = onnxruntime_genai.Engine(onnxruntime_genai.Model(str(artifacts / "engine")))
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
                if event.flags & onnxruntime_genai.EngineEventFlags.TOKEN:
                    times = outcome.times[numbers[event.request]]
                    times.append(time.perf_counter() - start)
        return outcome

    def _begin(self, arrival: Arrival) -> onnxruntime_genai.Request:
        request = self._engine.create_request()
        options = onnxruntime_genai.TurnOptions(request)
        options.set_do_sample(False)
        options.set_min_generated_tokens(arrival.max_tokens)
        options.set_max_generated_tokens(arrival.max_tokens)
        request.begin_turn(np.array(arrival.prompt, np.int32), options)
        return request


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def prompts(count: int, seed: int) -> list[list[int]]:
    random = np.random.default_rng(seed)
    return [random.integers(3, 500, PROMPT_TOKENS).tolist() for _ in range(count)]


def together(count: int, seed: int) -> list[Arrival]:
    return [Arrival(0.0, prompt, NEW_TOKENS) for prompt in prompts(count, seed)]


def spread(count: int, seed: int) -> list[Arrival]:
    """At random moments, 10 ms apart in the mean; four answers of five are short."""
    random = np.random.default_rng(seed)
    moments = np.cumsum(random.exponential(0.01, count))
    is_short = random.random(count) < 0.8
    lengths = np.where(is_short, random.integers(10, 60, count), random.integers(200, 400, count))
    return [
        Arrival(float(moment), prompt, int(length))
        for moment, prompt, length in zip(moments, prompts(count, seed), lengths, strict=True)
    ]


def medians(ways: dict[str, Callable[[int], float]]) -> Figures:
    """Each way's median over the rounds, which alternate; printed with the spread."""
    found: dict[str, list[float]] = {name: [] for name in ways}
    for round_number in range(ROUNDS):
        for name, way in ways.items():
            found[name].append(way(round_number))
    for name, values in found.items():
        low, high = min(values), max(values)
        say(f"  {name:34} {statistics.median(values):10.1f}   ({low:.1f} to {high:.1f})")
    return {name: statistics.median(values) for name, values in found.items()}


def decode_rows(artifacts: Path) -> Figures:
    """Tokens a second while all rows decode."""
    engine = OurEngine(artifacts, rows=16)
    ways = {
        f"{rows} rows": lambda number, rows=rows: engine.run(together(rows, number)).decode_rate
        for rows in (1, 4, 8, 16)
    }
    found = medians(ways)
    engine.close()
    return found


def late_arrivals(artifacts: Path) -> Figures:
    """Tokens a second, and milliseconds to the first token."""
    engines = {
        "ours": OurEngine(artifacts, rows=16),
        "onnxruntime-genai Engine": GenaiEngine(artifacts),
    }
    first_ms: dict[str, list[float]] = {name: [] for name in engines}

    def run(number: int, name: str) -> float:
        outcome = engines[name].run(spread(96, number))
        first_ms[name] += outcome.first_token_ms()
        return outcome.tokens_a_second

    found = medians({name: lambda number, name=name: run(number, name) for name in engines})
    for name, values in first_ms.items():
        found[f"{name}, TTFT p50 ms"] = statistics.median(values)
        say(f"  {name}: time to first token, p50 {statistics.median(values):.1f} ms")
    engines["ours"].close()
    return found


def guided(artifacts: Path) -> Figures:
    """Microseconds a token, free and held to a schema of twenty fields."""
    engine = OurEngine(artifacts, rows=8)
    guide = Guide("json_schema", json.dumps(SCHEMA))
    engine.run(together(1, 0), guide)  # compiles it

    def cost(number: int, streams: int, held_to: Guide | None) -> float:
        return 1e6 / engine.run(together(streams, number), held_to).decode_rate

    found = medians(
        {
            f"{streams} streams, {name}": lambda n, s=streams, g=held_to: cost(n, s, g)
            for streams in (1, 8)
            for name, held_to in (("free", None), ("schema", guide))
        }
    )
    engine.close()
    return found


def larger_model() -> Path:
    """A Llama with random weights of 110 MB, beyond a CPU's cache as those of any useful model."""
    folder = ROOT / "artifacts" / "bench"
    entries = {"larger": OnnxEntry(weights=medium(folder / "weights"))}
    build_all(ModelsFile(models=entries), folder, say=say)
    return folder / "larger"


def whole_api() -> Figures:
    """Tokens a second through the proxy."""
    with running({"demo": demo()}) as bench:

        def rate(streams: int) -> float:
            return bench.through_proxy("demo", streams, 100, ignore_eos=True)["tokens_per_s"]

        return medians({f"{streams} streams": lambda _, s=streams: rate(s) for streams in (1, 8)})


def main() -> None:
    build_all(load(ROOT / "models.yaml"), ROOT / "artifacts", say=say)
    artifacts = ROOT / "artifacts" / "demo"
    say(f"a model of 29 M parameters: tokens a second while all rows decode ({THREADS} threads)")
    rows = decode_rows(larger_model())
    say("demo: tokens a second, requests at random moments, four of five answers short")
    arrivals = late_arrivals(artifacts)
    say("demo: microseconds a token")
    guides = guided(artifacts)
    say("demo: tokens a second through the whole API")
    api = whole_api()
    ratios = {
        "8 rows over 1, 29 M parameters": rows["8 rows"] / rows["1 rows"],
        "over genai's Engine": arrivals["ours"] / arrivals["onnxruntime-genai Engine"],
        "8 streams at once over one": api["8 streams"] / api["1 streams"],
        "schema over free, 1 stream": guides["1 streams, schema"] / guides["1 streams, free"],
        "schema over free, 8 streams": guides["8 streams, schema"] / guides["8 streams, free"],
    }
    say("ratios")
    for name, value in ratios.items():
        say(f"  {name:44} {value:6.2f}")
    figures = {"rows": rows, "arrivals": arrivals, "guides": guides, "api": api, "ratios": ratios}
    TARGET.mkdir(exist_ok=True)
    (TARGET / "engine.json").write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
