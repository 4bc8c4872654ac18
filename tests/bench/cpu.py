"""The whole stack against llama.cpp's server on a CPU: the same weights, threads and load.

usage: make bench-cpu        writes bench/cpu.json; CPU_BENCH="--rounds 1 --streams 1,8": options
       python -m tests.bench.cpu --help

The servers take turns within a round. Figures are medians of the rounds; times to first token are
over the streams of all rounds. Every prompt is new from its first word, so nothing is cached. Both
servers keep keys and values of as many tokens at most.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from tests.bench import cpu_plot, llama_cpp, sse_load
from tests.bench.engine import SCHEMA, say
from tests.bench.figures import percentile_ms
from tests.bench.scripted_stack import BenchStack, demo, running
from tests.fixtures.stack import PLAIN, ROOT

PATH = "/v1/chat/completions"
OURS, THEIRS = "triton-openai", "llama.cpp"
MODEL = "smollm2"
WARM_UP_TOKENS = 8
# A token each, with the space before it, in most vocabularies.
WORDS = ["time", "people", "water", "world", "house", "school", "number", "family", "money"]
# Title -> (key of a row, digits). CPU is microseconds a token. Memory is the PSS of a tree of
# processes after the last round: their own pages, and their part of those that they share.
COLUMNS = {
    "tokens/s": ("tokens_per_s", 1),
    "TTFT p50 ms": ("ttft_p50_ms", 0),
    "TTFT p95 ms": ("ttft_p95_ms", 0),
    "CPU µs": ("cpu_us", 0),
    "engine's CPU µs": ("engine_us", 0),
    "MB": ("memory_mb", 0),
    "engine's MB": ("engine_mb", 0),
}
DOCS = ROOT / "docs"
PAGE, PLOT = DOCS / "generated" / "llama_cpp.md", DOCS / "images" / "llama_cpp.svg"
MARKS = ("<!-- Made by `make bench-cpu CPU_BENCH=--docs`. -->", "<!-- end -->")
Row = dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    streams: int
    prompt_tokens: int
    has_schema: bool = False

    @property
    def name(self) -> str:
        streams = "1 stream" if self.streams == 1 else f"{self.streams} streams"
        schema = ", JSON schema" if self.has_schema else ""
        return f"{streams}, {self.prompt_tokens} tokens{schema}"


SCHEMA_CASE = Case(streams=8, prompt_tokens=50, has_schema=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    name: str
    model: str
    port: int
    root: psutil.Process
    engine: Sequence[psutil.Process]  # the processes that run the model
    fields: Mapping[str, object]  # of a request's body, for this server only

    def tree(self) -> list[psutil.Process]:
        return [self.root, *self.root.children(recursive=True)]

    def body(self, words: int, max_tokens: int, schema: object = None) -> dict[str, Any]:
        """A chat whose first message has so many random words."""
        text = "".join(f" {word}" for word in random.choices(WORDS, k=words))
        body = {
            "model": self.model,
            "messages": [{"role": "system", "content": text}, {"role": "user", "content": "Hi"}],
            "max_tokens": max_tokens,
            "temperature": 0,
            **self.fields,
        }
        if schema is None:
            return {**body, "ignore_eos": True}
        wanted = {"name": "answer", "strict": True, "schema": schema}
        return {**body, "response_format": {"type": "json_schema", "json_schema": wanted}}

    def words(self, prompt_tokens: int) -> int:
        """How many words make a prompt of so many tokens."""
        answer = PLAIN.post(f"http://127.0.0.1:{self.port}{PATH}", json=self.body(1, 1))
        answer.raise_for_status()
        rest: int = answer.json()["usage"]["prompt_tokens"] - 1
        return prompt_tokens - rest


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One run of one server. CPU in seconds, memory in bytes: of the tree, and of its engine."""

    tokens: int
    wall_s: float
    first_s: list[float]
    cpu_s: float
    engine_cpu_s: float
    memory: int
    engine_memory: int


def cpu_s(processes: Sequence[psutil.Process]) -> float:
    times = [process.cpu_times() for process in processes]
    return sum(one.user + one.system for one in times)


def pss(processes: Sequence[psutil.Process]) -> int:
    return sum(process.memory_full_info().pss for process in processes)


