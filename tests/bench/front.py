"""What a token costs between the engine and the client's socket. Real stack, scripted engine.

usage: make bench            writes front.json and front-*.png into bench/, prints the table
       BENCH_SHORT=1         one round of little: to see that it works
       python -m tests.bench.front FOLDER

Ways alternate within a round; every figure is the median of ROUNDS rounds. Where perf_analyzer is
on PATH, it measures the ensemble too, beside our own gRPC generator.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.bench import perf_analyzer, table
from tests.bench.figures import medians
from tests.bench.plot import draw_bars
from tests.bench.scripted_stack import SCRIPTED, BenchStack, demo, running
from tests.fixtures.stack import ROOT

WORD = "word "  # one token or two in most vocabularies
Run = Callable[..., dict[str, float]]
Rows = dict[str, dict[str, float]]


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


FULL = Scale(
    rounds=5, streams=(1, 16, 64, 256), tokens=64_000, paced_tokens=300,
    prompts=(100, 1000, 10_000, 30_000), tools=(1, 16, 128), idle_streams=1000, idle_tokens=20,
)  # fmt: skip
SHORT = Scale(
    rounds=1, streams=(1, 16), tokens=2000, paced_tokens=50,
    prompts=(100, 1000), tools=(1, 16), idle_streams=50, idle_tokens=2,
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
    found = {name: medians(each) for name, each in runs.items()}
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
        if perf_analyzer.path() is not None:
            ways[f"perf_analyzer, flood, {count}"] = lambda n=count, t=each: stack.perf_analyzer(
                "flood", n, t
            )
        found |= measured(ways, scale.rounds)
    return found


def onnx(stack: BenchStack, scale: Scale) -> Rows:
    return measured(
        {
            "direct, demo, 8": lambda: stack.direct("demo", 8, 64),
            "proxy, demo, 8": lambda: stack.through_proxy("demo", 8, 64, ignore_eos=True),
        },
        scale.rounds,
    )


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
    before = stack.processes("slow").usage().memory["proxy"]
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


def main(target: Path) -> None:
    is_short = bool(os.environ.get("BENCH_SHORT"))
    scale, began = SHORT if is_short else FULL, time.time()
    models = SCRIPTED if is_short else {**SCRIPTED, "demo": demo()}
    sections = [streams, requests, idle, *([] if is_short else [onnx])]
    rows: dict[str, Rows] = {}
    with running(models) as stack:
        for section in sections:
            say(section.__name__)
            rows[section.__name__] = section(stack, scale)
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
    say(table.of(report))
    draw(rows["streams"], target)


def draw(rows: Rows, target: Path) -> None:
    """A plot of each kind and figure; a way that does not measure it is left out there."""
    for kind in ("flood", "paced"):
        of_kind = {name: row for name, row in rows.items() if f", {kind}, " in name}
        counts = sorted({int(name.rpartition(" ")[2]) for name in of_kind})
        for figure, unit in (("tokens_per_s", "tokens a second"), ("gap_p99_ms", "ms")):
            groups = {
                f"{count} streams": {
                    name.partition(",")[0]: row[figure]
                    for name, row in of_kind.items()
                    if name.endswith(f" {count}") and figure in row
                }
                for count in counts
            }
            file = target / f"front-{kind}-{figure}.png"
            draw_bars(f"{kind}: {figure}", unit, groups, file)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "bench")
