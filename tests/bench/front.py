"""What a token costs between the engine and the client's socket. Real stack, scripted engine.

usage: make bench            writes front.json and benchmarks.md into bench/
       BENCH_SHORT=1         one round of little: to see that it works
       python -m tests.bench.front FOLDER [SECTION...]

Ways alternate within a round; every figure is the median of ROUNDS rounds.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.bench.scripted_stack import SCRIPTED, BenchStack, Processes, running
from tests.fixtures.stack import ROOT

WORD = "word "  # one token or two in most vocabularies
Run = Callable[..., dict[str, float]]
Rows = dict[str, dict[str, float]]
COLUMNS = {
    "tokens/s": ("tokens_per_s", 0),
    "tokens an arrival": ("tokens_an_arrival", 1),
    "TTFT p50 ms": ("ttft_p50_ms", 1),
    "TTFT p99 ms": ("ttft_p99_ms", 1),
    "gap p50 ms": ("gap_p50_ms", 1),
    "gap p99 ms": ("gap_p99_ms", 1),
    "proxy µs": ("proxy_us", 1),
    "tritonserver µs": ("tritonserver_us", 1),
    "tokenizer µs": ("tokenizer_us", 1),
    "engine µs": ("engine_us", 1),
    "detokenizer µs": ("detokenizer_us", 1),
    "client µs": ("client_us", 1),
    "proxy MB": ("proxy_mb", 0),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How much is measured. `tokens`: of all streams of one run together."""

    rounds: int
    streams: tuple[int, ...]
    tokens: int
    paced_tokens: int
    prompts: tuple[int, ...]
    tools: tuple[int, ...]
    idle_streams: int
    idle_tokens: int
    steady_streams: int
    steady_s: float
    steady_tokens: int


FULL = Scale(
    rounds=5, streams=(1, 16, 64, 256), tokens=64_000, paced_tokens=300,
    prompts=(100, 1000, 10_000, 30_000), tools=(1, 16, 128), idle_streams=1000, idle_tokens=20,
    steady_streams=256, steady_s=180, steady_tokens=1000,
)  # fmt: skip
SHORT = Scale(
    rounds=1, streams=(1, 16), tokens=2000, paced_tokens=50,
    prompts=(100, 1000), tools=(1, 16), idle_streams=50, idle_tokens=2,
    steady_streams=16, steady_s=3, steady_tokens=50,
)  # fmt: skip


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def measured(ways: dict[str, Run], rounds: int) -> Rows:
    """Each way's medians over the rounds, which alternate."""
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, run in ways.items():
            runs[name].append(run())
    found = {
        name: {figure: statistics.median(run[figure] for run in each) for figure in each[0]}
        for name, each in runs.items()
    }
    for name, figures in found.items():
        say(f"  {name:28} {figures['tokens_per_s']:9.0f} tokens/s")
    return found


def streams(stack: BenchStack, scale: Scale) -> Rows:
    """Straight to the ensemble, and through the proxy: flood, and paced."""
    found: Rows = {}
    for count in scale.streams:
        each, paced = min(2000, scale.tokens // count), scale.paced_tokens
        ways: dict[str, Run] = {
            f"direct, flood, {count}": lambda n=count, t=each: stack.direct("flood", n, t),
            f"proxy, flood, {count}": lambda n=count, t=each: stack.through_proxy("flood", n, t),
            f"direct, paced, {count}": lambda n=count, t=paced: stack.direct("paced", n, t),
            f"proxy, paced, {count}": lambda n=count, t=paced: stack.through_proxy("paced", n, t),
        }
        found |= measured(ways, scale.rounds)
    return found


def requests(stack: BenchStack, scale: Scale) -> Rows:
    """Answers of one token, so that a token's cost is a request's; then log-probabilities."""

    def with_words(count: int) -> Run:
        messages = [{"role": "user", "content": WORD * count}]
        return lambda: stack.through_proxy("paced", 8, 1, messages=messages)

    def with_tools(count: int) -> Run:
        return lambda: stack.through_proxy("paced", 8, 1, tools=[_tool(n) for n in range(count)])

    ways = {f"8 requests, {count} words": with_words(count) for count in scale.prompts}
    ways |= {f"8 requests, {count} tools": with_tools(count) for count in scale.tools}
    for top in (None, 0, 5, 20):
        more = {} if top is None else {"logprobs": True, "top_logprobs": top}
        name = "no log-probs" if top is None else f"{top} alternatives"
        ways[f"16 streams, {name}"] = lambda more=more: stack.through_proxy(
            "paced", 16, scale.paced_tokens, **more
        )
    return measured(ways, scale.rounds)


def _tool(number: int) -> dict[str, Any]:
    properties = {name: {"type": "string", "description": name} for name in ("city", "day")}
    schema = {"type": "object", "properties": properties, "required": ["city"]}
    function = {"name": f"tool_{number}", "description": "What it does.", "parameters": schema}
    return {"type": "function", "function": function}


def idle(stack: BenchStack, scale: Scale) -> Rows:
    """Many streams, a token a second each."""
    before = Processes(stack.stack, "slow").usage().memory["proxy"]
    found = measured(
        {
            f"{scale.idle_streams} idle streams": lambda: stack.through_proxy(
                "slow", scale.idle_streams, scale.idle_tokens
            )
        },
        rounds=1,
    )
    for figures in found.values():
        figures["proxy_mb_before"] = before / 1e6
    return found


def steady(stack: BenchStack, scale: Scale) -> Rows:
    """As a GPU makes them, 20,000 tokens a second of 256 streams; each third of the time."""
    windows = stack.steady(
        "gpu",
        scale.steady_streams,
        scale.steady_tokens,
        seconds=scale.steady_s,
        window_s=scale.steady_s / 3,
    )
    found = {}
    for number, figures in enumerate(windows, 1):
        name = f"{scale.steady_streams} streams, {scale.steady_s / 3:.0f} s, part {number}"
        found[name] = figures
        say(f"  {name:28} {figures['tokens_per_s']:9.0f} tokens/s")
    return found


def page(report: dict[str, Any]) -> str:
    """docs/generated/benchmarks.md. µs: CPU microseconds a token."""
    lines = [
        "# Figures of `make bench`",
        "",
        "[Benchmarks](../performance.md) says what they mean.",
        "",
        f"{report['machine']}; medians of {report['rounds']}, "
        f"{report['seconds']} s in all; CPU is microseconds a token.",
        "",
        "| | " + " | ".join(COLUMNS) + " |",
        "|---|" + "---:|" * len(COLUMNS),
    ]
    for rows in report["sections"].values():
        for name, row in rows.items():
            cells = [f"{row[key]:,.{digits}f}" for key, digits in COLUMNS.values()]
            lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join([*lines, ""])


SECTIONS = {section.__name__: section for section in (streams, requests, steady, idle)}


def main(target: Path, names: list[str]) -> None:
    is_short = bool(os.environ.get("BENCH_SHORT"))
    scale, began = SHORT if is_short else FULL, time.time()
    rows: dict[str, Rows] = {}
    with running(SCRIPTED) as stack:
        for name in names or SECTIONS:
            say(name)
            rows[name] = SECTIONS[name](stack, scale)
    report = {
        "machine": f"{os.cpu_count()} cores, Python {platform.python_version()}",
        "began": int(began),
        "seconds": round(time.time() - began),
        "rounds": scale.rounds,
        "is_short": is_short,
        "sections": rows,
    }
    target.mkdir(exist_ok=True)
    (target / "front.json").write_text(json.dumps(report, indent=2) + "\n")
    (target / "benchmarks.md").write_text(page(report))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "bench", sys.argv[2:])
