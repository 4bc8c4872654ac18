"""What in-flight batching gains, in one run: rows, late arrivals, guides, and the whole API.

usage: make bench-engine        writes bench/engine.json and bench/engine.png

Every comparison alternates its ways within one run and takes medians of ROUNDS rounds; the
machine's noise is in the spread, which is printed beside. Figures are ratios first.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt

sys.path.append(str(Path(__file__).parents[2] / "model_repository" / "engine" / "1"))

from build_engines.build import build_all
from build_engines.models_file import ModelsFile, OnnxEntry, load
from port import Guide
from tests.bench.engine_ways import Arrival, GenaiEngine, OurEngine
from tests.bench.plot import draw_bars
from tests.fixtures.random_model import make

ROOT = Path(__file__).parents[2]
TARGET = ROOT / "bench"
ROUNDS = 5
PROMPT_TOKENS, NEW_TOKENS = 50, 150
THREADS = 2
# Weights of 110 MB: beyond a CPU's cache, as those of any model that is of use.
LARGER = {
    "hidden_size": 512,
    "intermediate_size": 1408,
    "num_hidden_layers": 10,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
}
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


Ints = npt.NDArray[np.int64]
Lengths = Callable[[np.random.Generator, int], Ints]


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def prompts(count: int, seed: int = 0) -> list[list[int]]:
    random = np.random.default_rng(seed)
    return [random.integers(3, 500, PROMPT_TOKENS).tolist() for _ in range(count)]


def together(count: int, seed: int) -> list[Arrival]:
    return [Arrival(0.0, prompt, NEW_TOKENS) for prompt in prompts(count, seed)]


def even_lengths(random: np.random.Generator, count: int) -> Ints:
    return random.integers(20, 301, count)


def chat_lengths(random: np.random.Generator, count: int) -> Ints:
    """Four answers of five are short."""
    is_short = random.random(count) < 0.8
    return np.where(is_short, random.integers(10, 60, count), random.integers(200, 400, count))


def spread(lengths_of: Lengths, count: int, seed: int) -> list[Arrival]:
    """At random moments, 10 ms apart in the mean."""
    random = np.random.default_rng(seed)
    moments = np.cumsum(random.exponential(0.01, count))
    lengths = lengths_of(random, count)
    return [
        Arrival(float(moment), prompt, int(length))
        for moment, prompt, length in zip(moments, prompts(count, seed), lengths, strict=True)
    ]


def medians(ways: dict[str, Callable[[int], float]]) -> dict[str, float]:
    """Each way's median over the rounds, which alternate; told with the spread."""
    found: dict[str, list[float]] = {name: [] for name in ways}
    for round_number in range(ROUNDS):
        for name, way in ways.items():
            found[name].append(way(round_number))
    for name, values in found.items():
        low, high = min(values), max(values)
        say(f"  {name:34} {statistics.median(values):10.1f}   ({low:.1f} to {high:.1f})")
    return {name: statistics.median(values) for name, values in found.items()}


def decode_rows(artifacts: Path, counts: tuple[int, ...]) -> dict[str, float]:
    engine = OurEngine(artifacts, rows=32, threads=THREADS)

    def rate(rows: int) -> Callable[[int], float]:
        return lambda number: engine.run(together(rows, number)).decode_rate

    found = medians({f"{rows} rows": rate(rows) for rows in counts})
    engine.close()
    return found


def late_arrivals(artifacts: Path, lengths: Lengths) -> dict[str, float]:
    engines = {
        "ours": OurEngine(artifacts, rows=16, threads=THREADS),
        "onnxruntime-genai Engine": GenaiEngine(artifacts),
    }
    first_ms: dict[str, list[float]] = {name: [] for name in engines}

    def run(name: str) -> Callable[[int], float]:
        def once(number: int) -> float:
            outcome = engines[name].run(spread(lengths, 96, number))
            first_ms[name] += outcome.first_token_ms()
            return outcome.tokens_a_second

        return once

    found = medians({name: run(name) for name in engines})
    for name, values in first_ms.items():
        found[f"{name}, TTFT p50 ms"] = statistics.median(values)
        say(f"  {name}: time to first token, p50 {statistics.median(values):.1f} ms")
    engines["ours"].close()
    return found


