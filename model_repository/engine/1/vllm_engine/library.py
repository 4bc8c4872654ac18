"""The installed vLLM: its classes, and how its engine starts.

build_engines/upstream/ records the arguments and fields that this package relies on.
"""

from __future__ import annotations

import json
import locale
import multiprocessing
import os
import secrets
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SEED_BITS = 31
GRACEFUL = "GracefulHTTPError"  # from 0.29 on: the engine refuses more work
CPU_KV_CACHE_BYTES = 4 * 10**9
# From this version on, vLLM draws by a request's seed on a CPU also beside requests without one.
CPU_KEEPS_SEEDS = (0, 29)


class StartFailed(RuntimeError):
    """vLLM cannot start, or cannot load the model; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Library:
    """delta: RequestOutputKind.DELTA. ended: its exception for the end of the engine process.
    failed: those for, or around, an error in one request. refused: for a request's value.
    """

    llm: Any
    engine_args: Any
    sampling_params: Any
    structured_outputs: Any
    lora_request: Any
    delta: Any
    ended: type[Exception]
    failed: tuple[type[Exception], ...]
    refused: tuple[type[Exception], ...]
    is_on_cpu: bool
    version: str

    @classmethod
    def load(cls) -> Library:
        """
        Raises:
            StartFailed: the package is missing, or lacks what this runtime needs.
        """
        try:
            import vllm
            from vllm import exceptions
            from vllm.engine.arg_utils import AsyncEngineArgs
            from vllm.lora.request import LoRARequest
            from vllm.platforms import current_platform
            from vllm.sampling_params import (
                RequestOutputKind,
                SamplingParams,
                StructuredOutputsParams,
            )
            from vllm.v1.engine.async_llm import AsyncLLM
            from vllm.v1.engine.exceptions import EngineDeadError, EngineGenerateError
        except ImportError as error:
            raise StartFailed(
                f"vLLM cannot be imported by the Python that runs Triton's models ({error}): run "
                "Triton in NVIDIA's vllm-python-py3 container, or with a python3 on PATH that has "
                "vllm"
            ) from error
        return cls(
            llm=AsyncLLM,
            engine_args=AsyncEngineArgs,
            sampling_params=SamplingParams,
            structured_outputs=StructuredOutputsParams,
            lora_request=LoRARequest,
            delta=RequestOutputKind.DELTA,
            ended=EngineDeadError,
            failed=(EngineGenerateError, *_present(exceptions, "GenerationError", GRACEFUL)),
            # In 0.33, a client's errors are no ValueErrors.
            refused=(*_present(exceptions, "VLLMValidationError", "VLLMClientError"), ValueError),
            is_on_cpu=current_platform.is_cpu(),
            version=vllm.__version__,
        )

    def start(self, engine: Path, arguments: str, stat_logger: Callable[..., Any]) -> Any:
        """A running AsyncLLM. `arguments`: fields of AsyncEngineArgs, as JSON.

        Raises:
            StartFailed: it did not start.
        """
        given = json.loads(arguments)
        # vLLM's own default, 0, would repeat the draws of unseeded requests after each start.
        given.setdefault("seed", secrets.randbits(SEED_BITS))
        if self.is_on_cpu:  # where vLLM takes gpu_memory_utilization of the machine's memory
            given.setdefault("kv_cache_memory_bytes", CPU_KV_CACHE_BYTES)
            if tuple(map(int, self.version.split(".")[:2])) < CPU_KEEPS_SEEDS:
                given.setdefault("use_fp64_gumbel", True)  # the older sampler keeps seeds only so
            # Keeps vLLM's worker in its engine's process. As two processes they poll shared memory
            # with sched_yield(2), and on Linux 6.18 others waited 45 s for a second of CPU.
            os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
        try:
            args = self.engine_args(model=str(engine), tokenizer=str(engine), **given)
            return self.llm.from_engine_args(args, stat_loggers=[stat_logger])
        except Exception as error:  # its many parts raise anything
            raise StartFailed(
                f"vLLM {self.version} cannot start the model in {engine} with {arguments}: {error}"
            ) from error


def _present(module: Any, *names: str) -> Iterator[type[Exception]]:
    """Those that this version has."""
    return (getattr(module, name) for name in names if hasattr(module, name))


def prepare_process(environ: MutableMapping[str, str], parameters: Mapping[str, str]) -> None:
    """Makes Triton's stub a process that vLLM can run in; its engine process inherits this.

    Triton's interpreter has the C locale, in which vLLM cannot read UTF-8 files, and its
    sys.executable may be no Python, which vLLM's processes are started with. On GPUs vLLM would
    fork them, although the stub has threads, and CUDA does not survive a fork.
    """
    environ["VLLM_WORKER_MULTIPROC_METHOD"] = "spawn"
    locale.setlocale(locale.LC_CTYPE, "C.UTF-8")
    if (python := shutil.which("python3")) is not None:
        sys.executable = python
        multiprocessing.set_executable(python)
    environ.setdefault("VLLM_NO_USAGE_STATS", "1")  # else it reports usage over the network
    environ.setdefault("HF_HUB_OFFLINE", "1")
    if parameters["devices"]:
        environ["CUDA_VISIBLE_DEVICES"] = parameters["devices"]
        environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
