"""What a token costs with a real vLLM on a CPU, and with the scripted engine at the same pace.

usage: python -m tests.long.vllm.cost [STREAMS [ROUNDS [STEP_MS]]]

STEP_MS: of the scripted engine; without it, vLLM's pace is measured first.

CPU is microseconds a token of each process; both ways alternate, and figures are medians. vLLM's
own processes are not counted: `engine` is the stub that our runtime and AsyncLLM share.
"""

from __future__ import annotations

import sys

from tests.bench.front import COLUMNS, measured, say
from tests.bench.scripted_stack import BenchStack, running
from tests.fixtures.scripted import WEIGHTS, scripted
from tests.long.vllm import environment
from tests.long.vllm.own import ENVIRONMENT

TOKENS = 150
MORE = {"ignore_eos": True, "temperature": 0}


def models(streams: int, step_ms: float) -> dict[str, dict]:
    options = {
        "environment": str(environment.python().parents[1]),
        "dtype": "float32",
        "kv_cache_gb": 1,
        "max_rows": streams,
        "engine_args": {"enforce_eager": True},
    }
    common = {"weights": str(WEIGHTS), "context_length": 512}
    return {
        "real": {**common, "runtime": "vllm", "vllm": options},
        "paced": scripted(repeats=True, step_ms=step_ms),
    }


def run(stack: BenchStack, model: str, streams: int) -> dict[str, float]:
    return stack.through_proxy(model, streams, TOKENS, **MORE)


def pace_ms(streams: int) -> int:
    with running(models(streams, 10.0), **ENVIRONMENT) as stack:
        run(stack, "real", streams)
        return round(streams / run(stack, "real", streams)["tokens_per_s"] * 1000)


def main(streams: int = 64, rounds: int = 5, step_ms: int = 0) -> None:
    step_ms = step_ms or pace_ms(streams)
    say(f"{streams} streams, steps of {step_ms} ms for the scripted engine")
    with running(models(streams, step_ms), **ENVIRONMENT) as stack:
        for model in ("real", "paced"):
            run(stack, model, streams)
        ways = {model: lambda name=model: run(stack, name, streams) for model in ("real", "paced")}
        found = measured(ways, rounds)
    for name, figures in found.items():
        cells = (f"{label} {figures[key]:.{digits}f}" for label, (key, digits) in COLUMNS.items())
        say(f"{name}: {', '.join(cells)}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
