"""The real stack over the scripted runtime: tritonserver, ensemble and proxy, but no model."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import yaml

from tests.fixtures.scripted import scripted
from tests.fixtures.stack import ROOT, Stack, free_ports

ARTIFACTS = ROOT / "artifacts" / "bench"
FLOOD_TOKENS = 8  # a response: about what coalescing makes of a load that fills two cores
STEP_MS = 6.0
GPU_STEP_MS = 12.4  # 256 rows make 20,645 tokens a second
ENGINE_COUNTS = ("generated_tokens", "responses")
# flood: each response as soon as the last one is taken. paced and gpu: as GPUs with steps of 6 and
# of 12.4 ms would stream, joined by load. slow: a stream that a person reads.
SCRIPTED = {
    "flood": scripted(repeats=True, step_tokens=FLOOD_TOKENS, more={"hold_ms": 0}),
    "paced": scripted(repeats=True, step_ms=STEP_MS),
    "gpu": scripted(repeats=True, step_ms=GPU_STEP_MS),
    "slow": scripted(repeats=True, step_ms=1000.0),
}
PROMPT = "<|im_start|>user\nHello! Who are you?<|im_end|>\n<|im_start|>assistant\n"


@dataclass(frozen=True, slots=True)
class Usage:
    """CPU seconds since the process began, and resident bytes, by part."""

    cpu_s: dict[str, float]
    memory: dict[str, int]

    def since(self, before: Usage, tokens: int) -> dict[str, float]:
        """Microseconds a token by part."""
        return {
            f"{part}_us": (self.cpu_s[part] - before.cpu_s[part]) / max(1, tokens) * 1e6
            for part in self.cpu_s
        }


class Processes:
    """The proxy, tritonserver, and the stub of each role of one model."""

    def __init__(self, stack: Stack, model: str) -> None:
        main = psutil.Process(stack.process.pid)
        triton = stack.tritonserver()
        self.parts = {"proxy": [main], "tritonserver": [triton]}
        for role in ("tokenizer", "engine", "detokenizer"):
            word = f"/{model}_{role}/"
            self.parts[role] = [
                process
                for process in triton.children(recursive=True)
                if word in " ".join(process.cmdline()) and "stub" in process.name()
            ]

    def usage(self) -> Usage:
        cpu, memory = {}, {}
        for part, processes in self.parts.items():
            times = [process.cpu_times() for process in processes]
            cpu[part] = sum(one.user + one.system for one in times)
            memory[part] = sum(process.memory_info().rss for process in processes)
        return Usage(cpu, memory)


class BenchStack:
    """What the sections of the benchmark ask of a running stack."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack

    def through_proxy(
        self, model: str, streams: int, max_tokens: int, **fields: Any
    ) -> dict[str, float]:
        """Figures of so many chat streams at once. `fields`: of the request's body."""
        usage = {"stream_options": {"include_usage": True}}
        plan = self._chat(model, streams, max_tokens, **usage, **fields)
        return self._load(model, "tests.bench.sse_load", plan)

    def direct(self, model: str, streams: int, max_tokens: int) -> dict[str, float]:
        """The same answers over gRPC, without the proxy."""
        target = f"127.0.0.1:{self.stack.triton_grpc_port}"
        plan = {"target": target, "model": model, "prompt": PROMPT}
        return self._load(
            model, "tests.bench.grpc_load", {**plan, "streams": streams, "max_tokens": max_tokens}
        )

    def steady(
        self, model: str, streams: int, max_tokens: int, *, seconds: float, window_s: float
    ) -> Iterator[dict[str, float]]:
        """Figures of each part of a run in which another stream begins where one ends."""
        plan = self._chat(model, streams, max_tokens, include_timings=True)
        plan |= {"seconds": seconds, "window_s": window_s}
        processes = Processes(self.stack, model)
        before, engine_before = processes.usage(), self.stack.engine(model)
        command = [sys.executable, "-m", "tests.bench.steady_load"]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT
        ) as load:
            load.stdin.write(json.dumps(plan).encode())
            load.stdin.close()
            for line in load.stdout:
                window = json.loads(line)
                after, engine = processes.usage(), self.stack.engine(model)
                done = {name: engine[name] - engine_before[name] for name in ENGINE_COUNTS}
                tokens = done["generated_tokens"]
                yield {
                    **window,
                    **done,
                    "tokens_per_s": tokens / window["wall_s"],
                    "tokens_an_arrival": tokens / max(1, window["arrivals"]),
                    **after.since(before, tokens),
                    "client_us": window["client_s"] / max(1, tokens) * 1e6,
                    "proxy_mb": after.memory["proxy"] / 1e6,
                }
                before, engine_before = after, engine
        if load.returncode:
            raise RuntimeError(f"steady_load ended with {load.returncode}: {plan}")

    def _chat(self, model: str, streams: int, max_tokens: int, **fields: Any) -> dict[str, Any]:
        body = {
            "model": model,
            "messages": [{"role": "user", "content": "Hello! Who are you?"}],
            "max_tokens": max_tokens,
            "stream": True,
            **fields,
        }
        where = {"host": "127.0.0.1", "port": self.stack.port, "path": "/v1/chat/completions"}
        return {**where, "streams": streams, "body": body}

    def _load(self, model: str, generator: str, plan: dict[str, Any]) -> dict[str, float]:
        processes = Processes(self.stack, model)
        before = processes.usage()
        done = subprocess.run(
            [sys.executable, "-m", generator],
            input=json.dumps(plan).encode(),
            stdout=subprocess.PIPE,
            cwd=ROOT,
            check=True,
        )
        figures = json.loads(done.stdout)
        if figures["errors"]:
            raise RuntimeError(f"{figures['errors']} streams of {generator} failed: {plan}")
        after, tokens = processes.usage(), figures["tokens"]
        return {
            **figures,
            "tokens_per_s": tokens / figures["wall_s"],
            "tokens_an_arrival": tokens / max(1, figures["arrivals"]),
            **after.since(before, tokens),
            "client_us": figures["client_s"] / max(1, tokens) * 1e6,
            "proxy_mb": after.memory["proxy"] / 1e6,
        }


@contextmanager
def running(models: dict[str, dict], **settings: str) -> Iterator[BenchStack]:
    """Built where that is missing, and stopped at the end."""
    ARTIFACTS.mkdir(parents=True, exist_ok=True)
    file = ARTIFACTS / "models.yaml"
    file.write_text(yaml.safe_dump({"models": models}))
    environment = free_ports()
    environment |= {"MODELS_FILE": str(file), "ARTIFACTS_DIR": str(ARTIFACTS), **settings}
    stack = Stack(["serve"], environment, Path(environment["ARTIFACTS_DIR"], "serve.log"))
    try:
        stack.wait_ready(within_s=600)
        yield BenchStack(stack)
    finally:
        stack.stop()


def demo() -> dict[str, Any]:
    """The registry's own demo model, on the ONNX runtime."""
    entry = yaml.safe_load((ROOT / "models.yaml").read_text())["models"]["demo"]
    return {**entry, "weights": str(ROOT / Path(entry["weights"]))}
