"""What the metrics of one request cost: this tree against another one.

    .venv/bin/python -m tests.bench.metrics_cost OTHER_TREE [ROUNDS]

CPU of a request with one stream of two responses, from its begin to its end, without its log line's
writing; runs alternate, each in a process of its own. Then what /metrics takes with many series.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
REQUESTS, ROUNDS = 5_000, 7


def request_us() -> float:
    """In this process, with the packages of its tree."""
    from proxy.domain.engine import EngineRequest
    from proxy.domain.generation import Report
    from proxy.domain.output import EngineTimes, FinishReason, TokenDelta, Usage
    from proxy.domain.request import GenerationRequest, Sampling, TextPrompt
    from proxy.telemetry.metrics import Metrics
    from proxy.telemetry.request_watcher import TelemetryWatcher
    from tests.doubles.engine import CARD

    class Counted:
        usage = Usage(prompt_tokens=700, completion_tokens=90, cached_tokens=100)

    request = GenerationRequest(id="r", model="demo", prompt=TextPrompt(text="x"))
    asked = EngineRequest(id="r", model=CARD, timeout_s=1, sampling=Sampling())
    first = TokenDelta((b"a",), queue_s=0.02)
    last = TokenDelta(
        (b"b",), finish=FinishReason.STOP, times=EngineTimes(prefill_s=0.2, decode_s=3.0)
    )
    watcher = TelemetryWatcher(Metrics())

    def ask() -> None:
        report = Report(first_event_s=0.3, finish=FinishReason.STOP, counts=[Counted()])
        with watcher.begin(request, CARD, report) as watch:
            stream = watch.stream(asked)
            stream.see(first)
            stream.see(last)

    for _ in range(200):
        ask()
    began = time.thread_time()
    for _ in range(REQUESTS):
        ask()
    return (time.thread_time() - began) / REQUESTS * 1e6


def measured(tree: Path) -> float:
    command = [sys.executable, __file__, "request"]
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    found = subprocess.run(
        command, cwd=tree, env=environment, capture_output=True, text=True, check=True
    )
    return float(found.stdout)


def scrape_ms(tenants: int) -> tuple[float, int]:
    """Median time of five, and the number of lines."""
    from proxy.telemetry.exposition import Exposition
    from proxy.telemetry.metrics import Metrics
    from proxy.telemetry.tenant_metrics import _Tenant

    metrics = Metrics(tenants=tenants)
    for number in range(tenants):
        _Tenant(metrics.tenants, f"t{number}")
    exposition = Exposition(metrics)
    times = []
    for _ in range(5):
        began = time.thread_time()
        text, _ = exposition.exposed("application/openmetrics-text")
        times.append((time.thread_time() - began) * 1000)
    return statistics.median(times), text.count(b"\n")


def main(other: Path, rounds: int = ROUNDS) -> None:
    runs: dict[Path, list[float]] = {other: [], ROOT: []}
    for _ in range(rounds):
        for tree, found in runs.items():
            found.append(measured(tree))
    before, after = (statistics.median(found) for found in runs.values())
    sys.stdout.write(f"{before:5.1f} us a request before, {after:5.1f} now\n")
    for tenants in (50, 500):
        spent, lines = scrape_ms(tenants)
        sys.stdout.write(f"/metrics of {tenants} tenants: {lines} lines in {spent:.0f} ms\n")


if __name__ == "__main__":
    if sys.argv[1] == "request":
        sys.stdout.write(f"{request_us()}\n")
    else:
        main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
