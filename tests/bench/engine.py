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

sys.path.append(str(Path(__file__).parents[2] / "model_repository" / "engine" / "1"))

from port import Guide

from build_engines.build import build_all
from build_engines.models_file import ModelsFile, load
from tests.bench.engine_ways import Arrivals, GenaiEngine, OurEngine, Outcome
from tests.bench.plot import draw_bars

ROOT = Path(__file__).parents[2]
TARGET = ROOT / "bench"
ROUNDS = 5
PROMPT_TOKENS, NEW_TOKENS = 50, 150
FIELDS = {f"field_{number}": {"type": "string", "maxLength": 12} for number in range(20)}
SCHEMA = {
    "type": "object",
    "properties": FIELDS,
    "required": list(FIELDS),
    "additionalProperties": False,
}


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def prompts(count: int, seed: int = 0) -> list[list[int]]:
    random = np.random.default_rng(seed)
    return [random.integers(3, 2000, PROMPT_TOKENS).tolist() for _ in range(count)]


def together(count: int, seed: int) -> Arrivals:
    return [(0.0, prompt) for prompt in prompts(count, seed)]


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


def decode_rows(artifacts: Path, threads: int) -> dict[str, float]:
    engine = OurEngine(artifacts, rows=32, threads=threads)

    def rate(rows: int) -> Callable[[int], float]:
        return lambda number: engine.run(together(rows, number), NEW_TOKENS).decode_rate

    found = medians({f"{rows} rows": rate(rows) for rows in (1, 2, 4, 8, 16, 32)})
    engine.close()
    return found


def late_arrivals(artifacts: Path, threads: int) -> dict[str, float]:
    """Sixteen requests that come one after another while others run."""
    ours, theirs = OurEngine(artifacts, rows=16, threads=threads), GenaiEngine(artifacts)

    def spread(seed: int) -> Arrivals:
        return [(0.02 * place, prompt) for place, prompt in enumerate(prompts(16, seed))]

    outcomes: dict[str, list[Outcome]] = {"ours": [], "onnxruntime-genai Engine": []}

    def run(name: str, engine: OurEngine | GenaiEngine) -> Callable[[int], float]:
        def once(number: int) -> float:
            outcomes[name].append(engine.run(spread(number), NEW_TOKENS))
            return outcomes[name][-1].tokens_a_second

        return once

    found = medians(
        {
            "ours": run("ours", ours),
            "onnxruntime-genai Engine": run("onnxruntime-genai Engine", theirs),
        }
    )
    for name, runs in outcomes.items():
        ttft = statistics.median(ms for one in runs for ms in one.first_token_ms())
        say(f"  {name}: time to first token, p50 {ttft:.1f} ms")
        found[f"{name}, TTFT p50 ms"] = ttft
    ours.close()
    return found


def guided(artifacts: Path, threads: int) -> dict[str, float]:
    """Microseconds a token of one stream, free and held to a schema of twenty fields."""
    engine = OurEngine(artifacts, rows=8, threads=threads)
    guide = Guide("json_schema", json.dumps(SCHEMA))
    engine.run(together(1, 0), 4, guide)  # compiles it

    def cost(streams: int, held_to: Guide | None) -> Callable[[int], float]:
        return lambda number: (
            1e6 / engine.run(together(streams, number), NEW_TOKENS, held_to).decode_rate
        )

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


def whole_api() -> dict[str, float]:
    """Tokens a second through the proxy: eight streams one after another, and at once."""
    from tests.bench.api_streams import Api

    with tempfile.TemporaryDirectory() as folder, Api(Path(folder)) as api:
        return medians(
            {
                "8 streams, one after another": lambda _: asyncio.run(api.rate(8, at_once=1)),
                "8 streams at once": lambda _: asyncio.run(api.rate(8, at_once=8)),
            }
        )


def main() -> None:
    threads = 2
    models: ModelsFile = load(ROOT / "models.yaml")
    artifacts = ROOT / "artifacts"
    build_all(models, artifacts, say=say)
    demo = artifacts / "demo"
    began = time.monotonic()
    say(f"tokens a second while all rows decode ({threads} threads)")
    rows = decode_rows(demo, threads)
    say("tokens a second, a request every 20 ms")
    arrivals = late_arrivals(demo, threads)
    say("microseconds a token")
    guides = guided(demo, threads)
    say("tokens a second through the whole API")
    api = whole_api()
    ratios = {
        "8 rows over 1": rows["8 rows"] / rows["1 rows"],
        "over onnxruntime-genai's Engine": arrivals["ours"] / arrivals["onnxruntime-genai Engine"],
        "8 streams at once over one after another": api["8 streams at once"]
        / api["8 streams, one after another"],
        "schema over free, 1 stream": guides["1 stream, schema"] / guides["1 stream, free"],
        "schema over free, 8 streams": guides["8 streams, schema"] / guides["8 streams, free"],
    }
    say("ratios")
    for name, value in ratios.items():
        say(f"  {name:44} {value:6.2f}")
    TARGET.mkdir(exist_ok=True)
    figures = {"rows": rows, "arrivals": arrivals, "guides": guides, "api": api, "ratios": ratios}
    (TARGET / "engine.json").write_text(json.dumps(figures, indent=2) + "\n")
    draw_bars(
        "Decoding: tokens a second by rows in the batch",
        "tokens a second",
        {name: {"engine": value} for name, value in rows.items()},
        TARGET / "engine.png",
    )
    say(f"{TARGET.name}/engine.json and {TARGET.name}/engine.png, {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
