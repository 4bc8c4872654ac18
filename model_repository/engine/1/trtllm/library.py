"""The installed TensorRT-LLM: its classes, and the arguments that this version of it accepts.

build_engines/upstream/ lists the signatures that this module relies on; `triton-openai doctor
--gpu` compares them with the installed package.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lora_adapters import lora_requests

PYTORCH, ENGINE_PLAN = "pytorch", "tensorrt"


class StartFailed(RuntimeError):
    """TensorRT-LLM cannot start, or cannot load the model; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Library:
    """The argument sets are the keyword arguments of generate_async and of SamplingParams."""

    llm: Any
    sampling_params: Any
    guided_decoding_params: Any
    lora_request: Any
    version: str
    generate_arguments: frozenset[str]
    sampling_arguments: frozenset[str]

    @classmethod
    def load(cls, backend: str) -> Library:
        """`backend`: "pytorch" for checkpoints, "tensorrt" for engine plans (up to 1.2).

        Raises:
            StartFailed: the package, or the backend in it, is missing.
        """
        try:
            import tensorrt_llm
            from tensorrt_llm.executor.request import LoRARequest
            from tensorrt_llm.llmapi import GuidedDecodingParams

            llm = _llm_class(backend)
        except ImportError as error:
            raise StartFailed(
                f"TensorRT-LLM's {backend} backend cannot be imported by the Python that runs "
                f"Triton's models ({error}): run Triton in NVIDIA's trtllm-python-py3 container"
            ) from error
        return cls(
            llm=llm,
            sampling_params=tensorrt_llm.SamplingParams,
            guided_decoding_params=GuidedDecodingParams,
            lora_request=LoRARequest,
            version=tensorrt_llm.__version__,
            generate_arguments=_parameters(llm.generate_async),
            sampling_arguments=_parameters(tensorrt_llm.SamplingParams),
        )

    def start(self, engine: Path, arguments: str) -> Any:
        """A running `LLM`. `arguments`: its keyword arguments, as JSON.

        Raises:
            StartFailed: it did not start.
        """
        try:
            llm = self.llm(model=str(engine), **_typed(json.loads(arguments)))
            if not is_alive(llm):
                raise RuntimeError("its executor is not running")
            return llm
        except Exception as error:  # its many parts raise anything
            raise StartFailed(
                f"TensorRT-LLM {self.version} cannot start the model in {engine} with "
                f"{arguments}: {error}"
            ) from error

    def adapters(self, folders: str) -> dict[str, Any]:
        """See lora_requests. Its cache of prefixes is separate for each adapter, without a salt.

        Raises:
            StartFailed: a folder is missing.
        """
        try:
            return lora_requests(self.lora_request, folders)
        except ValueError as error:
            raise StartFailed(f"cannot load a LoRA adapter: {error}") from error


def _typed(arguments: dict[str, Any]) -> dict[str, Any]:
    """Makes an object of speculative_config, the one configuration that 1.2 does not convert.

    Later versions of llm_args.py have no from_dict: their `LLM` takes the dictionary.
    """
    speculative = arguments.get("speculative_config")
    if speculative is None:
        return arguments
    from tensorrt_llm.llmapi.llm_args import DecodingBaseConfig

    from_dict = getattr(DecodingBaseConfig, "from_dict", None)
    if from_dict is None:
        return arguments
    made = from_dict(speculative)
    # Without it, versions that know it decode greedily, whatever a request's temperature.
    if "allow_advanced_sampling" in type(made).model_fields:
        made.allow_advanced_sampling = True
    return {**arguments, "speculative_config": made}


def is_alive(llm: Any) -> bool:
    """The check of LLM.generate_async before each request; there is no public one."""
    executor = llm._executor
    return executor is not None and not executor.is_shutdown() and background_error(llm) is None


def background_error(llm: Any) -> BaseException | None:
    """The error of a thread or a worker process, if there is one.

    The next request or response raises it and ends the executor. Until then the streams stand
    still, without any error.
    """
    errors = getattr(llm._executor, "_error_queue", None)
    fatal = getattr(llm._executor, "_fatal_error", None)  # from 1.3 on
    return fatal if errors is None else next(iter(errors.queue), fatal)


def _llm_class(backend: str) -> Any:
    if backend == ENGINE_PLAN:
        from tensorrt_llm._tensorrt_engine import LLM as PlanLLM

        return PlanLLM
    if backend == PYTORCH:
        from tensorrt_llm import LLM

        return LLM
    raise StartFailed(f"trtllm_backend is {backend!r}, must be {PYTORCH!r} or {ENGINE_PLAN!r}")


def _parameters(function: Any) -> frozenset[str]:
    return frozenset(inspect.signature(function).parameters)


# What mpirun or Slurm tells a process about its place in a job; two processes of a server cannot
# both take it. NVIDIA's own model deletes it, too (TensorRT-LLM 044a90d2), but not OMPI_MCA_ess*,
# with which two models under one mpirun hang (seen with Open MPI 4.1.8).
MPI_JOB = re.compile(
    "OMPI_COMM_|OMPI_(UNIVERSE_SIZE|FIRST_RANKS|APP_CTX_NUM_PROCS|NUM_APP_CTX|FILE_LOCATION)$"
    "|OMPI_MCA_(orte|ess)|ORTE_|PMIX_(?!MCA_|INSTALL_)|PMI_"
)
# Open MPI counts a slot for each core, and a worker needs one (TensorRT-LLM's issue 5495).
OVERSUBSCRIBE = "OMPI_MCA_rmaps_base_oversubscribe"


def prepare_environment(environ: MutableMapping[str, str], parameters: Mapping[str, str]) -> None:
    """Sets the variables that CUDA, MPI and TensorRT-LLM read when they are imported, as the
    engine's Triton config parameters demand. MPI workers inherit them (seen with Open MPI 4.1.8).

    devices: indices as nvidia-smi counts them, or UUIDs; empty for all GPUs. CUDA's own order of
    GPUs differs from nvidia-smi's unless CUDA_DEVICE_ORDER is set.
    """
    if environ.get("TLLM_SPAWN_PROXY_PROCESS") != "1":  # set by upstream's trtllm-llmapi-launch
        for name in filter(MPI_JOB.match, list(environ)):
            del environ[name]
        environ.setdefault(OVERSUBSCRIBE, "1")
    environ.setdefault("TRTLLM_NO_USAGE_STATS", "1")  # from 1.3 on it reports usage to NVIDIA
    if parameters["devices"]:
        environ["CUDA_VISIBLE_DEVICES"] = parameters["devices"]
        environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    if parameters["single_process"] == "true":
        environ["TLLM_WORKER_USE_SINGLE_PROCESS"] = "1"
