"""What logs and traces cost paced streams: tokens a second, and CPU of proxy and tritonserver.

    .venv/bin/python -m tests.bench.telemetry_cost [STREAMS] [ROUNDS] [TOKENS]

One whole stack for each way, the scripted engine in each; runs alternate. Metrics cannot be turned
off. Spans go to an endpoint that reads them and keeps nothing, in a process of its own.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.bench.figures import medians
from tests.bench.scripted_stack import ARTIFACTS, SCRIPTED, BenchStack, running
from tests.fixtures.stack import free_port

SINK = "sink"
WAYS: Mapping[str, Mapping[str, str]] = {
    "no logs": {"LOG_LEVEL": "error"},
    "logs": {},
    "logs, 1 % traced": {"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.01"},
    "logs, all traced": {"OTEL_TRACES_SAMPLER": "always_on"},
}
SHOWN = ("tokens_per_s", "proxy_us", "tritonserver_us", "ttft_p50_ms", "gap_p99_ms")
ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"


class _Sink(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def sink() -> Iterator[str]:
    """The URL of an endpoint for spans."""
    port = free_port()
    process = subprocess.Popen([sys.executable, "-m", __spec__.name, SINK, str(port)])
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def measured(streams: int, rounds: int, tokens: int) -> dict[str, dict[str, float]]:
    """The medians of each way."""
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in WAYS}
    with ExitStack() as started:
        url = started.enter_context(sink())
        stacks: dict[str, BenchStack] = {}
        for number, (name, settings) in enumerate(WAYS.items()):
            folder = ARTIFACTS / f"telemetry{number}"
            folder.mkdir(parents=True, exist_ok=True)
            if "traced" in name:
                settings = {**settings, ENDPOINT: url}
            own = {"ARTIFACTS_DIR": str(folder), **settings}
            stacks[name] = started.enter_context(running({"paced": SCRIPTED["paced"]}, **own))
        for number in range(-1, rounds):  # the first warms up
            for name, stack in stacks.items():
                found = stack.through_proxy("paced", streams, tokens)
                if number >= 0:
                    runs[name].append(found)
    return {name: medians(each) for name, each in runs.items()}


def main(streams: int = 64, rounds: int = 7, tokens: int = 300) -> None:
    found = measured(streams, rounds, tokens)
    usual = found["no logs"]["tokens_per_s"]
    sys.stdout.write(f"{'':20}{''.join(f'{name:>17}' for name in SHOWN)}\n")
    for name, figures in found.items():
        shown = "".join(f"{figures[each]:17.1f}" for each in SHOWN)
        sys.stdout.write(f"{name:20}{shown}   {figures['tokens_per_s'] / usual:7.1%}\n")


if __name__ == "__main__":
    if sys.argv[1:2] == [SINK]:
        ThreadingHTTPServer(("127.0.0.1", int(sys.argv[2])), _Sink).serve_forever()
    else:
        main(*map(int, sys.argv[1:]))