def guided(artifacts: Path) -> dict[str, float]:
    """Microseconds a token of one stream, free and held to a schema of twenty fields."""
    engine = OurEngine(artifacts, rows=8, threads=THREADS)
    guide = Guide("json_schema", json.dumps(SCHEMA))
    engine.run(together(1, 0), guide)  # compiles it

    def cost(streams: int, held_to: Guide | None) -> Callable[[int], float]:
        return lambda number: 1e6 / engine.run(together(streams, number), held_to).decode_rate

    found = medians(
        {
            "1 stream, free": cost(1, None),
            "1 stream, schema": cost(1, guide),
            "8 streams, free": cost(8, None),
            "8 streams, schema": cost(8, guide),
        }
    )
    engine.close()
    return found


def larger_model() -> Path:
    """A Llama with random weights, built once."""
    folder = ROOT / "artifacts" / "bench"
    if not (folder / "weights").is_dir():
        make("llama", folder / "weights", sizes=LARGER)
    entries = {"larger": OnnxEntry(weights=folder / "weights")}
    build_all(ModelsFile(models=entries), folder, say=say)
    return folder / "larger"


def whole_api() -> dict[str, float]:
    """Tokens a second through the proxy: eight streams one after another, and at once."""
    from tests.bench.api_streams import Api

    with tempfile.TemporaryDirectory() as folder, Api(Path(folder)) as api:
        return medians(
            {
                "32 streams, one after another": lambda _: asyncio.run(api.rate(32, at_once=1)),
                "32 streams, 8 at once": lambda _: asyncio.run(api.rate(32, at_once=8)),
            }
        )


def main() -> None:
    build_all(load(ROOT / "models.yaml"), ROOT / "artifacts", say=say)
    demo, larger = ROOT / "artifacts" / "demo", larger_model()
    began = time.monotonic()
    say(f"demo: tokens a second while all rows decode ({THREADS} threads)")
    rows = decode_rows(demo, (1, 2, 4, 8, 16, 32))
    say("a model of 28 M parameters: the same")
    larger_rows = decode_rows(larger, (1, 4, 8, 16))
    say("demo: tokens a second, requests at random moments, four of five answers short")
    arrivals = late_arrivals(demo, chat_lengths)
    say("demo: the same, answers of 20 to 300 tokens alike")
    even_arrivals = late_arrivals(demo, even_lengths)
    say("demo: microseconds a token")
    guides = guided(demo)
    say("demo: tokens a second through the whole API")
    api = whole_api()
    figures = {
        "rows": rows, "larger rows": larger_rows, "arrivals": arrivals,
        "even arrivals": even_arrivals, "guides": guides,
        "api": api,
    }  # fmt: skip
    figures["ratios"] = told_ratios(figures)
    TARGET.mkdir(exist_ok=True)
    (TARGET / "engine.json").write_text(json.dumps(figures, indent=2) + "\n")
    draw_bars(
        "Decoding: tokens a second against one row's, by rows in the batch",
        "times one row's",
        {
            name: {
                "demo, 5 M parameters": rows[name] / rows["1 rows"],
                "28 M parameters": larger_rows[name] / larger_rows["1 rows"],
            }
            for name in larger_rows
        },
        TARGET / "engine.png",
    )
    say(f"{TARGET.name}/engine.json and {TARGET.name}/engine.png, {time.monotonic() - began:.0f} s")


def told_ratios(figures: dict[str, dict[str, float]]) -> dict[str, float]:
    rows, larger = figures["rows"], figures["larger rows"]
    guides, api = figures["guides"], figures["api"]
    ratios = {
        "8 rows over 1, demo": rows["8 rows"] / rows["1 rows"],
        "8 rows over 1, 28 M parameters": larger["8 rows"] / larger["1 rows"],
        "over genai's Engine, most answers short": over_genai(figures["arrivals"]),
        "over genai's Engine, even lengths": over_genai(figures["even arrivals"]),
        "8 streams at once over one after another": api["32 streams, 8 at once"]
        / api["32 streams, one after another"],
        "schema over free, 1 stream": guides["1 stream, schema"] / guides["1 stream, free"],
        "schema over free, 8 streams": guides["8 streams, schema"] / guides["8 streams, free"],
    }
    say("ratios")
    for name, value in ratios.items():
        say(f"  {name:44} {value:6.2f}")
    return ratios


def over_genai(figures: dict[str, float]) -> float:
    return figures["ours"] / figures["onnxruntime-genai Engine"]


if __name__ == "__main__":
    main()