def measure(server: Server, case: Case, max_tokens: int) -> Measured:
    """Raises RuntimeError if an answer breaks off."""
    words = server.words(case.prompt_tokens)
    body = server.body(words, max_tokens, SCHEMA if case.has_schema else None)
    streamed = {**body, "stream": True, "stream_options": {"include_usage": True}}
    bodies = [
        {**streamed, "messages": server.body(words, 1)["messages"]} for _ in range(case.streams)
    ]
    tree = server.tree()
    cpu, engine_cpu = cpu_s(tree), cpu_s(server.engine)
    run = sse_load.load({"host": "127.0.0.1", "port": server.port, "path": PATH, "bodies": bodies})
    if run.errors:
        raise RuntimeError(f"{server.name}, {case.name}: {run.errors[0].decode()}")
    return Measured(
        tokens=sum(stream.tokens for stream in run.streams),
        wall_s=run.wall_s,
        first_s=[stream.arrived[0] - stream.began for stream in run.streams],
        cpu_s=cpu_s(tree) - cpu,
        engine_cpu_s=cpu_s(server.engine) - engine_cpu,
        memory=pss(tree),
        engine_memory=pss(server.engine),
    )


def row(runs: Sequence[Measured]) -> Row:
    first_s = [seconds for run in runs for seconds in run.first_s]
    return {
        "tokens_per_s": statistics.median(run.tokens / run.wall_s for run in runs),
        "ttft_p50_ms": percentile_ms(first_s, 50),
        "ttft_p95_ms": percentile_ms(first_s, 95),
        "cpu_us": statistics.median(run.cpu_s / run.tokens for run in runs) * 1e6,
        "engine_us": statistics.median(run.engine_cpu_s / run.tokens for run in runs) * 1e6,
        "memory_mb": runs[-1].memory / 1e6,
        "engine_mb": runs[-1].engine_memory / 1e6,
    }


def compare(
    servers: Sequence[Server], case: Case, *, rounds: int, max_tokens: int
) -> dict[str, Row]:
    """Server -> figures."""
    runs: dict[str, list[Measured]] = {server.name: [] for server in servers}
    for server in servers:
        measure(server, case, WARM_UP_TOKENS)
    for _ in range(rounds):
        for server in servers:
            runs[server.name].append(measure(server, case, max_tokens))
    return {name: row(measured) for name, measured in runs.items()}


@contextmanager
def llama_server(file: Path, *, threads: int, streams: int) -> Iterator[Server]:
    with llama_cpp.server(file, threads=threads, streams=streams) as (process_id, port):
        process = psutil.Process(process_id)
        yield Server(
            name=THEIRS, model=MODEL, port=port, root=process, engine=[process],
            fields={"cache_prompt": False},
        )  # fmt: skip


def our_server(bench: BenchStack, model: str) -> Server:
    stack = bench.stack
    return Server(
        name=OURS, model=model, port=stack.port, root=psutil.Process(stack.process.pid),
        engine=[one for one in stack.engine_processes(model) if "stub" in one.name()],
        fields={},
    )  # fmt: skip


def head() -> str:
    titles = ["streams, tokens of a prompt", "server", *COLUMNS]
    return f"| {' | '.join(titles)} |\n|---|---" + "|---:" * len(COLUMNS) + "|"


def line(case: str, server: str, figures: Row) -> str:
    cells = [f"{figures[key]:,.{digits}f}" for key, digits in COLUMNS.values()]
    return f"| {case} | {server} | {' | '.join(cells)} |"


def ratios(rows: Mapping[str, Mapping[str, Row]]) -> dict[str, float]:
    """How many times as fast we are: tokens a second, and the time to the first token."""
    found: dict[str, float] = {}
    for case, servers in rows.items():
        ours, theirs = servers[OURS], servers[THEIRS]
        found[f"{case}, tokens/s"] = ours["tokens_per_s"] / theirs["tokens_per_s"]
        found[f"{case}, TTFT"] = theirs["ttft_p50_ms"] / ours["ttft_p50_ms"]
    return found


