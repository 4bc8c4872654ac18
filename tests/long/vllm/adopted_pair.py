"""Two tritonservers with NVIDIA's vLLM backend, or the one of this folder, adopted by one proxy."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import yaml

from tests.fixtures.pool_load import HEADERS, KEY
from tests.fixtures.running import ARTIFACTS, Start, alone
from tests.fixtures.stack import PLAIN, Stack, eventually
from tests.long.vllm import adapter, server

FOLDER = ARTIFACTS / "adopted_vllm"
CONTEXT, ROWS = 2048, 32
# How long an engine that hangs may go unnoticed. A start of another engine slows a probe.
PROBE_EVERY_S, PROBE_TIMEOUT_S = 5.0, 20.0
ENGINE = {
    **server.COMMON,
    "max_model_len": CONTEXT,
    "max_num_seqs": ROWS,
    "kv_cache_memory_bytes": 200_000_000,
    "enable_lora": True,
    "max_lora_rank": 8,
}
UP = {"ready", "ejected"}  # one that is new, or on a busy machine, may be ejected as slow
TENANT = "x-client-name"
KNOWN = {"adopt": server.MODEL, "context_length": CONTEXT}
READS = {**KNOWN, "tokenizer": str(server.WEIGHTS)}
MODELS: dict[str, dict[str, Any]] = {
    "by_ids": READS,
    "by_text": {**READS, "continue": "text"},
    "never": {**READS, "continue": "none"},
    "bare": KNOWN,
    "shared": {**READS, "prefix_cache": "shared"},
}


def stub_of(triton: Stack) -> psutil.Process:
    """Triton's process for the model that generates."""
    found = triton.descendants(f"{server.MODEL}_0_0")
    (stub,) = [one for one in found if one.cmdline()[0].endswith("triton_python_backend_stub")]
    return stub


def core_of(triton: Stack) -> psutil.Process:
    """vLLM's own process, a child of the stub."""
    (core,) = [one for one in stub_of(triton).children() if one.name().startswith("VLLM::Engine")]
    return core


def worker_of(triton: Stack) -> psutil.Process:
    """The process that computes, a child of vLLM's own."""
    (worker,) = [one for one in core_of(triton).children() if one.name().startswith("VLLM::W")]
    return worker


def address_of(triton: Stack) -> str:
    return f"127.0.0.1:{triton.triton_grpc_port}"


class AdoptedPair:
    """tritons: those that the file names, from which the proxy learns them."""

    def __init__(self, start: Start, interpreter: Path) -> None:
        self._start, self._interpreter = start, interpreter
        self._file = FOLDER / "endpoints"
        self._families: dict[Stack, list[psutil.Process]] = {}
        with alone():
            lora = FOLDER / "lora"
            subprocess.run([sys.executable, str(adapter.__file__), str(lora)], check=True)
            server.write(FOLDER, lora, {server.MODEL: ENGINE})
        self.tritons = [self.new(), self.new()]
        self.name(*self.tritons)
        self.proxy = self.new_proxy()
        self.wait()

    def new(self) -> Stack:
        return self._start(
            module="tests.long.vllm.server",
            ARTIFACTS_DIR=FOLDER,
            VLLM_PYTHON=self._interpreter,
            OMP_NUM_THREADS=1,  # threads of one engine wait for each other in loops
        )

    def new_proxy(self, models: dict[str, Any] = MODELS, **settings: object) -> Stack:
        file = FOLDER / f"{'_'.join(models)}.yaml"
        file.write_text(yaml.safe_dump({"models": models}))
        return self._start(
            "proxy",
            ARTIFACTS_DIR=FOLDER,
            MODELS_FILE=file,
            TRITON_URL=f"file+grpc://{self._file}",
            LOG_FORMAT="json",
            API_KEY=KEY,
            CLIENT_NAME_HEADER=TENANT,
            TRUSTED_FRONTS="127.0.0.1",
            PROBE_EVERY_S=PROBE_EVERY_S,
            PROBE_TIMEOUT_S=PROBE_TIMEOUT_S,
            CONTINUE_WITHIN_S=600,
            **settings,
        )

    def name(self, *tritons: Stack) -> None:
        lines = (f"{address_of(one)}?metrics={one.triton_metrics_port}" for one in tritons)
        self._file.write_text("\n".join(lines))

    def wait(self) -> None:
        """Until both serve."""
        self.proxy.wait_ready(240)
        eventually(self._are_ready, 240, "both serve")
        for one in self.tritons:
            family = psutil.Process(one.process.pid).children(recursive=True)
            self._families.setdefault(one, family)

    def _are_ready(self) -> bool:
        return all(self.state(one) in UP for one in self.tritons)

    def state(self, triton: Stack) -> str | None:
        assert triton.process.poll() is None, triton.log.read_text()[-3000:]
        listed = PLAIN.get(f"{self.proxy.url}/admin/v1/endpoints", headers=HEADERS).json()["data"]
        return next((one["state"] for one in listed if one["address"] == address_of(triton)), None)

    def only(self, triton: Stack, is_only: bool) -> None:
        """The other one drains meanwhile."""
        (other,) = [one for one in self.tritons if one is not triton]
        body = {"address": address_of(other)}
        url = f"{self.proxy.url}/admin/v1/endpoints/{'drain' if is_only else 'undrain'}"
        PLAIN.post(url, json=body, headers=HEADERS).raise_for_status()
        states = {"drained"} if is_only else UP
        eventually(lambda: self.state(other) in states, 30, f"the other one is {states}")

    def kill(self, triton: Stack) -> None:
        """kill -9 of tritonserver and all that it had started when it was ready."""
        triton.process.kill()
        triton.process.wait()
        for one in self._families[triton]:  # vLLM's processes outlive a stub that is killed
            if one.is_running():
                one.kill()

    def replace(self, triton: Stack) -> None:
        """Another one in its place."""
        if triton.process.poll() is None:
            self.kill(triton)
        self.tritons = [one for one in self.tritons if one is not triton] + [self.new()]
        self.name(*self.tritons)
        self.wait()