def demo_engine_mb(prompts: int) -> float:
    """The engine's memory for the demo after so many different prompts."""
    with running({"demo": demo()}) as bench:
        server = our_server(bench, "demo")
        case = Case(streams=20, prompt_tokens=50)
        for _ in range(prompts // case.streams):
            memory = measure(server, case, 16).engine_memory
    return memory / 1e6


def figures(report: Mapping[str, Any]) -> str:
    """The block between MARKS in docs/generated/llama_cpp.md."""
    lines = [
        "![tokens a second and time to first token of both servers](../images/llama_cpp.svg)",
        "",
        f"{report['machine']}, threads: {report['threads']}, against {report['llama_cpp']}; "
        f"medians of {report['rounds']}; {report['max_tokens']} tokens an answer; "
        "CPU is microseconds a token.",
        "",
        head(),
    ]
    for case, servers in report["rows"].items():
        lines += [line(case, server, figures) for server, figures in servers.items()]
    return "\n".join(lines)


def with_figures(page: str, block: str) -> str:
    """The page with this block between its marks."""
    begin, end = MARKS
    before, _, rest = page.partition(begin)
    return f"{before}{begin}\n\n{block}\n\n{end}{rest.partition(end)[2]}"


def numbers(text: str) -> list[int]:
    return [int(one) for one in text.split(",")]


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.cpu")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--streams", type=numbers, default=[1, 4, 8, 16])
    parser.add_argument("--prompts", type=numbers, default=[50, 500], help="in tokens")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument(
        "--precision", choices=["int8", "int4"], help="of ours; without it, the file's own blocks"
    )
    parser.add_argument("--demo-prompts", type=int, default=1000, help="0: without the demo")
    parser.add_argument(
        "--docs", action="store_true", help="write the table and the plot into docs/"
    )
    return parser.parse_args()


def compare_all(asked: argparse.Namespace) -> dict[str, dict[str, Row]]:
    """Case -> server -> figures; printed as they come."""
    file = llama_cpp.weights()
    rows = max(asked.streams)
    kv_mb = rows * llama_cpp.SLOT_TOKENS * llama_cpp.TOKEN_BYTES // 1_000_000
    onnx: dict[str, object] = {"threads": asked.threads, "max_rows": rows, "kv_cache_mb": kv_mb}
    if asked.precision is not None:
        onnx["precision"] = asked.precision
    entry = {"weights": str(file), "onnx": onnx}
    rows: dict[str, dict[str, Row]] = {}
    with running({MODEL: entry}) as bench:
        say(head())
        for streams in asked.streams:
            cases = [Case(streams=streams, prompt_tokens=tokens) for tokens in asked.prompts]
            if streams == SCHEMA_CASE.streams:
                cases.append(SCHEMA_CASE)
            with llama_server(file, threads=asked.threads, streams=streams) as theirs:
                servers = [our_server(bench, MODEL), theirs]
                for case in cases:
                    rows[case.name] = compare(
                        servers, case, rounds=asked.rounds, max_tokens=asked.max_tokens
                    )
                    for name, found in rows[case.name].items():
                        say(line(case.name, name, found))
    return rows


def main() -> None:
    asked, began = options(), time.time()
    rows = compare_all(asked)
    for name, value in ratios(rows).items():
        say(f"{name}: {value:.2f} times as fast as {THEIRS}")
    report: dict[str, Any] = {
        "machine": f"{os.cpu_count()} cores",
        "threads": asked.threads,
        "llama_cpp": llama_cpp.description(),
        "rounds": asked.rounds,
        "max_tokens": asked.max_tokens,
        "rows": rows,
    }
    if asked.demo_prompts:
        report["demo_engine_mb"] = demo_mb = demo_engine_mb(asked.demo_prompts)
        say(f"the demo's engine after {asked.demo_prompts} prompts: {demo_mb:.0f} MB")
    report["seconds"] = round(time.time() - began)
    (ROOT / "bench").mkdir(exist_ok=True)
    (ROOT / "bench" / "cpu.json").write_text(json.dumps(report, indent=2) + "\n")
    if asked.docs:
        PAGE.write_text(with_figures(PAGE.read_text(), figures(report)))
        PLOT.write_text(cpu_plot.drawn(rows))


if __name__ == "__main__":
    main()
